"""Repairs as Spark jobs, next to ticks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.crash import killed
from support.log import folded
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Repair, RepairOrder, Replay
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.row_deletion import delete_logged_rows
from airflow_provider_db2cdc.spark.delta.table_io import sql_name
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import TableSessions

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]


def applied(pipeline: Pipeline) -> JobSpec:
    """Run a tick of everything captured, and return its plan."""
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    result = job.run(spec)
    assert not result.failed, result.failed
    pipeline.commit(result)
    return spec


def damage(pipeline: Pipeline, table: TableId) -> None:
    """Move the rows of statement order away, and lose a delete with its tombstone, as a fault of the pipeline would."""
    layout = Layout(pipeline.target)
    mark = BatchLog(pipeline.spark, layout, "test").prepare().mark
    session = TableSessions(pipeline.spark, mark).session(table, 0)
    session.sql(f"UPDATE {sql_name(layout.state(table))} SET A = 99 WHERE ID = 2")
    session.sql(f"INSERT INTO {sql_name(layout.state(table))} SELECT 1, 10, '', 0")
    delete_logged_rows(session, layout.changes(table), "op = 'd' OR op IS NULL OR (op = 'c' AND after.ID = 4)")


def repaired(spec: JobSpec, repair: Repair, name: str) -> JobSpec:
    """Return the plan of a repair with the tables of a tick's plan."""
    tables = tuple(replace(task, action="pull") for task in spec.tables)
    return replace(spec, tables=tables, repair=RepairOrder(repair), run_id=name, plan_id=name, signals=())


def log_of(pipeline: Pipeline, table: TableId) -> list[tuple[object, ...]]:
    """Return the log with tombstones, without the times at which events were written."""
    kept = "__batch, __commit_lsn, __intent_lsn, __ordinal, op, key, before, after, source"
    return [tuple(row) for row in pipeline.changes(table).select(*kept.split(", ")).collect()]


def test_a_tick_finishes_a_backfill_that_died(new_pipeline: Callable[..., Pipeline]) -> None:
    """In one commit the rows move by one key, so that some of their events are moved in the log."""
    pipeline = new_pipeline()
    ddl = f'CREATE TABLE "{pipeline.schema}"."T" (ID INTEGER NOT NULL PRIMARY KEY, A INTEGER)'
    table = pipeline.create(ddl, "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(1, 10), (2, 20), (3, 30)])
    applied(pipeline)
    # Key 3 moves to 4, 2 to 3, and 1 to 2. So 2 and 3 are first inserted, and then deleted.
    for statement in ("UPDATE {} SET ID = 4 WHERE ID = 3", "UPDATE {} SET ID = ID + 1 WHERE ID < 3"):
        pipeline.execute(statement.format(table))
    pipeline.writer.commit()
    spec = applied(pipeline)
    log, rows, offset = log_of(pipeline, table), pipeline.rows(table), pipeline.offsets.get(table)
    damage(pipeline, table)
    assert pipeline.rows(table) != rows
    task = spec.tables[0]
    work = Backfill(0, spec.planned_at_ms, task.stored_lsn, task.upto)
    compared: list[object] = []
    with failpoint_action("compare_table", before=compared.append), killed("merge_state", "before"):
        job.run(repaired(spec, work, "zz1"))
    assert len(compared) == 1, "the correction uses the comparison of the same run"
    assert pipeline.rows(table) != rows
    pipeline.execute(f"INSERT INTO {table} VALUES (9, 90)")
    pipeline.writer.commit()
    applied(pipeline)
    assert pipeline.rows(table) == rows | {(9, 90)} == pipeline.source_rows(table) == folded(pipeline, table)
    assert [entry for entry in log_of(pipeline, table) if entry in log] == log
    [line] = job.run(repaired(spec, Replay(), "zz2")).tables
    assert line.repair is not None
    assert (line.status, line.lsn, line.repair.is_equal, line.repair.is_foreign) == ("unchanged", None, True, False)
    moved = pipeline.offsets.get(table)
    assert offset is not None
    assert moved is not None
    assert moved.batch > offset.batch
