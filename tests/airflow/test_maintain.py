"""The operator of maintenance: what its task asks Spark for, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceResult, MaintenanceSpec, TableReport
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.operators.maintain import Db2CdcMaintenanceOperator

pytestmark = pytest.mark.airflow
CONFIG = {"pipeline": "sales", "target": "/lake", "change.log.retention": "30d"}
ORDERS = TableId("SALES", "ORDERS")


class Maintained(Db2CdcMaintenanceOperator):
    """A task whose job has come back with a report."""

    error = ""

    def run_spec(self, context: Any) -> MaintenanceResult:
        return MaintenanceResult("sales", "run", (TableReport(None), TableReport(ORDERS, error=self.error)))


def test_the_spec_says_what_was_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = PipelineSummary(reported_seq=9, notified_seq=7)
    monkeypatch.setenv("AIRFLOW_VAR_DB2CDC.SALES~SUMMARY", kept.to_json())
    task = Db2CdcMaintenanceOperator(
        task_id="maintain", config=CONFIG, tables="SALES.ORDERS\n", report_only="True", run_name="run"
    )
    spec = task.read_spec()
    assert (spec.tables, spec.retention_s, spec.reported_seq, spec.dry_run) == ((ORDERS,), 2_592_000, 7, True)
    assert MaintenanceSpec.from_json(spec.to_json()) == spec


def test_a_table_without_a_schema_is_refused() -> None:
    task = Db2CdcMaintenanceOperator(task_id="maintain", config=CONFIG, tables=["ORDERS"])
    with pytest.raises(ConfigurationError, match="'ORDERS' is not schema"):
        task.read_spec()


def test_a_failed_table_fails_the_task_and_its_error_comes_first() -> None:
    task = Maintained(task_id="maintain", config=CONFIG)
    assert MaintenanceResult.from_json(task.execute({})).tables[1].table == ORDERS
    task.error = "SALES.ORDERS: change.log.retention is too short. Wait."
    with pytest.raises(AirflowFailException, match=r"^SALES\.ORDERS: change\.log\.retention is too short"):
        task.execute({})
