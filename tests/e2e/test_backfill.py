"""Backfills and replays from the source's log of commits to the Delta tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from support.filled import changed, filled
from support.log import folded
from support.pipeline import Pipeline, numbers

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.repair.repair import Findings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.source.planning.repair import RepairRequest, plan_repair
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.row_deletion import delete_logged_rows
from airflow_provider_db2cdc.spark.delta.table_io import append, load
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.spark.verify.state import owner_of_target

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def repaired(
    pipeline: Pipeline, interval: DataInterval | None, *tables: TableId, is_dry_run: bool = False
) -> dict[TableId, Findings]:
    """Plan and do a backfill, or a replay without an interval. Return what it found of each table."""
    run_id, at_ms = f"run{next(numbers)}", int(time.time() * 1000)
    request = RepairRequest(run_id, at_ms, interval, [str(table) for table in tables], is_dry_run)
    with pipeline.source() as source:
        spec = plan_repair(source, pipeline.config, pipeline.offsets.read(), request)
    assert isinstance(spec, JobSpec), spec
    result = job.run(spec)
    assert not result.failed, result.failed
    return {line.table: line.repair for line in result.tables if line.repair is not None}


def interval_of(pipeline: Pipeline, *statements: str) -> DataInterval:
    """Commit each statement, have a tick carry them, and return the interval of their commits."""
    begin = datetime.now(UTC)
    for statement in statements:
        changed(pipeline, statement)
    end = datetime.now(UTC)
    pipeline.captured()
    pipeline.passed()
    return DataInterval.of(begin, end)


def own_session(pipeline: Pipeline, table: TableId) -> SparkSession:
    """Return a session whose writes look like the pipeline's own. So no guard finds them before the repair does."""
    owner = owner_of_target(pipeline.spark, Layout(pipeline.target), "test")
    return TableSessions(pipeline.spark, owner.mark).session(table, 0)


def damage(pipeline: Pipeline, table: TableId) -> None:
    """Lose the event of row 1 and double that of row 2. Have row 3 wrong, row 4 surplus and row 50 missing."""
    spark, layout = own_session(pipeline, table), Layout(pipeline.target)
    log, state = layout.changes(table), f"delta.`{layout.state(table).name}`"
    delete_logged_rows(spark, log, "op = 'u' AND key.ID = 1")
    append(load(spark, log).where("op = 'u' AND key.ID = 2"), log)
    spark.sql(f"UPDATE {state} SET A = 'x' WHERE ID = 3")
    spark.sql(f"DELETE FROM {state} WHERE ID = 50")
    spark.sql(f"INSERT INTO {state} (ID, A) VALUES (4, 'x')")


def test_a_backfill_mends_its_interval_and_a_replay_the_rest(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table, other = filled(pipeline, 20, "T1"), filled(pipeline, 5, "T2")
    pipeline.passed()
    # The rows of the snapshot are at a position between two commits. So they are in the interval of the next commit.
    interval_of(pipeline, f"UPDATE {table} SET A = 'a1' WHERE ID = 9")
    before = interval_of(pipeline, f"UPDATE {table} SET A = 'a2' WHERE ID = 9")
    updates = [f"UPDATE {table} SET A = 'b' WHERE ID = {key}" for key in (1, 2, 3)]
    insert = f"INSERT INTO {table} VALUES (50, 'b')"
    interval = interval_of(pipeline, *updates, f"DELETE FROM {table} WHERE ID = 4", insert)
    offsets = pipeline.offsets.path.read_text()

    equal = repaired(pipeline, interval)
    assert (equal[table].commits, equal[table].events, equal[table].keys) == (5, 5, 5)
    assert all(found.is_equal for found in equal.values())
    assert equal[other].keys == 0

    damage(pipeline, table)
    assert repaired(pipeline, before)[table].is_equal, "it is not of that interval"
    found = repaired(pipeline, interval, table)[table]
    assert (found.events_added, found.events_doubled, found.rows_corrected) == (1, 1, 3)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert folded(pipeline, table) == pipeline.source_rows(table)
    again = repaired(pipeline, interval)[table]
    assert (again.is_equal, again.events, again.events_doubled) == (True, 5, 1)

    own_session(pipeline, table).sql(
        f"UPDATE delta.`{Layout(pipeline.target).state(table).name}` SET A = 'x' WHERE ID = 7"
    )
    assert repaired(pipeline, None, table, is_dry_run=True)[table].rows_corrected == 1
    assert pipeline.rows(table) != pipeline.source_rows(table), "a dry run writes nothing"
    assert repaired(pipeline, None, table)[table].rows_corrected == 1
    assert pipeline.rows(table) == pipeline.source_rows(table)

    assert pipeline.offsets.path.read_text() == offsets
    changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID < 8")
    assert [line.updates for line in pipeline.passed().tables if line.table == table] == [7]
    assert pipeline.rows(table) == pipeline.source_rows(table)
