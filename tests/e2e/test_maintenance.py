"""Maintenance next to ticks: it comes between any two steps of a run, and after the death of another one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.crash import killed, once
from support.filled import filled
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance import file_layout
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceResult, MaintenanceSpec
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint
from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon
from airflow_provider_db2cdc.spark.maintenance.run import maintain

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

DAY_S = 86_400
STEPS: list[Failpoint] = ["append_changes", "commit_batch"]


def maintained(pipeline: Pipeline) -> MaintenanceResult:
    """Maintain the target in ten days. All batches are old enough to be trimmed then, and all manifest rows."""
    at_ms = int((time.time() + 10 * DAY_S) * 1000)
    spec = MaintenanceSpec("test", "maintenance", pipeline.target, at_ms, retention_s=DAY_S)
    result = maintain(pipeline.spark, spec)
    assert not result.failed, result.failed
    return result


def change(pipeline: Pipeline, table: TableId, value: int) -> None:
    pipeline.execute(f"UPDATE {table} SET A = '{value}' WHERE ID < 3")
    pipeline.execute(f"INSERT INTO {table} VALUES ({100 + value}, '{value}')")
    pipeline.writer.commit()
    pipeline.captured()


def test_a_tick_repeats_a_merge_that_meets_maintenance(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_layout, "SMALL_FILES", 2)
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.to_its_end()
    change(pipeline, table, 1)
    with once("merge_state", "before", lambda: maintained(pipeline)):
        pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    detail = pipeline.spark.sql(f"DESCRIBE DETAIL delta.`{Layout(pipeline.target).state(table).name}`").first()
    assert detail is not None
    assert detail["clusteringColumns"] == ["ID"]


@pytest.mark.long
def test_ticks_and_maintenance_meet_at_any_step(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_layout, "SMALL_FILES", 2)
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.to_its_end()
    for number, step in enumerate(STEPS, 1):
        change(pipeline, table, number)
        with once(step, "before", lambda: maintained(pipeline)):
            pipeline.passed()
    change(pipeline, table, 8)
    with killed("append_changes", "after"):
        pipeline.passed()
    with killed("delete_rows", "after"):
        maintained(pipeline)
    maintained(pipeline)
    change(pipeline, table, 9)
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    horizon = log_horizon(pipeline.spark, Layout(pipeline.target), table)
    batches = sorted({row["__batch"] for row in pipeline.changes(table).select("__batch").collect()})
    assert horizon.is_trimmed
    assert batches[0] >= horizon.batch
