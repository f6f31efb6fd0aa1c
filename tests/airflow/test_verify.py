"""The operator of verifications in real tasks: what it plans, and how a task ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.airflow_fixtures import RunDag
from support.captured_shop import Captured
from support.fake_spark import FakeSpark

from airflow_provider_db2cdc.operators.verify import is_on, table_names

pytestmark = [pytest.mark.airflow, pytest.mark.sandbox]
Verify = Callable[..., str]

DAG = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcVerifyOperator

with DAG("verifies"):
    Db2CdcVerifyOperator(
        task_id="verify", db2_conn_id="db2_sandbox", spark_conn_id="spark_test", spark_binary={binary!r}, jars="",
        config={config!r}, tables={tables!r}, quick="{{{{ dag_run.conf.quick }}}}",
    )
"""


@pytest.fixture
def verify(captured: Captured, fake_spark: FakeSpark, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Run a task that verifies tables, whose job comes back with this verdict. Return the task's state."""

    def run(tables: str = "", quick: bool = False, **verdict: Any) -> str:
        monkeypatch.setenv("FAKE_VERDICT", json.dumps(verdict))
        config = {"pipeline": "sales", "target": "/lake", "table.include.list": rf"{captured.schema}\..*"}
        text = DAG.format(binary=str(fake_spark.binary), config=config, tables=tables)
        _, tasks = run_dag("verifies", text, {"quick": quick})
        return tasks["verify"]

    return run


def test_equal_tables_are_green_and_the_job_gets_the_wanted_tables(verify: Verify, fake_spark: FakeSpark) -> None:
    assert verify("SHOP.ORDERS\n\n", quick=True) == "success"
    spec = fake_spark.call()["spec"]
    assert [task["schema"]["table"]["name"] for task in spec["tables"]] == ["ORDERS"]
    assert (spec["quick"], spec["show_keys"], spec["verification"].startswith("verifies/")) == (True, False, True)
    assert verify() == "success"
    spec = fake_spark.call()["spec"]
    assert (len(spec["tables"]), spec["quick"]) == (2, False)


def test_difference_fails_the_task_and_says_where_first(verify: Verify, capfd: pytest.CaptureFixture[str]) -> None:
    assert verify("SHOP.ORDERS", status="different", missing=1) == "failed"
    out = capfd.readouterr().out
    assert "SHOP.ORDERS differs from its source: 1 missing rows" in out
    assert "db2cdc heal" in out


def test_table_that_is_not_compared_fails_the_task(verify: Verify, capfd: pytest.CaptureFixture[str]) -> None:
    assert verify("SHOP.ORDERS", status="unfinished") == "failed"
    assert "not all chunks are compared of SHOP.ORDERS" in capfd.readouterr().out


def test_unknown_table_is_refused_before_spark_starts(
    verify: Verify, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str]
) -> None:
    assert verify("SHOP.NOTHING") == "failed"
    assert "SHOP.NOTHING is not a captured table of this pipeline" in capfd.readouterr().out
    assert not fake_spark.called


def test_tables_and_switches_come_from_templates_too() -> None:
    assert table_names("SALES.ORDERS\n\n SALES.ITEMS ") == table_names(["SALES.ORDERS", "SALES.ITEMS"])
    assert [is_on(value) for value in (True, "True", "true", False, "False", "")] == [True, True, True] + [False] * 3
