"""A snapshot that stands still: some of its tables were stopped, capture does not come, a table cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from threading import Event

import pytest
from support.filled import ask, changed, filled
from support.log import check_log, reads
from support.pipeline import Pipeline
from support.writing import behind

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import faults

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def stop(*tables: TableId) -> Signal:
    data = {"data-collections": [str(table) for table in tables]}
    return Signal(f"stop {tables[0].name}", "stop-snapshot", json.dumps(data), "airflow")


def test_tables_that_are_stopped_by_name_end_alone_be_they_begun_or_waiting(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    begun, waiting, other = (filled(pipeline, 9, name) for name in ("T1", "T2", "T3"))
    pipeline.passed()
    pipeline.properties = {
        "incremental.snapshot.chunk.size": 3, "snapshot.group.chunks": 1, "snapshot.budget.s": 0,
    }  # fmt: skip
    whole = rf"{begun.schema}\.T\d"
    first = pipeline.passed(Signal("ask", "execute-snapshot", json.dumps({"data-collections": [whole]}), "airflow"))
    assert [(part.table, part.published_chunks) for part in first.snapshots[-1].tables] == [
        (begun, 1),
        (waiting, 0),
        (other, 0),
    ]
    second = pipeline.passed(stop(begun))
    assert {part.table: part.status for part in second.snapshots[-1].tables}[begun] == "stopped"
    pipeline.passed(stop(waiting))
    while (result := pipeline.passed()).snapshots[-1].status == "running":
        pass
    why = "stopped by a signal"
    ended = {one.id: (one.status, one.reason) for one in result.signals}
    assert ended["ask"] == ("done", f"stopped: {begun} ({why}); stopped: {waiting} ({why})")
    assert {part.table: part.status for part in result.snapshots[-1].tables} == {
        begun: "stopped", waiting: "stopped", other: "completed",
    }  # fmt: skip
    assert set(reads(pipeline, other).values()) == {2}
    assert sorted(reads(pipeline, begun).values()) == [1] * 6 + [2] * 3, "what was published stays"
    assert pipeline.tick(ask(begun, "again")) is not None, "it may be asked for again"


@pytest.mark.parametrize(
    ("is_planned", "what"),
    [
        (True, "capture did not pass the snapshot's read within 1 s"),
        pytest.param(
            False, "capture did not pass the moment that the snapshot begins behind within 1 s", marks=pytest.mark.long
        ),
    ],
    ids=["high mark", "low mark"],
)
def test_a_snapshot_does_not_wait_for_ever_for_a_capture_that_stands_still(
    new_pipeline: Callable[..., Pipeline], is_planned: bool, what: str
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    pipeline.passed()
    pipeline.properties = {"high.mark.timeout.s": 1}
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")

    def stand_still(_: int = 0) -> None:
        faults.pause(pipeline.writer)
        pipeline.execute(f"UPDATE {table} SET A = 'c' WHERE ID = 2")
        pipeline.writer.commit()

    try:
        if not is_planned:
            stand_still()
        with behind("catch_up", stand_still) if is_planned else nullcontext():
            result = pipeline.tick(ask(table))
        assert result is not None
        [line] = result.failed
        assert what in line.error
        assert (2, "c") not in pipeline.rows(table)
        assert [one.status for one in result.signals] == ["accepted"], "the next tick goes on with it"
    finally:
        faults.resume(pipeline.writer)
    pipeline.captured()
    pipeline.properties = {}
    assert pipeline.passed().signals[-1].status == "done"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


SLOW = {"incremental.snapshot.chunk.size": 4, "snapshot.group.chunks": 1, "snapshot.budget.s": 0}
"""A tick does one group."""


@pytest.mark.long
def test_a_table_that_is_taken_out_within_its_initial_snapshot_keeps_nobody_else_waiting(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(**SLOW)
    first, later = filled(pipeline, 9, "T1"), filled(pipeline, 9, "T2")
    pipeline.properties = {**SLOW, "table.include.list": str(first)}
    assert pipeline.passed().snapshots[-1].done == 1
    pipeline.properties = {**SLOW, "table.include.list": str(later)}
    for _ in range(3):
        pipeline.passed()
    assert pipeline.rows(later) == pipeline.source_rows(later)
    pipeline.passed(ask(later))
    for _ in range(2):
        result = pipeline.passed()
    assert [(one.id, one.status) for one in result.signals] == [("ask", "done")]
    pipeline.properties = SLOW
    pipeline.to_its_end()
    assert pipeline.rows(first) == pipeline.source_rows(first)


@pytest.mark.parametrize(
    "step",
    ["stage_chunks", pytest.param("check_counts", marks=pytest.mark.long)],
    ids=["read", "published"],
)
def test_a_table_that_fails_keeps_no_other_of_its_initial_snapshot_waiting(
    new_pipeline: Callable[..., Pipeline], step: Failpoint
) -> None:
    pipeline = new_pipeline(**SLOW)
    broken, other = filled(pipeline, 9, "T1"), filled(pipeline, 9, "T2")

    def fail(reached: ReachedFailpoint) -> None:
        if reached.arguments["part"].table == broken:
            raise OSError("the statement was killed")

    with failpoint_action(step, before=fail):
        for _ in range(3):
            result = pipeline.tick()
            assert result is not None
            assert [line.table for line in result.failed] == [broken]
            pipeline.captured()
    assert pipeline.rows(other) == pipeline.source_rows(other)
    pipeline.to_its_end()
    assert pipeline.rows(broken) == pipeline.source_rows(broken)


@pytest.mark.long
@pytest.mark.parametrize("is_one", [True, False], ids=["a snapshot of two tables", "two snapshots"])
def test_behind_the_ticks_time_a_capture_that_stands_still_is_not_waited_for_once_more(
    new_pipeline: Callable[..., Pipeline], is_one: bool
) -> None:
    """Of one snapshot it is the first group's read that capture does not pass, of two the first one's beginning."""
    pipeline = new_pipeline()
    tables = [filled(pipeline, 5, name) for name in ("T1", "T2")]
    pipeline.passed()
    pipeline.properties = {**SLOW, "high.mark.timeout.s": 1}
    both = Signal("both", "execute-snapshot", json.dumps({"data-collections": [*map(str, tables)]}), "airflow")
    signals = [both] if is_one else [ask(table, table.name) for table in tables]

    def stand_still(_: int = 0) -> None:
        faults.pause(pipeline.writer)
        pipeline.execute(f"UPDATE {tables[0]} SET A = 'b' WHERE ID = 1")
        pipeline.writer.commit()

    try:
        if not is_one:
            stand_still()
        with behind("catch_up", stand_still) if is_one else nullcontext():
            result = pipeline.tick(*signals)
        assert result is not None
        assert [line.table for line in result.failed] == tables[:1]
    finally:
        faults.resume(pipeline.writer)
    pipeline.captured()
    pipeline.properties = SLOW
    pipeline.to_its_end()
    kept = pipeline.offsets.summary().outcomes
    assert {one.id: one.status for one in kept} == {one.id: "done" for one in signals}


@pytest.mark.long
def test_what_was_read_ahead_is_not_waited_for_behind_the_ticks_time_once_capture_stands_still(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(**{"snapshot.group.chunks": 1, "high.mark.timeout.s": 5})
    tables = [filled(pipeline, 5, name) for name in ("T1", "T2")]
    pipeline.passed()
    both = Signal("both", "execute-snapshot", json.dumps({"data-collections": [*map(str, tables)]}), "airflow")
    is_read_ahead = Event()

    def run_late(reached: ReachedFailpoint) -> None:
        """Have the tick's time be over while capture is waited for, when the second group is read already."""
        assert is_read_ahead.wait(120)
        reached.arguments["self"].reader.deadline = 0.0

    def stand_still(_: int) -> None:
        faults.pause(pipeline.writer)
        pipeline.execute(f"UPDATE {tables[0]} SET A = 'b' WHERE ID = 1")
        pipeline.writer.commit()

    try:
        with (
            behind("catch_up", stand_still),
            behind("read_group", lambda group: is_read_ahead.set() if group == 2 else None),
            failpoint_action("await_high_mark", before=run_late),
        ):
            result = pipeline.tick(both)
        assert result is not None
        assert [line.table for line in result.failed] == tables[:1]
    finally:
        faults.resume(pipeline.writer)
    pipeline.captured()
    pipeline.to_its_end()
    assert [one.status for one in pipeline.offsets.summary().outcomes] == ["done"]
