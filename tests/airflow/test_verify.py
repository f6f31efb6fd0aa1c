"""The operator of verifications: what its task plans, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from support.job_samples import job_spec

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult, VerifySpec
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.operators.verify import Db2CdcVerifyOperator, is_on, table_names

pytestmark = pytest.mark.airflow
TABLE = TableId("SALES", "ORDERS")


class Verified(Db2CdcVerifyOperator):
    """A task whose job has come back with a verdict."""

    verdict: TableVerdict

    def read_spec(self) -> VerifySpec:
        source = job_spec("ORDERS")
        return VerifySpec("sales", "v", "/lake", source.source, source.tables)

    def run_spec(self, context: Any) -> VerifyResult:
        return VerifyResult("sales", "v", (self.verdict,))


def execute(verdict: TableVerdict) -> str:
    task = Verified(task_id="verify", config={"pipeline": "sales", "target": "/lake"})
    task.verdict = verdict
    return task.execute({})


def test_equal_tables_are_green() -> None:
    result = VerifyResult.from_json(execute(TableVerdict(TABLE, "equal", 3, 3)))
    assert [verdict.status for verdict in result.tables] == ["equal"]


def test_a_difference_fails_at_once_and_says_where_first() -> None:
    with pytest.raises(AirflowFailException) as caught:
        execute(TableVerdict(TABLE, "different", 3, 2, missing=1))
    text = str(caught.value)
    assert text.startswith("SALES.ORDERS differs from its source: 1 missing rows")
    assert "have it healed" in text


@pytest.mark.parametrize("status", ["failed", "unfinished"])
def test_what_is_not_compared_may_be_retried(status: Any) -> None:
    with pytest.raises(Db2CdcError) as caught:
        execute(TableVerdict(TABLE, status, error="locked"))
    assert not isinstance(caught.value, AirflowFailException)


def test_tables_and_switches_come_from_templates_too() -> None:
    assert table_names("SALES.ORDERS\n\n SALES.ITEMS ") == table_names(["SALES.ORDERS", "SALES.ITEMS"])
    assert [is_on(value) for value in (True, "True", "true", False, "False", "")] == [True, True, True] + [False] * 3
