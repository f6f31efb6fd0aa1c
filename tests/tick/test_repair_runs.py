"""Repairs in memory: what a backfill and a replay find and correct, and what they leave as it is."""

from __future__ import annotations

import pytest
from support.crash import killed
from support.memory_maintenance import maintain
from support.memory_pipeline import MemoryPipeline, filled
from support.memory_source import lsn

from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Replay
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, When, failpoint_action

A, B = TableId("S", "A"), TableId("S", "B")
ALL = Backfill(0, 1_000, lsn(1), lsn(1_000))


@pytest.fixture
def pipeline() -> MemoryPipeline:
    """A table with the keys 0 to 8, a snapshot, and a batch for each of the keys 1, 2 and 3."""
    pipeline = filled(A)
    pipeline.finish()
    for key in (1, 2, 3):
        pipeline.change(A, key, 10 * key)
        pipeline.passed()
    return pipeline


def interval(pipeline: MemoryPipeline, commits: int = 3) -> Backfill:
    """Return the interval of the newest commits."""
    last = pipeline.source.commits
    return Backfill(last - commits, last, lsn(last - commits), lsn(last))


def lose(pipeline: MemoryPipeline, key: int) -> None:
    """Remove the newest event of a key from the change log."""
    log = pipeline.target.log[A]
    log.remove([logged for logged in log if logged[2].key == (key,)][-1])


def put(pipeline: MemoryPipeline, key: int, value: int | None, is_own: bool = True) -> None:
    """Write a wrong row into the state, or remove one."""
    row = None if value is None else ((key, value), 0)
    pipeline.target.put_rows(A, {(key,): row}, is_own)


def test_an_equal_interval_is_counted_and_nothing_is_planned(pipeline: MemoryPipeline) -> None:
    batches = len(pipeline.target.planned)
    found = pipeline.repair(interval(pipeline, 2))
    since = pipeline.source.commits - 2
    assert found == {A: Findings(commits=2, events=2, keys=2, comparable_since_ms=since)}
    assert len(pipeline.target.planned) == batches


@pytest.mark.parametrize("value", [7, None])
def test_a_backfill_corrects_the_rows_of_its_interval(pipeline: MemoryPipeline, value: int | None) -> None:
    put(pipeline, 2, value)
    put(pipeline, 5, value)
    offset = pipeline.offsets.get(A)
    assert pipeline.repair(interval(pipeline))[A].rows_corrected == 1
    assert pipeline.state(A)[2] == 20
    assert pipeline.state(A).get(5) == value, "it is not of the interval"
    assert pipeline.offsets.get(A) == offset
    assert pipeline.repair(interval(pipeline))[A].is_equal


def test_a_surplus_row_is_removed(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 3, None)
    pipeline.passed()
    put(pipeline, 3, 30)
    assert pipeline.repair(interval(pipeline, 1))[A].rows_corrected == 1
    assert 3 not in pipeline.state(A)


def test_a_lost_event_is_added_under_the_batch_that_pulled_its_commit(pipeline: MemoryPipeline) -> None:
    log = list(pipeline.target.log[A])
    lose(pipeline, 2)
    found = pipeline.repair(interval(pipeline))[A]
    assert (found.events_added, found.events, found.rows_corrected) == (1, 3, 0)
    assert pipeline.target.log[A] == log, "the same event at its old place"
    assert pipeline.repair(interval(pipeline))[A] == Findings(
        commits=3, events=3, keys=3, comparable_since_ms=found.comparable_since_ms
    )


def test_an_event_that_the_source_lacks_is_reported(pipeline: MemoryPipeline) -> None:
    pipeline.source.changes[A].pop()
    pipeline.source.changes[A].pop()
    found = pipeline.repair(interval(pipeline))[A]
    assert (found.events_only_in_log, found.is_equal) == (1, True)


def test_a_pruned_event_is_not_reported_as_missing_at_the_source(pipeline: MemoryPipeline) -> None:
    pipeline.source.prune(pipeline.source.commits - 1)
    put(pipeline, 1, 7)
    found = pipeline.repair(interval(pipeline))[A]
    assert (found.events_only_in_log, found.events, found.rows_corrected) == (0, 3, 1)
    assert found.comparable_since_ms == pipeline.source.commits - 1


