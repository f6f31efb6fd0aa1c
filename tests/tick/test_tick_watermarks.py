"""Watermarks in a tick: what capture has to pass before a snapshot begins, and before a group is published."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from threading import Event

import pytest
from support.crash import once
from support.memory_pipeline import MemoryPipeline, filled
from support.request import execute, in_signal_table

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action

A, B = TableId("S", "A"), TableId("S", "B")


def stall(pipeline: MemoryPipeline, table: TableId) -> Callable[[], None]:
    """Return an action that stops capture and then changes a row."""

    def act() -> None:
        pipeline.source.is_stalled = True
        pipeline.source.commit({(table, 1): 5})

    return act


def resume(pipeline: MemoryPipeline) -> None:
    pipeline.source.is_stalled = False


def operations(pipeline: MemoryPipeline, table: TableId, key: int) -> list[str]:
    return [event.op for _, _, event in pipeline.target.log[table] if event.key == (key,)]


def test_high_watermark_is_awaited_before_a_group_is_published() -> None:
    pipeline = filled(A)
    pipeline.passed()

    def arrive(reached: ReachedFailpoint) -> None:
        watermark = reached.arguments["self"].watermark
        if pipeline.source.is_stalled:
            assert watermark.reached(reached.arguments["closed"]) is None, "the read saw what is not captured"
        resume(pipeline)

    with once("catch_up", "after", stall(pipeline, A)), failpoint_action("await_high_mark", before=arrive):
        pipeline.passed(execute("ask", A))
    assert operations(pipeline, A, 1) == ["r", "u"], "a second r would be older than the u"
    pipeline.finish()


@pytest.mark.parametrize("is_captured", [True, False], ids=["captured", "not captured"])
def test_snapshot_requested_during_a_tick_begins_after_the_request(is_captured: bool) -> None:
    """A row is changed, and then loaded, which capture never sees. Only the read knows the loaded value."""
    pipeline = filled(A, B, snapshot_group_chunks=9)
    pipeline.passed()

    def load() -> None:
        pipeline.source.commit({(A, 1): 5, (A, 50): 5})
        if is_captured:
            pipeline.source.capture()
        pipeline.source.load(A, 1, 6)
        pipeline.source.load(A, 50, None)
        pipeline.source.signals.append(in_signal_table(execute("mend", A)))

    with once("settle_table_snapshot", "after", load):
        result = pipeline.passed(execute("ask", B))
    assert [(outcome.id, outcome.status) for outcome in result.signals][-2:] == [("ask", "done"), ("mend", "done")]
    assert pipeline.state(A)[1] == 6
    pipeline.finish()


def test_snapshot_known_to_the_plan_does_not_wait_for_later_commits() -> None:
    pipeline = filled(A, high_mark_timeout_s=0.0)
    pipeline.passed()
    spec = pipeline.plan([execute("ask", A)])
    stall(pipeline, A)()
    with once("catch_up", "after", lambda: resume(pipeline)):
        result = pipeline.run(spec)
    assert not result.failed
    assert result.snapshots[-1].status == "completed"


def test_table_without_changes_gets_no_batch_before_its_read() -> None:
    pipeline = filled(A, B, snapshot_group_chunks=9)
    pipeline.passed()
    pipeline.change(B, 1, 5)
    spec = pipeline.plan([execute("ask", A)])
    pipeline.change(B, 1, 6)
    planned: list[set[TableId]] = []

    def note(reached: ReachedFailpoint) -> None:
        planned.append({batch.table for batch in reached.arguments["batches"]})

    with failpoint_action("plan_batch", before=note):
        pipeline.commit(pipeline.run(spec))
    assert planned == [{A, B}, {A}, {B}], "up to the plan's position, the snapshot, the idle table"


@pytest.mark.parametrize(
    ("is_planned", "error"),
    [
        (True, "capture did not pass the snapshot's read within 0 s"),
        (False, "capture did not pass the time at which the snapshot began within 0 s"),
    ],
    ids=["high watermark", "low watermark"],
)
def test_snapshot_waits_for_stalled_capture_up_to_its_timeout(is_planned: bool, error: str) -> None:
    pipeline = filled(A, high_mark_timeout_s=0.0)
    pipeline.passed()
    if not is_planned:
        stall(pipeline, A)()
    with once("catch_up", "after", stall(pipeline, A)) if is_planned else nullcontext():
        result = pipeline.tick(execute("ask", A))
    [failed] = result.failed
    assert error in failed.error
    assert pipeline.state(A)[1] == 0
    assert [outcome.status for outcome in result.signals] == ["accepted"], "the next tick continues"
    resume(pipeline)
    pipeline.source.capture()
    assert [outcome.status for outcome in pipeline.passed().signals] == ["done"]
    pipeline.finish()


@pytest.mark.parametrize("is_one", [True, False], ids=["a snapshot of two tables", "two snapshots"])
def test_stalled_capture_is_awaited_once_after_the_deadline(is_one: bool) -> None:
    """Of one snapshot capture does not pass the first group's read. Of two it does not pass the first one's start."""
    pipeline = filled(A, B, high_mark_timeout_s=0.0)
    pipeline.passed()
    pipeline.set(snapshot_budget_s=0.0, snapshot_group_chunks=1)
    signals = [execute("both", A, B)] if is_one else [execute("a", A), execute("b", B)]
    if not is_one:
        stall(pipeline, A)()
    with once("catch_up", "after", stall(pipeline, A)) if is_one else nullcontext():
        result = pipeline.tick(*signals)
    assert [failed.table for failed in result.failed] == [A]
    resume(pipeline)
    pipeline.finish()
    outcomes = pipeline.offsets.summary().outcomes
    assert {outcome.id: outcome.status for outcome in outcomes} == {signal.id: "done" for signal in signals}


def test_group_read_ahead_is_not_awaited_after_a_stall_past_the_deadline() -> None:
    """The time of the tick ends while capture is awaited for the first group. The second one is read by then."""
    pipeline, is_read_ahead = filled(A, B, rows=3, snapshot_group_chunks=1, high_mark_timeout_s=0.0), Event()
    pipeline.passed()

    def run_late(reached: ReachedFailpoint) -> None:
        assert is_read_ahead.wait(30)
        reached.arguments["self"].reader.deadline = 0.0

    with (
        once("catch_up", "after", stall(pipeline, A)),
        once("read_group", "after", is_read_ahead.set, at=2),
        failpoint_action("await_high_mark", before=run_late),
    ):
        result = pipeline.tick(execute("both", A, B))
    assert [failed.table for failed in result.failed] == [A]
    resume(pipeline)
    pipeline.finish()
    assert [outcome.status for outcome in pipeline.offsets.summary().outcomes] == ["done"]
