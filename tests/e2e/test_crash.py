"""The process is killed at each step. After the next run each change is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from pyspark.sql import functions as F
from support.crash import killed
from support.filled import changed, filled
from support.history import HistoryOptions, random_history
from support.log import captured_events, logged_events, reads, tombstones
from support.pipeline import Pipeline, Replay
from support.writing import in_window

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.failpoint import Action, Failpoint, ReachedFailpoint, When, failpoint_action
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

SNAPSHOT_STEPS: list[Failpoint] = ["stage_rows", "plan_batch", "append_changes", "fill_state", "commit_batch"]
CHANGE_STEPS: list[Failpoint] = [
    "plan_batch", "append_changes", "merge_state", "commit_batch", "publish_manifest", "put_offsets",
]  # fmt: skip
TWO_GROUPS = {"incremental.snapshot.chunk.size": 30, "snapshot.group.chunks": 1}
"""Of 50 rows. What the first group has published is of no use to a run that does not know of the second."""


def dies_at_each(pipeline: Pipeline, steps: Sequence[Failpoint], between: Callable[[int], object]) -> None:
    """Let one run after the other die, each one step later than the run before. Then a run completes.

    The first run dies before the first step. Every other run dies after a step. Each second run repeats the plan of the
    run before, as a retry in Airflow does. `between` is called before each new plan.
    """
    deaths: list[tuple[Failpoint, When]] = [(steps[0], "before"), *((step, "after") for step in steps)]
    spec = None
    for number, (step, when) in enumerate(deaths):
        if number % 2 == 0:
            between(number)
            pipeline.captured()
            spec = pipeline.plan()
        assert spec is not None, (step, when)
        with killed(step, when):
            pipeline.commit(job.run(spec))
    pipeline.captured()
    pipeline.to_its_end()


def test_changes_survive_a_kill_at_each_step(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    history = random_history(7, HistoryOptions(transactions=60, lanes=1, width=10, rollback_rate=0))
    replay = Replay(pipeline, history)
    replay.prepare()
    pipeline.captured()
    [first] = pipeline.passed().tables
    assert first.lsn is not None
    table, shape = first.table, history.tables[0]

    dies_at_each(pipeline, CHANGE_STEPS, lambda _: replay.play(8))

    assert pipeline.rows(table) == replay.expected(shape.name)
    logged = logged_events(pipeline, table)
    assert logged == captured_events(pipeline, table, shape.key, first.lsn)
    deleted = Counter((str(event.commit), event.key) for event in logged if event.op == "d")
    assert tombstones(pipeline, table) == deleted


def test_a_snapshot_survives_a_kill_at_each_step(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    pipeline = new_pipeline(**TWO_GROUPS)
    table = filled(pipeline, 50)

    def change(number: int) -> None:
        changed(pipeline, f"UPDATE {table} SET ID = ID + 100, A = 'b' WHERE ID = {number}")
        changed(pipeline, f"DELETE FROM {table} WHERE ID = {30 + number}")

    with in_window(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID IN (4, 40)"):
        dies_at_each(pipeline, SNAPSHOT_STEPS, change)

    assert pipeline.rows(table) == pipeline.source_rows(table)
    times_read = reads(pipeline, table)
    assert set(times_read.values()) <= {1, 2}
    assert sum(times == 2 for times in times_read.values()) <= 30, "only one group is read again"
    planned = load(pipeline.spark, Layout(pipeline.target).internal("batches"))
    # From the first batch that was planned on, every change is in the log.
    start = Lsn.parse(planned.agg(F.min("after_lsn")).collect()[0][0])
    assert logged_events(pipeline, table) == captured_events(pipeline, table, ("ID",), start)


@pytest.mark.long
def test_a_restart_continues_after_any_death_or_failure(
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

    steps: list[tuple[Failpoint, int]] = [("append_changes", 1), ("commit_batch", 1), ("commit_batch", 2)]
    for step, number in steps:
        spec = restart()
        with in_window(pipeline, update), killed(step, "after", number):
            job.run(spec)
        pipeline.commit(result := job.run(spec))
        assert result.snapshots[-1].status == "completed", step
        assert result.tables[0].commit_ts_ms is not None, (
            "its last batch, which had no change, has the time of the newest one"
        )

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
def test_a_new_table_continues_if_its_first_ticks_die_after_batches(
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
