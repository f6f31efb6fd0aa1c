"""A DAG that is scheduled on a table's asset gets each change once, whatever happens to the runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from pyspark.sql import SparkSession
from sqlalchemy import event, insert
from support.airflow_fixtures import RunDag
from support.job_samples import job_result, lsn, table_result
from support.lake import Lake, Line

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.spark.delta.table_io import current_version

pytestmark = pytest.mark.airflow

ORDERS = TableId("SALES", "ORDERS")
CONSUMER = Path(__file__).parents[2] / "dags" / "db2cdc_consumer.py"
EVENTS: Sequence[Line] = [
    (1, 10, "r", 1, 1), (1, 10, "r", 2, 1), (2, 20, "c", 3, 2), (3, 30, "d", 1, 3), (4, 40, "u", 2, 4),
    (5, 50, "c", 9, 5),
]  # fmt: skip

COMMIT = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcCommitOperator
from airflow_provider_db2cdc.operators.asset import pipeline_alias

with DAG("sales_cdc"):
    Db2CdcCommitOperator(task_id="commit", result={result!r}, outlets=[pipeline_alias("sales")])
"""


@contextmanager
def triggered_by(events: Sequence[int]) -> Iterator[None]:
    """Let each DAG run that is created in the block have these asset events as its triggers."""
    from airflow.models.asset import association_table
    from airflow.models.dagrun import DagRun

    def consume(mapper: object, connection: Any, run: Any) -> None:
        rows = [{"dag_run_id": run.id, "event_id": event_id} for event_id in events]
        connection.execute(insert(association_table), rows)

    event.listen(DagRun, "after_insert", consume)
    try:
        yield
    finally:
        event.remove(DagRun, "after_insert", consume)


def emitted() -> list[int]:
    """Return the ids of the orders' asset events."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter(AssetEvent.source_dag_id == "sales_cdc").order_by(AssetEvent.id)
        return [found_event.id for found_event in found]


def test_consumer_counts_each_change_once(
    run_dag: RunDag, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path)
    lake.log(ORDERS, EVENTS)
    log_id = current_version(spark, Layout(lake.target).changes(ORDERS)).id
    report = tmp_path / "report"
    monkeypatch.setenv("SALES_TARGET", lake.target)
    monkeypatch.setenv("SALES_REPORT", str(report))

    def commit(batch: int, rows: int) -> str:
        lake.apply(ORDERS, batch)
        changed = table_result("ORDERS", batch=batch, upto=batch, creates=rows, after=lsn(batch - 1), log_id=log_id)
        result = job_result(changed, pipeline="sales", planned_at_ms=batch)
        return run_dag("sales_cdc", COMMIT.format(result=result.to_json()))[0]

    def consume(*events: int) -> str:
        with triggered_by(events):
            return run_dag("sales_order_changes", CONSUMER.read_text("utf-8"))[0]

    def mark_failed(reached: object) -> None:
        raise AirflowFailException("marked failed")

    assert commit(1, 2) == "success"
    with failpoint_action("commit_offsets", after=mark_failed):
        assert commit(2, 1) == "failed"
    for batch in (3, 4, 5):
        assert commit(batch, 1) == "success"
    first, second, third, fourth = emitted()
    assert consume(second) == "success"
    for _ in range(2):
        assert consume(first) == "success", "a late run, and the same one cleared"
    assert consume(fourth, third) == "success"
    rows = spark.read.format("delta").load(str(report)).collect()
    assert sorted((row["to_batch"], row["op"], row["count"]) for row in rows) == [
        (1, "r", 2),
        (3, "c", 1),
        (3, "d", 1),
        (5, "c", 1),
        (5, "u", 1),
    ]
    assert sum(row["count"] for row in rows) == len(EVENTS)
