"""The process is killed at each step of the way; whoever comes next leaves each change there once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from pyspark.sql import functions as F
from support.crash import killed
from support.filled import ask, filled
from support.history import HistoryOptions, random_history
from support.log import captured_events, check_log, logged_events, reads, tombstones
from support.pipeline import DERBY_FAULT, Pipeline, Replay
from support.writing import in_window

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Action, Failpoint, ReachedFailpoint, When, failpoint_action
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load, newest_version, set_properties

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

SNAPSHOT_STEPS = [
    "stage_rows",
    "plan_batch",
    "append_changes",
    "fill_state",
    "commit_batch",
]
CHANGE_STEPS = [
    "plan_batch",
    "append_changes",
    "merge_state",
    "commit_batch",
    "publish_manifest",
    "put_offset",
]

TWO_GROUPS = {"incremental.snapshot.chunk.size": 30, "snapshot.group.chunks": 1}
"""Of 50 rows: what the first group has published is of no use to whoever does not know that there is a second."""


def deaths(steps: Sequence[Failpoint]) -> list[tuple[Failpoint, When]]:
    """Return before the first step and after each: dead before a step is dead after the one that comes before it."""
    return [(steps[0], "before"), *((step, "after") for step in steps)]


def test_changes_survive_a_kill_at_each_step(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    history = random_history(7, HistoryOptions(transactions=150, lanes=1, width=10, rollback_rate=0))
    replay = Replay(pipeline, history)
    replay.prepare()
    pipeline.captured()
    first = pipeline.tick()
    assert first is not None
    start = first.tables[0].lsn
    assert start is not None
    table, shape = first.tables[0].table, history.tables[0]

    for number, (step, when) in enumerate(deaths(CHANGE_STEPS)):
        replay.play(8)
        pipeline.captured()
        spec = pipeline.plan()
        assert spec is not None
        with killed(step, when):
            pipeline.commit(job.run(spec))
        if number % 3:  # as Airflow retries the task; else a later run comes with a plan of its own
            pipeline.commit(job.run(spec))
        else:
            replay.play(4)
            pipeline.captured()
            pipeline.tick()
        assert pipeline.rows(table) == replay.expected(shape.name), (step, when)

    pipeline.captured()
    pipeline.tick()
    logged = logged_events(pipeline, table)
    assert logged == captured_events(pipeline, table, shape.key, start)
    deleted = Counter((str(event.commit), event.key) for event in logged if event.op == "d")
    assert tombstones(pipeline, table) == deleted


def test_a_snapshot_survives_a_kill_at_each_step(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    pipeline = new_pipeline()
    tables: list[TableId] = []
    for number, (step, when) in enumerate(deaths(SNAPSHOT_STEPS)):
        name = f"T{number}"
        pipeline.properties = TWO_GROUPS if step == "plan_batch" else {}
        ddl = f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))'
        table = pipeline.create(ddl, name)
        pipeline.many(f'INSERT INTO "{pipeline.schema}"."{name}" VALUES (?, ?)', [(at * 2, "a") for at in range(50)])
        pipeline.captured()
        spec = pipeline.plan()
        assert spec is not None
        # The ledger's first step in a tick is of the tables that are there already.
        dies = killed(step, when, at=2 if step in ("plan_batch", "commit_batch") else 1)
        with in_window(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID IN (4, 40)"), dies:
            pipeline.commit(job.run(spec))
        pipeline.execute(f'UPDATE "{pipeline.schema}"."{name}" SET ID = ID + 1, A = \'b\' WHERE ID < 20')
        pipeline.execute(f'DELETE FROM "{pipeline.schema}"."{name}" WHERE ID = 30')
        pipeline.writer.commit()
        pipeline.captured()
        if number % 2:
            retried = job.run(spec)
            assert [line.error for line in retried.failed if DERBY_FAULT not in line.error] == [], (step, when)
            pipeline.commit(retried)
            pipeline.captured()
        result = pipeline.tick()
        assert result is None or not result.failed, (step, when)
        assert pipeline.rows(table) == pipeline.source_rows(table), (step, when)
        assert set(reads(pipeline, table).values()) == {1}
        tables.append(table)

    planned = load(pipeline.spark, Layout(pipeline.target).internal("batches"))
    for table in tables:
        # Behind the first batch that was planned of it everything is in the log.
        own = planned.where((F.col("schema") == table.schema) & (F.col("table") == table.name))
        start = Lsn.parse(own.agg(F.min("after_lsn")).collect()[0][0])
        assert logged_events(pipeline, table) == captured_events(pipeline, table, ("ID",), start)


@pytest.mark.long
def test_a_restart_is_gone_on_with_whatever_died_or_failed(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(**{**TWO_GROUPS, "incremental.snapshot.chunk.size": 20})
    table = pipeline.create(f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))", "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at, "a") for at in range(50)])
    pipeline.captured()
    pipeline.passed()

    def restart() -> JobSpec:
        pipeline.restart(table)
        spec = pipeline.plan()
        assert spec is not None
        return spec

    update = f"UPDATE {table} SET A = A || '.' WHERE ID < 2"

    for step, number in (("append_changes", 1), ("commit_batch", 1), ("commit_batch", 2)):
        spec = restart()
        with in_window(pipeline, update), killed(step, "after", number):
            job.run(spec)
        pipeline.commit(result := job.run(spec))
        assert result.snapshots[-1].status == "completed", step
        assert result.tables[0].commit_ts_ms is not None, "its last batch, which had no change, tells the newest one"

    spec = restart()
    with failpoint_action("stage_rows", before=fails_from_third()), in_window(pipeline, update):
        pipeline.commit(result := job.run(spec))
    assert result.failed[0].error.startswith("OSError")
    assert result.snapshots[-1].done in (1, 2), "the first group is published before the third is read"
    pipeline.captured()
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert set(logged_events(pipeline, table).values()) == {1}, "a change of the window went out twice"
    start = result.tables[0].after
    assert start is not None
    assert captured_events(pipeline, table, ("ID",), start).keys() <= logged_events(pipeline, table).keys()


def fails_from_third() -> Action:
    """Return what has a step fail from its third call on."""
    calls = count(1)

    def fail(_: ReachedFailpoint) -> None:
        if next(calls) > 2:
            raise OSError("the disk is away")

    return fail


@pytest.mark.long
@pytest.mark.parametrize("dies_again", [False, True], ids=["once", "twice"])
def test_a_new_table_whose_first_ticks_die_behind_several_batches_goes_on(
    new_pipeline: Callable[..., Pipeline], dies_again: bool
) -> None:
    pipeline = new_pipeline(**TWO_GROUPS)
    table = pipeline.create(f'CREATE TABLE "{pipeline.schema}"."T" (ID INTEGER NOT NULL PRIMARY KEY, A INTEGER)', "T")
    pipeline.many(f'INSERT INTO "{pipeline.schema}"."T" VALUES (?, ?)', [(at, at) for at in range(50)])
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    with killed("write_journal", "before", 2):
        job.run(spec)
    pipeline.execute(f'UPDATE "{pipeline.schema}"."T" SET A = A + 1 WHERE ID < 5')
    pipeline.writer.commit()
    pipeline.captured()
    if dies_again:
        second = pipeline.plan()
        assert second is not None
        with killed("commit_batch", "after"):
            job.run(second)
    assert pipeline.offsets.get(table) is None
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    found = reads(pipeline, table)
    assert (len(found), set(found.values())) == (50, {1})


@pytest.mark.long
def test_what_was_staged_is_found_again_however_long_its_run_is_dead(new_pipeline: Callable[..., Pipeline]) -> None:
    """Delta gives out no version that is older than its deleted files are kept, though the files are there."""
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 4, "snapshot.group.chunks": 1})
    table = filled(pipeline, 9)
    pipeline.passed()
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 1")
    spec = pipeline.plan(signals=[ask(table)])
    assert spec is not None
    with killed("append_changes", "before"):
        job.run(spec)
    staging = Layout(pipeline.target).staging(table)
    assert newest_version(pipeline.spark, staging) > 1, "the next group was read meanwhile"
    set_properties(pipeline.spark, staging, {"delta.deletedFileRetentionDuration": "interval 1 second"})
    time.sleep(1.5)
    pipeline.passed(ask(table))
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
