"""Ticks that end at their data intervals: in order, late, and next to snapshots and deaths of runs."""

from __future__ import annotations

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.memory_source import lsn, number
from support.request import execute

from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError

A, B = TableId("S", "A"), TableId("S", "B")


@pytest.fixture
def pipeline() -> MemoryPipeline:
    """Two filled tables, and six commits since then: of A, of B, of A and so on."""
    pipeline = filled(A, B, rows=1, end_at="interval")
    pipeline.passed()
    for value in range(6):
        pipeline.change((A, B)[value % 2], 0, value)
    return pipeline


def pulled(pipeline: MemoryPipeline) -> list[int]:
    """Return the commits of all pulled changes, in the order of their batches."""
    logged = [(batch, number(event.commit)) for log in pipeline.target.log.values() for batch, _, event in log]
    first = min(number(planned.upto) for planned in pipeline.target.planned)
    return sorted({commit for _, commit in sorted(logged) if commit > first})


def stands_at(pipeline: MemoryPipeline) -> list[int]:
    offsets = [pipeline.offsets.get(table) for table in (A, B)]
    return [0 if offset is None else number(offset.lsn) for offset in offsets]


def test_run_carries_the_commits_of_its_interval(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    result = pipeline.passed(end=begin + 3)
    assert (pulled(pipeline), stands_at(pipeline)) == ([begin + 1, begin + 2, begin + 3], [begin + 3] * 2)
    assert result.interval is not None
    assert [number(lsn) for lsn in pipeline.target.manifest][-1] == begin + 3, "all tables are at one commit"
    pipeline.passed(end=begin + 6)
    assert pulled(pipeline) == [*range(begin + 1, begin + 7)]


def test_late_run_finds_its_commits_applied(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    pipeline.passed(end=begin + 5)
    result = pipeline.passed(end=begin + 2)
    assert {line.status for line in result.tables} == {"unchanged"}
    assert (pulled(pipeline), stands_at(pipeline)) == ([*range(begin + 1, begin + 6)], [begin + 5] * 2)


def test_run_without_an_interval_pulls_nothing(pipeline: MemoryPipeline) -> None:
    before = stands_at(pipeline)
    pipeline.passed()
    assert (pulled(pipeline), stands_at(pipeline)) == ([], before)


def test_run_without_an_interval_pulls_what_a_snapshot_needs(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    with once("stage_chunks", "after", lambda: pipeline.change(B, 0, 7)):
        pipeline.passed(execute("ask", A))
    assert [*map(number, {event.commit for _, step, event in pipeline.target.log[B] if step == "changes"})] == []
    assert stands_at(pipeline) == [begin + 7, begin], "the other table is not moved to the snapshot's mark"
    pipeline.passed(end=begin + 4)
    assert stands_at(pipeline) == [begin + 7, begin + 4]


def test_table_at_the_capture_position_is_not_moved_to_a_high_mark(pipeline: MemoryPipeline) -> None:
    """The interval ends at the capture position. What is committed during the snapshot is of the next interval."""
    end = pipeline.source.commits
    with once("stage_chunks", "after", lambda: pipeline.change(B, 0, 7)):
        pipeline.tick(execute("ask", A), end=end)
    assert stands_at(pipeline) == [end + 1, end]


def test_lost_offset_is_recovered_without_later_commits(pipeline: MemoryPipeline) -> None:
    """The plan takes the table for a new one. Only the target knows its position."""
    begin = pipeline.source.commits - 6
    pipeline.mode = MODES["recovery"]
    pipeline.offsets.lose(A)
    pipeline.passed(end=begin + 2)
    assert stands_at(pipeline) == [begin + 2, begin + 2]


def test_gap_is_reported_by_a_run_without_an_interval(pipeline: MemoryPipeline) -> None:
    pipeline.source.prune()
    assert "pruned" in pipeline.tick().failed[0].error


@pytest.mark.parametrize("is_committed", [True, False])
def test_overtaken_run_has_nothing_to_do(
    pipeline: MemoryPipeline, is_committed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = pipeline.source.commits - 6
    early, late = pipeline.plan(end=begin + 2), pipeline.plan(end=begin + 5)
    applied = pipeline.run(late)
    if is_committed:
        pipeline.commit(applied)
    result = pipeline.run(early)
    assert "Run run-3 was planned after this one" in capsys.readouterr().out
    pipeline.commit(result)
    assert {(line.status, line.creates + line.deletes) for line in result.tables} == {("unchanged", 0)}
    if not is_committed:
        pipeline.commit(applied)
    assert (pulled(pipeline), stands_at(pipeline)) == ([*range(begin + 1, begin + 6)], [begin + 5] * 2)


@pytest.mark.parametrize("kind", ["partly applied", "restarted", "signal"])
def test_overtaken_run_with_work_is_refused(pipeline: MemoryPipeline, kind: str) -> None:
    begin = pipeline.source.commits - 6
    if kind == "restarted":
        pipeline.restart(A)
    early = pipeline.plan([execute("ask", A)] if kind == "signal" else [], end=begin + 4)
    pipeline.tick(end=begin + 2 if kind == "partly applied" else begin + 5)
    with pytest.raises(ConcurrentRunError, match="clear all of its tasks"):
        pipeline.run(early)


def test_killed_run_is_finished_by_the_run_of_the_next_interval(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    with killed("merge_state", "before"):
        pipeline.run(pipeline.plan(end=begin + 2))
    pipeline.passed(end=begin + 4)
    assert pulled(pipeline) == [*range(begin + 1, begin + 5)]
    assert lsn(begin + 2) in {planned.upto for planned in pipeline.target.planned}, "its own batch is redone"