def test_a_doubled_event_is_reported_and_stays(pipeline: MemoryPipeline) -> None:
    pipeline.target.log[A].append(pipeline.target.log[A][-1])
    found = pipeline.repair(interval(pipeline))[A]
    assert (found.events_doubled, found.events, found.is_equal) == (1, 3, True)


def test_commits_of_the_snapshot_are_not_compared(pipeline: MemoryPipeline) -> None:
    found = pipeline.repair(ALL)[A]
    assert (found.events_added, found.events) == (0, 3)
    assert found.keys == 9, "a snapshot's rows of the interval are compared with the state"


def test_commits_that_are_not_applied_are_not_compared(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 4, 40)
    found = pipeline.repair(interval(pipeline, 2))[A]
    assert (found.events_added, found.commits, found.rows_corrected) == (0, 1, 0)


def test_the_interval_goes_by_time_where_its_commits_are_unknown(pipeline: MemoryPipeline) -> None:
    lose(pipeline, 3)
    last = pipeline.source.commits
    found = pipeline.repair(Backfill(last - 2, last - 1))[A]
    assert (found.commits, found.events_added) == (1, 0)
    assert pipeline.repair(Backfill(last - 1, last))[A].events_added == 1


def test_a_replay_corrects_every_row(pipeline: MemoryPipeline) -> None:
    for key, value in ((2, 7), (5, None), (99, 1)):
        put(pipeline, key, value)
    assert pipeline.repair(Replay(), is_dry_run=True)[A].rows_corrected == 3
    assert pipeline.state(A) != pipeline.source.rows[A], "a dry run writes nothing"
    assert pipeline.repair(Replay())[A].rows_corrected == 3
    assert pipeline.state(A) == pipeline.source.rows[A]
    assert pipeline.repair(Replay())[A].is_equal


def test_a_backfill_does_not_hide_another_writer(pipeline: MemoryPipeline) -> None:
    put(pipeline, 2, 7, is_own=False)
    found = pipeline.repair(interval(pipeline))[A]
    assert (found.is_foreign, found.rows_corrected) == (True, 1)
    pipeline.change(A, 4, 40)
    assert "somebody else" in pipeline.failure(A)


@pytest.mark.parametrize("value", [7, 20])
def test_a_replay_ends_the_refusal_after_another_writer(pipeline: MemoryPipeline, value: int) -> None:
    """Also where the other writer has changed nothing in the end."""
    put(pipeline, 2, value, is_own=False)
    assert pipeline.repair(Replay())[A].is_foreign
    pipeline.change(A, 4, 40)
    pipeline.passed()
    assert pipeline.state(A) == pipeline.source.rows[A]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", ["plan_batch", "append_changes", "merge_state", "commit_batch"])
@pytest.mark.parametrize("by", ["retry", "tick"])
def test_a_repair_that_died_is_finished(pipeline: MemoryPipeline, point: Failpoint, when: When, by: str) -> None:
    lose(pipeline, 2)
    put(pipeline, 3, 7)
    spec = pipeline.plan_repair(interval(pipeline))
    with killed(point, when):
        pipeline.run(spec)
    if by == "tick" and (point, when) != ("plan_batch", "before"):
        pipeline.change(A, 4, 40)
        result = pipeline.passed()
        assert (result.tables[0].updates, result.tables[0].lsn) == (1, lsn(pipeline.source.commits))
    [line] = pipeline.run(spec).tables
    assert line.repair is not None
    assert (line.status, line.lsn) == ("applied", None)
    assert (line.repair.events_added, line.repair.rows_corrected) == (1, 1), "what the first try found"
    assert pipeline.state(A) == pipeline.folded(A) == pipeline.source.rows[A]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_tick_after_a_repair_reports_nothing_of_it(pipeline: MemoryPipeline, is_killed: bool) -> None:
    """Also if it finishes the repair, which reports for itself."""
    put(pipeline, 3, 7)
    spec = pipeline.plan_repair(interval(pipeline))
    if is_killed:
        with killed("plan_batch", "after"):
            pipeline.run(spec)
    else:
        pipeline.run(spec)
    [line] = pipeline.passed().tables
    assert (line.status, line.after) == ("unchanged", None)
    assert pipeline.state(A) == pipeline.source.rows[A]


