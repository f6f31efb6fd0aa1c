"""The operator of maintenance in real tasks: what a task asks Spark for, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.airflow_fixtures import RunDag
from support.fake_spark import FakeSpark

from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary

pytestmark = pytest.mark.airflow
Maintain = Callable[..., str]
CONFIG = {"pipeline": "sales", "target": "/lake", "change.log.retention": "30d"}

DAG = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcMaintenanceOperator

with DAG("maintains"):
    Db2CdcMaintenanceOperator(
        task_id="maintain", spark_conn_id="spark_test", spark_binary={binary!r}, jars="", config={config!r},
        tables={tables!r}, report_only="{{{{ dag_run.conf.report_only }}}}",
    )
"""


@pytest.fixture
def maintain(fake_spark: FakeSpark, run_dag: RunDag) -> Maintain:
    """Run a task that maintains tables, and return the task's state. It has no connection to Db2."""

    def run(tables: str = "", report_only: bool = False) -> str:
        text = DAG.format(binary=str(fake_spark.binary), config=CONFIG, tables=tables)
        _, tasks = run_dag("maintains", text, {"report_only": report_only})
        return tasks["maintain"]

    return run


def test_the_job_gets_the_tables_the_retention_and_what_was_reported(
    maintain: Maintain, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = PipelineSummary(reported_seq=9, notified_seq=7)
    monkeypatch.setenv("AIRFLOW_VAR_DB2CDC.SALES~SUMMARY", kept.to_json())
    assert maintain("SALES.ORDERS\n", report_only=True) == "success"
    spec = fake_spark.call()["spec"]
    assert [table["name"] for table in spec["tables"]] == ["ORDERS"]
    assert (spec["retention_s"], spec["reported_seq"], spec["dry_run"]) == (2_592_000, 7, True)
    assert "DB2CDC_PASSWORD" not in json.dumps(fake_spark.call()["env"])
    assert maintain() == "success"
    spec = fake_spark.call()["spec"]
    assert (spec["tables"], spec["dry_run"]) == ([], False)


def test_a_table_without_a_schema_is_refused_before_spark_starts(
    maintain: Maintain, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str]
) -> None:
    assert maintain("ORDERS") == "failed"
    assert "'ORDERS' is not schema" in capfd.readouterr().out
    assert not fake_spark.called


def test_a_failed_table_fails_the_task_with_its_error(
    maintain: Maintain, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAIL", "ORDERS")
    assert maintain("SALES.ORDERS\nSALES.ITEMS") == "failed"
    assert "the table is full. Wait." in capfd.readouterr().out
