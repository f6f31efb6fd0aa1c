"""Lost changes in a tick: pruned, not captured, or of a source that was restored. No table misses them unseen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.request import execute

from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId

A, B = TableId("S", "A"), TableId("S", "B")


def stop_capture(pipeline: MemoryPipeline) -> None:
    pipeline.source.inactive.add(A)


def start_cold(pipeline: MemoryPipeline) -> None:
    pipeline.source.cold_start = "1"
    pipeline.source.prune()


def register_again(pipeline: MemoryPipeline) -> None:
    pipeline.source.created[A] = "2027"


def move_unseen(pipeline: MemoryPipeline, old: int, new: int) -> None:
    """Move a row by commits that are not captured."""
    pipeline.source.load(A, old, None)
    pipeline.source.load(A, new, 0)


def is_interrupted(pipeline: MemoryPipeline) -> bool:
    offset = pipeline.offsets.get(A)
    return offset is not None and offset.capture_interrupted


def test_changes_pruned_between_plan_and_pull_are_a_gap() -> None:
    pipeline = filled(A, B)
    pipeline.passed()
    pipeline.change(A, 1, 5)
    pruned = pipeline.source.commits
    pipeline.change(A, 2, 5)
    pipeline.change(B, 3, 5)
    spec = pipeline.plan()
    pipeline.source.prune(pruned)
    result = pipeline.run(spec)
    [failed] = result.failed
    assert (failed.table, "pruned before they were read" in failed.error) == (A, True)
    pipeline.commit(result)
    assert "are pruned" in pipeline.failure(A)
    assert pipeline.state(B) == pipeline.source.rows[B]


def test_changes_pruned_while_the_offset_lags_the_target_are_a_gap() -> None:
    """The commit of a tick died. So the plan has counted another range than the one that is pulled."""
    pipeline = filled(A)
    pipeline.passed()
    pipeline.change(A, 1, 5)
    assert not pipeline.run(pipeline.plan()).failed
    pipeline.change(A, 2, 5)
    pruned = pipeline.source.commits
    pipeline.change(A, 3, 5)
    spec = pipeline.plan()
    pipeline.source.prune(pruned)
    [failed] = pipeline.run(spec).failed
    assert "are pruned" in failed.error


def test_only_the_table_whose_changes_cannot_be_counted_fails() -> None:
    pipeline = filled(A, B)
    pipeline.passed()
    for value in (5, 6):
        pipeline.source.commit({(A, 1): value, (B, 1): value})
        pipeline.source.capture()
        spec = pipeline.plan()
        if value == 5:
            assert not pipeline.run(spec).failed, "its commit dies"
    pipeline.source.locked.add(A)
    result = pipeline.run(spec)
    assert [failed.table for failed in result.failed] == [A]
    pipeline.commit(result)
    assert pipeline.state(B) == pipeline.source.rows[B]
    pipeline.source.locked.clear()
    pipeline.finish()


def test_changes_read_before_they_are_pruned_are_no_gap() -> None:
    """The batch is in the change log, and the run died after that."""
    pipeline = filled(A)
    pipeline.passed()
    pipeline.change(A, 1, 5)
    with killed("append_changes", "after"):
        pipeline.run(pipeline.plan())
    pipeline.source.prune()
    pipeline.finish()


def test_planned_changes_pruned_before_a_redo_are_repaired_by_a_snapshot() -> None:
    pipeline = filled(A)
    pipeline.mode = MODES["when_needed"]
    pipeline.passed()
    pipeline.change(A, 1, 5)
    with killed("append_changes", "before"):
        pipeline.run(pipeline.plan())
    pipeline.source.prune()
    pipeline.change(A, 2, None)
    pipeline.passed()
    assert pipeline.state(A) == pipeline.source.rows[A]


def test_changes_pruned_before_their_group_is_published_are_a_gap() -> None:
    pipeline = filled(A)
    pipeline.passed()

    def lose() -> None:
        pipeline.change(A, 1, 5)
        pipeline.source.prune()

    with once("stage_chunks", "after", lose):
        assert "are pruned" in pipeline.failure(A, execute("ask", A))


def test_window_that_cannot_be_counted_fails_the_table() -> None:
    """Otherwise its batch would be applied without a count, and would not notice that its changes are pruned."""
    pipeline = filled(A)
    pipeline.passed()

    def lock() -> None:
        pipeline.change(A, 1, 5)
        pipeline.source.locked.add(A)

    with once("stage_chunks", "after", lock):
        assert "OSError" in pipeline.failure(A, execute("ask", A))
    pipeline.source.locked.clear()
    pipeline.source.prune()
    assert "are pruned" in pipeline.failure(A)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (stop_capture, "registered in state 'S'"),
        (start_cold, "was started cold"),
        (register_again, "was created again at 2027"),
    ],
)
@pytest.mark.parametrize("mode", ["initial", "initial_only"])
def test_capture_that_ends_after_an_initial_read_lets_no_table_begin(
    mode: str, end: Callable[[MemoryPipeline], None], error: str
) -> None:
    """A row moves from a chunk that is not read yet into one that is, and that is not captured."""
    pipeline = filled(A, snapshot_group_chunks=1)
    pipeline.mode = MODES[mode]

    def lose() -> None:
        move_unseen(pipeline, 8, -1)
        end(pipeline)

    with once("stage_chunks", "after", lose):
        assert error in pipeline.failure(A)
    assert pipeline.offsets.get(A) is None
    assert pipeline.target.manifest == []
    pipeline.source.inactive.clear()
    pipeline.finish()


def test_registration_found_inactive_within_a_tick_stops_the_table_later() -> None:
    """It is active again at the next plan, and then looks as if it always was."""
    pipeline = filled(A, snapshot_group_chunks=1)
    pipeline.passed()

    def lose() -> None:
        move_unseen(pipeline, 8, -1)
        stop_capture(pipeline)

    with once("stage_chunks", "after", lose, at=2):
        assert "registered in state 'S'" in pipeline.failure(A, execute("ask", A))
    pipeline.source.inactive.clear()
    assert is_interrupted(pipeline)
    assert "not active for a while" in pipeline.failure(A)
    pipeline.restart(A)
    pipeline.finish()
    assert not is_interrupted(pipeline)


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_registration_found_inactive_by_a_plan_stops_or_repairs_the_table(mode: str) -> None:
    pipeline = filled(A, B)
    pipeline.mode = MODES[mode]
    pipeline.passed()
    stop_capture(pipeline)
    pipeline.source.load(A, 1, None)
    assert "registered in state 'S'" in pipeline.failure(A)
    pipeline.source.inactive.clear()
    pipeline.change(A, 2, 5)
    if mode == "initial":
        assert "not active for a while" in pipeline.failure(A)
        pipeline.restart(A)
    pipeline.finish()
    assert not is_interrupted(pipeline)


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_restored_source_stops_or_repairs_every_table(mode: str) -> None:
    pipeline = filled(A, B)
    pipeline.mode = MODES[mode]
    pipeline.passed()
    pipeline.source.load(A, 1, 5)
    pipeline.restored()
    for _ in range(2 if mode == "initial" else 0):
        result = pipeline.tick()
        assert [failed.table for failed in result.failed] == [A, B]
        assert all("the source was restored or capture reset" in failed.error for failed in result.failed)
    if mode == "initial":
        pipeline.restart(A)
        pipeline.restart(B)
    pipeline.passed()
    pipeline.finish()
    pipeline.change(A, 1, 6)
    pipeline.finish()