def test_a_tick_that_was_planned_before_a_repair_is_not_refused(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 4, 40)
    spec = pipeline.plan()
    put(pipeline, 3, 7)
    pipeline.repair(interval(pipeline))
    result = pipeline.run(spec)
    assert not result.failed
    assert [(line.updates, line.status) for line in result.tables] == [(1, "applied")]
    pipeline.commit(result)
    assert pipeline.state(A) == pipeline.source.rows[A]


def test_an_older_tick_finishes_a_repair_that_died(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 4, 40)
    older = pipeline.plan()
    put(pipeline, 3, 7)
    with killed("plan_batch", "after"):
        pipeline.run(pipeline.plan_repair(interval(pipeline)))
    pipeline.commit(pipeline.run(older))
    assert pipeline.state(A) == pipeline.source.rows[A]


def test_a_repair_that_was_planned_before_a_tick_is_not_refused(pipeline: MemoryPipeline) -> None:
    spec = pipeline.plan_repair(interval(pipeline))
    pipeline.change(A, 4, 40)
    pipeline.passed()
    put(pipeline, 3, 7)
    [line] = pipeline.run(spec).tables
    assert line.repair is not None
    assert line.repair.rows_corrected == 1
    pipeline.change(A, 4, 41)
    pipeline.passed()
    assert pipeline.state(A) == pipeline.source.rows[A]


def test_a_repair_does_not_finish_the_batch_of_a_later_plan(pipeline: MemoryPipeline) -> None:
    spec = pipeline.plan_repair(interval(pipeline))
    pipeline.change(A, 4, 40)
    with killed("append_changes", "before"):
        pipeline.tick()
    [failed] = pipeline.run(spec).failed
    assert "is not finished" in failed.error
    pipeline.passed()
    assert pipeline.state(A) == pipeline.source.rows[A]


def test_a_dry_run_finishes_no_batch(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 4, 40)
    with killed("append_changes", "before"):
        pipeline.tick()
    [failed] = pipeline.run(pipeline.plan_repair(Replay(), is_dry_run=True)).failed
    assert "is not finished" in failed.error
    assert pipeline.state(A)[4] == 0


def test_a_dry_run_does_not_blame_the_work_of_another_run(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 4, 40)
    turns = [1]

    def overtake(_: object) -> None:
        if turns and turns.pop():
            put(pipeline, 2, 7)
            pipeline.tick()

    spec = pipeline.plan_repair(Replay(), is_dry_run=True)
    with failpoint_action("read_journal", before=overtake), pytest.raises(ConcurrentRunError):
        pipeline.run(spec)


def test_a_table_whose_snapshot_is_under_way_is_left_to_it() -> None:
    pipeline = filled(A, snapshot_budget_s=0.0)
    pipeline.tick()
    found = pipeline.repair(ALL)[A]
    assert "under way" in found.note
    assert pipeline.finish()


def test_a_table_that_the_target_does_not_hold_is_named() -> None:
    assert "holds nothing" in filled(A).repair(ALL)[A].note


def test_a_restart_restores_what_an_unfinished_repair_has_added(pipeline: MemoryPipeline) -> None:
    """The repair has added row 9 to the log only. The source has deleted it since: only the snapshot can say so."""
    pipeline.change(A, 9, 90)
    pipeline.passed()
    lose(pipeline, 9)
    put(pipeline, 9, None)
    spec = pipeline.plan_repair(interval(pipeline))
    with killed("append_changes", "after"):
        pipeline.run(spec)
    pipeline.source.load(A, 9, None)
    pipeline.source.capture()
    pipeline.restart(A)
    pipeline.finish()


def test_a_replay_of_a_trimmed_log_is_refused(pipeline: MemoryPipeline) -> None:
    maintain(pipeline.target, pipeline.journal, 0, pipeline.target.planned[-1].planned_at_ms)
    [failed] = pipeline.run(pipeline.plan_repair(Replay())).failed
    assert "trimmed" in failed.error
    assert "Heal the table" in failed.error


def test_keys_of_trimmed_events_stay_as_they_are(pipeline: MemoryPipeline) -> None:
    maintain(pipeline.target, pipeline.journal, 0, pipeline.target.planned[-1].planned_at_ms)
    put(pipeline, 3, 7)
    found = pipeline.repair(interval(pipeline))[A]
    assert (found.events, found.rows_corrected) == (1, 1)
    assert "trimmed" in found.note
    assert pipeline.state(A) == pipeline.source.rows[A]
