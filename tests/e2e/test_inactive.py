"""A registration that was inactive for a while: its changes were not captured, and this is never forgotten."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
from support.crash import killed
from support.pipeline import Pipeline
from support.writing import after_each

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SourceError, TickFailedError
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load, table_exists

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]

HALF_HOUR_MS = 1_800_000
DAY_MS = 24 * 3600 * 1000


def three_rows(pipeline: Pipeline, name: str) -> TableId:
    table = pipeline.create(
        f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY, A CHAR)', name
    )
    pipeline.many(f"INSERT INTO {table} VALUES (?, 'a')", [(at,) for at in (1, 2, 3)])
    pipeline.captured()
    return table


def do(pipeline: Pipeline, statement: str) -> None:
    pipeline.execute(statement)
    pipeline.writer.commit()
    pipeline.captured()


def leave_a_batch(pipeline: Pipeline, table: TableId) -> JobSpec:
    """Have a tick die before its batch is committed, and return its plan."""
    do(pipeline, f"INSERT INTO {table} VALUES (4, 'b')")
    spec = pipeline.plan()
    assert spec is not None
    with killed("commit_batch", "before"):
        job.run(spec)
    return spec


def lose_a_deletion(pipeline: Pipeline, table: TableId) -> None:
    """Have a plan meet the inactive registration while a row is deleted; later changes are captured again."""
    meet(pipeline, table, "DELETE FROM {} WHERE ID = 1")
    do(pipeline, f"INSERT INTO {table} VALUES (5, 'c')")


def meet(pipeline: Pipeline, table: TableId, statement: str) -> None:
    """Have a plan meet the inactive registration while a statement changes the table; nothing else is to be done."""
    faults.set_state(pipeline.writer, table.schema, table.name, "S")
    do(pipeline, statement.format(table))
    with pytest.raises(TickFailedError, match="registered in state 'S'"):
        pipeline.plan()
    faults.set_state(pipeline.writer, table.schema, table.name, "A")


def failure(result: JobResult | None, table: TableId) -> str:
    assert result is not None
    [line] = [line for line in result.failed if line.table == table]
    return line.error


def is_suspended(pipeline: Pipeline, table: TableId) -> bool:
    offset = pipeline.offsets.get(table)
    return offset is not None and offset.capture_interrupted


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_redone_earlier_batch_does_not_hide_an_interruption(new_pipeline: Callable[..., Pipeline], mode: str) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": mode})
    table, _ = three_rows(pipeline, "BAD"), three_rows(pipeline, "GOOD")
    pipeline.passed()
    leave_a_batch(pipeline, table)
    lose_a_deletion(pipeline, table)
    if mode == "initial":
        assert "not active for a while" in failure(pipeline.tick(), table)
        assert is_suspended(pipeline, table)
    else:
        pipeline.passed()
        assert pipeline.rows(table) == pipeline.source_rows(table)
        assert not is_suspended(pipeline, table)


def test_a_cleared_old_run_does_not_hide_an_interruption(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = three_rows(pipeline, "BAD")
    pipeline.passed()
    spec = leave_a_batch(pipeline, table)
    lose_a_deletion(pipeline, table)
    pipeline.commit(job.run(spec))
    assert is_suspended(pipeline, table)
    assert "not active for a while" in failure(pipeline.tick(), table)


@pytest.mark.parametrize(
    ("mode", "ahead_ms"),
    [("initial", 0), ("when_needed", 0), ("when_needed", HALF_HOUR_MS)],
    ids=str,
)
def test_an_interruption_before_the_repair_is_committed_is_a_new_gap(
    new_pipeline: Callable[..., Pipeline], mode: str, ahead_ms: int
) -> None:
    """Also if the clock of the last plan's machine was ahead of this one.

    An earlier requested restart is repeated: the commit does not override the interruption that was found later.
    """
    pipeline = new_pipeline(**{"snapshot.mode": mode})
    table = three_rows(pipeline, "BAD")
    pipeline.passed()
    kept = pipeline.offsets.get(table)
    assert kept is not None
    pipeline.offsets.put(replace(kept, planned_at_ms=kept.planned_at_ms + ahead_ms))
    lose_a_deletion(pipeline, table)
    if mode == "initial":
        pipeline.restart(table)
    mending = pipeline.plan()
    assert mending is not None
    result = job.run(mending)
    assert not result.failed
    meet(pipeline, table, "DELETE FROM {} WHERE ID = 2")
    pipeline.commit(result)
    do(pipeline, f"INSERT INTO {table} VALUES (6, 'd')")
    assert is_suspended(pipeline, table)
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert not is_suspended(pipeline, table)


@pytest.mark.parametrize("at", [2, 0], ids=["its first batch is pending", "its first offset was never stored"])
def test_an_interruption_is_a_gap_if_a_tables_first_tick_died(new_pipeline: Callable[..., Pipeline], at: int) -> None:
    pipeline = new_pipeline()
    three_rows(pipeline, "GOOD")
    pipeline.passed()
    table = three_rows(pipeline, "BAD")
    spec = pipeline.plan()
    assert spec is not None
    # The first one is the other table's.
    with killed("commit_batch", "before", at) if at else nullcontext():
        job.run(spec)
    lose_a_deletion(pipeline, table)
    assert is_suspended(pipeline, table)
    assert "not active for a while" in failure(pipeline.tick(), table)


def test_a_table_interrupted_before_its_start_starts_like_any_other(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    three_rows(pipeline, "GOOD")
    pipeline.passed()
    table = three_rows(pipeline, "LATE")
    lose_a_deletion(pipeline, table)
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert not is_suspended(pipeline, table)
    assert pipeline.tick() is None


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_source_table_that_was_dropped_and_created_again_is_a_gap(
    new_pipeline: Callable[..., Pipeline], mode: str
) -> None:
    """Its registration is unchanged, and the changes of its rows were not captured."""
    pipeline = new_pipeline(**{"snapshot.mode": mode})
    table = three_rows(pipeline, "T")
    pipeline.passed()
    do(pipeline, f"DROP TABLE {table}")
    do(pipeline, f"CREATE TABLE {table} (ID INTEGER NOT NULL PRIMARY KEY, A CHAR)")
    do(pipeline, f"INSERT INTO {table} VALUES (2, 'd')")
    if mode == "initial":
        assert "the source table was created again at" in failure(pipeline.tick(), table)
        assert "the source table was created again at" in failure(pipeline.tick(), table), "until it is repaired"
    else:
        pipeline.passed()
        assert pipeline.rows(table) == pipeline.source_rows(table) == {(2, "d")}


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_restart_that_fails_after_its_first_group_continues(new_pipeline: Callable[..., Pipeline], mode: str) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": mode, "incremental.snapshot.chunk.size": 1, "snapshot.group.chunks": 1})
    table = three_rows(pipeline, "BAD")
    pipeline.passed()
    lose_a_deletion(pipeline, table)
    if mode == "initial":
        assert "not active for a while" in failure(pipeline.tick(), table)
        pipeline.restart(table)
    calls = itertools.count(1)

    def fail_once(_: ReachedFailpoint) -> None:
        if next(calls) == 2:
            raise SourceError("a passing trouble", "Wait.")

    with failpoint_action("stage_chunks", before=fail_once):
        assert "a passing trouble" in failure(pipeline.tick(), table)
        last = pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert [one.status for one in last.snapshots] == ["completed"], "it went on, and did not begin once more"


def test_a_clock_that_was_ahead_and_a_dead_commit_stop_nothing(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = three_rows(pipeline, "T")
    pipeline.passed()
    do(pipeline, f"INSERT INTO {table} VALUES (4, 'b')")
    spec = pipeline.plan()
    assert spec is not None
    job.run(replace(spec, planned_at_ms=spec.planned_at_ms + 30 * DAY_MS))
    do(pipeline, f"INSERT INTO {table} VALUES (5, 'b')")
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_a_redone_first_batch_counts_the_rows_of_its_state(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table = three_rows(pipeline, "T")
    pipeline.passed()
    do(pipeline, f"INSERT INTO {table} VALUES (5, 'c')")
    pipeline.passed()
    layout = Layout(pipeline.target)
    for name in (layout.state(table).name, layout.changes(table).name):
        shutil.rmtree(name)
    pipeline.offsets.lose(table)
    spec = pipeline.plan()
    assert spec is not None
    with killed("fill_state", "before"):
        job.run(spec)
    last = pipeline.passed()
    assert last.tables[0].rows == pipeline.state(table).count() == 4


def stop(pipeline: Pipeline, table: TableId) -> None:
    faults.set_state(pipeline.writer, table.schema, table.name, "S")


def start_cold(pipeline: Pipeline, table: TableId) -> None:
    faults.cold_start(pipeline.writer)


def register_anew(pipeline: Pipeline, table: TableId) -> None:
    faults.reregister(pipeline.writer, table.schema, table.name)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (stop, "registered in state 'S'"),
        (start_cold, "was started cold"),
        (register_anew, "was created again at a later time"),
    ],
)
@pytest.mark.parametrize("mode", ["initial", "initial_only"])
def test_a_window_is_not_complete_if_capture_ends_after_the_read(
    new_pipeline: Callable[..., Pipeline], mode: str, end: Callable[[Pipeline, TableId], None], told: str
) -> None:
    """A row moves from an unread chunk into one that is read, and this is not captured."""
    small = {"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 1}
    pipeline = new_pipeline(**{"snapshot.mode": mode}, **small)
    table = three_rows(pipeline, "T")

    def lose(number: int) -> None:
        if number == 1:
            pipeline.unseen(table, f"UPDATE {table} SET ID = -1 WHERE ID = 3")
            end(pipeline, table)

    with after_each("stage_chunks", lose):
        result = pipeline.tick()
    assert result is not None
    [failed] = result.failed
    assert told in failed.error
    assert not pipeline.offsets.get(table)
    manifest = Layout(pipeline.target).internal("manifest")
    assert not table_exists(pipeline.spark, manifest) or load(pipeline.spark, manifest).isEmpty()
    faults.set_state(pipeline.writer, table.schema, table.name, "A")
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
