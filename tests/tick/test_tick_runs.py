"""Runs that die, hang, are cleared or meet a wrong offset: the target equals the source once a later run is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.crash import killed
from support.memory_pipeline import MemoryPipeline
from support.memory_source import MemorySource, lsn

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action

A, B = TableId("S", "A"), TableId("S", "B")


@pytest.fixture
def pipeline() -> MemoryPipeline:
    """Two tables of nine rows, which the target holds."""
    source = MemorySource([A, B])
    source.commit({(table, key): 0 for table in (A, B) for key in range(9)})
    source.capture()
    made = MemoryPipeline(source)
    made.tick()
    return made


def change(pipeline: MemoryPipeline, key: int, value: int | None) -> None:
    """Commit a change of a key in both tables, and capture it."""
    pipeline.source.commit({(A, key): value, (B, key): value})
    pipeline.source.capture()


def check(pipeline: MemoryPipeline) -> None:
    """Do one more tick, and compare target and source. No change may be in the log twice."""
    pipeline.source.capture()
    assert not pipeline.tick().failed
    for table in (A, B):
        assert pipeline.state(table) == pipeline.folded(table) == pipeline.source.rows[table]
        pulled = [(event.commit, event.intent) for _, step, event in pipeline.target.log[table] if step == "changes"]
        assert len({*pulled}) == len(pulled)


def with_recovery(spec: JobSpec) -> JobSpec:
    """Return the plan of a pipeline that repairs losses by snapshots."""
    return replace(spec, settings=replace(spec.settings, snapshot_on_gap=True))


def test_the_second_of_two_runs_at_once_is_refused(pipeline: MemoryPipeline) -> None:
    change(pipeline, 1, 5)
    first = pipeline.plan()
    change(pipeline, 2, 6)
    second, runs = pipeline.plan(), [first]

    def overtake(_: ReachedFailpoint) -> None:
        while runs:
            pipeline.commit(pipeline.run(runs.pop()))

    with failpoint_action("read_history", after=overtake), pytest.raises(ConcurrentRunError, match="another run"):
        pipeline.run(second)
    assert pipeline.state(A)[2] == 0, "the second run wrote"
    check(pipeline)


def test_a_run_that_a_later_plan_has_overtaken_is_refused(pipeline: MemoryPipeline) -> None:
    pipeline.restart(A)
    first = pipeline.plan()
    change(pipeline, 1, 5)
    pipeline.tick()
    before = len(pipeline.target.log[A])
    with pytest.raises(ConcurrentRunError, match="A later run has continued from here"):
        pipeline.run(first)
    assert len(pipeline.target.log[A]) == before
    check(pipeline)


def test_a_cleared_run_of_an_abandoned_batch_moves_no_offset(pipeline: MemoryPipeline) -> None:
    change(pipeline, 1, 5)
    cleared = pipeline.plan()
    with killed("merge_state", "before"):
        pipeline.run(cleared)
    pipeline.restart(A)
    restart = pipeline.plan()
    with killed("await_high_mark", "before"):
        pipeline.run(restart)
    result = pipeline.run(cleared)
    assert [line.table for line in result.failed] == [A]
    assert "given up batch" in result.failed[0].error
    pipeline.commit(result)
    check(pipeline)


def test_a_first_batch_that_died_is_prepared_again_as_a_first_batch(pipeline: MemoryPipeline) -> None:
    change(pipeline, 1, 5)
    pipeline.tick()
    pipeline.offsets.lose(A)
    change(pipeline, 2, 6)
    # The first merge is of the pulled changes of B.
    with killed("merge_state", "before", at=2):
        pipeline.run(with_recovery(pipeline.plan()))
    prepared: dict[TableId, bool] = {}

    def note(reached: ReachedFailpoint) -> None:
        prepared[reached.arguments["task"].table] = reached.arguments["is_begun"]

    with failpoint_action("prepare_table", before=note):
        result = pipeline.run(with_recovery(pipeline.plan()))
    assert prepared[A], "rows that the state has lost would not be restored"
    pipeline.commit(result)
    check(pipeline)


def test_a_table_that_begins_after_a_redo_is_prepared_again(pipeline: MemoryPipeline) -> None:
    """A change that another writer made since the redo would not be mended."""
    change(pipeline, 1, 5)
    with killed("merge_state", "before"):
        pipeline.run(pipeline.plan())
    change(pipeline, 2, 6)
    pipeline.source.prune()
    prepared: list[bool] = []

    def note(reached: ReachedFailpoint) -> None:
        if reached.arguments["task"].table == A:
            prepared.append(reached.arguments["is_begun"])

    with failpoint_action("prepare_table", before=note):
        pipeline.commit(pipeline.run(with_recovery(pipeline.plan())))
    assert prepared == [False, True]
    check(pipeline)


def test_an_offset_ahead_of_the_target_stops_its_table_only(pipeline: MemoryPipeline) -> None:
    change(pipeline, 1, 5)
    spec = pipeline.plan()
    ahead = tuple(replace(task, stored_lsn=lsn(1000)) if task.table == A else task for task in spec.tables)
    result = pipeline.run(replace(spec, tables=ahead))
    [failed] = result.failed
    assert (failed.table, failed.lsn) == (A, None), "an offset that an operator has to correct does not move"
    assert "ahead of the target" in failed.error
    assert pipeline.state(B) == pipeline.source.rows[B] != pipeline.state(A)
    pipeline.commit(result)
    check(pipeline)


def test_a_missing_offset_is_requested_and_a_stale_offset_catches_up(pipeline: MemoryPipeline) -> None:
    stale = pipeline.offsets.all()[B]
    change(pipeline, 1, 5)
    pipeline.tick()
    kept = pipeline.offsets.lose(A)
    pipeline.offsets.put(stale)
    change(pipeline, 2, 6)
    [failed] = pipeline.tick().failed
    assert failed.table == A
    assert f"db2cdc offset restore {A}" in failed.error
    assert pipeline.offsets.get(A) is None
    assert pipeline.state(B) == pipeline.source.rows[B]
    pipeline.offsets.put(Offset(A, kept.lsn, 0))
    check(pipeline)


def test_a_result_says_that_it_counts_batches_of_an_earlier_tick(pipeline: MemoryPipeline) -> None:
    change(pipeline, 1, 5)
    pipeline.run(pipeline.plan())
    change(pipeline, 1, 6)
    found = [[line.has_unreported for line in pipeline.tick().tables] for _ in range(2)]
    assert found == [[True, True], [False, False]]


def test_a_hung_run_writes_nothing_after_a_restart() -> None:
    """Its batch is abandoned: else its changes would follow the rows of the newer snapshot in the change log."""
    table, pipeline = A, MemoryPipeline(MemorySource([A]))
    pipeline.tick()
    pipeline.source.commit({(table, 1): 10})
    pipeline.source.capture()
    times = [1]

    def restart(_: ReachedFailpoint) -> None:
        if times and times.pop():
            pipeline.source.commit({(table, 1): None})
            pipeline.source.capture()
            pipeline.restart(table)
            pipeline.tick()

    with failpoint_action("append_changes", before=restart):
        [failed] = pipeline.run(pipeline.plan()).failed
    assert "given up" in failed.error
    assert pipeline.target.log[table] == []
