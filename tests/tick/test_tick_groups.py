"""Chunk groups in a tick: what is read together, what is published together, and what happens between two reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Condition, Event

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.pieces import in_pieces
from support.request import execute, in_signal_table

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot import chunk_sizing
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action

A, B = TableId("S", "A"), TableId("S", "B")
WAIT_S = 30


def in_chunks_of_one(*tables: TableId, rows: int = 9, group_chunks: int | None = None) -> MemoryPipeline:
    """Return a pipeline whose tables have one row in each chunk."""
    pipeline = filled(*tables, rows=rows, snapshot_group_chunks=group_chunks)
    pipeline.source.chunk_rows = 1
    return pipeline


@contextmanager
def reads_before_publications() -> Iterator[None]:
    """Let each group be published once the read that runs at the same time has ended."""
    read, published, changed = [0], [0], Condition()

    def note(_: ReachedFailpoint) -> None:
        with changed:
            read[0] += 1
            changed.notify_all()

    def wait(_: ReachedFailpoint) -> None:
        with changed:
            published[0] += 1
            assert changed.wait_for(lambda: read[0] > published[0], WAIT_S)

    with failpoint_action("read_group", after=note), failpoint_action("publish_group", before=wait):
        yield


@contextmanager
def spans_read(spans: list[ChunkSpan]) -> Iterator[None]:
    """Collect the spans of chunks that are read."""
    with failpoint_action("stage_chunks", before=lambda reached: spans.append(reached.arguments["span"])):
        yield


@contextmanager
def second_group_in_two_pieces(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each group have three chunks, except the second one, which continues with three more."""
    in_pieces(patch, 3, 1)
    pieces = count(1)

    def set_pace(_: ReachedFailpoint) -> None:
        patch.setattr(chunk_sizing, "GROUP_S", 3600.0 if next(pieces) == 2 else 0.0)

    with failpoint_action("stage_chunks", before=set_pace):
        yield


def chunks(span: ChunkSpan) -> range:
    return range(span.first, span.last + 1)


def batches_with_reads(pipeline: MemoryPipeline, table: TableId) -> list[int]:
    return sorted({batch for batch, step, _ in pipeline.target.log.get(table, ()) if step == "reads"})


def published_chunks(pipeline: MemoryPipeline) -> int:
    ranges = [applied.chunk_range for applied in pipeline.target.applied]
    return sum(len(chunk_range.counts) for chunk_range in ranges if chunk_range is not None)


def test_read_during_a_publication_leaves_slots_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads in pieces: of the two slots one is free, and a piece has one chunk for each free slot."""
    monkeypatch.setattr(chunk_sizing, "PIECE_S", 0.0)
    pipeline, spans, readers = in_chunks_of_one(A, group_chunks=3), list[ChunkSpan](), list[int]()
    pipeline.set(parallel_reads=8)

    def note(reached: ReachedFailpoint) -> None:
        readers.append(reached.arguments["readers"])

    with spans_read(spans), failpoint_action("stage_chunks", before=note), reads_before_publications():
        pipeline.passed()
    assert [*map(chunks, spans)] == [range(3), *(range(at, at + 1) for at in range(3, 9))]
    assert readers == [8, 1, 1, 1, 1, 1, 1]
    pipeline.finish()


def test_group_read_during_a_publication_has_the_size_of_a_first_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chunks seem to fit into the time of a group. Then its time is over: two are read, as in a first group."""
    in_pieces(monkeypatch, 2, 8)
    monkeypatch.setattr(chunk_sizing, "PIECE_S", 0.0)
    pipeline, groups, begun = in_chunks_of_one(A), list[list[int]](), list[float]()

    def note(reached: ReachedFailpoint) -> None:
        if not reached.arguments["chunk_range"].counts:
            groups.append([])
        groups[-1] += chunks(reached.arguments["span"])
        begun.append(time.monotonic())
        monkeypatch.setattr(chunk_sizing, "GROUP_S", 0.0)
        if len(groups) == 1:
            time.sleep(0.2)

    def set_pace(_: ReachedFailpoint) -> None:
        if len(groups) == 1:
            monkeypatch.setattr(chunk_sizing, "GROUP_S", 1.8 * (time.monotonic() - begun[0]))

    with failpoint_action("stage_chunks", before=note, after=set_pace), reads_before_publications():
        pipeline.passed()
    assert groups == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_rows_are_dropped_once_their_group_is_published() -> None:
    """Executors would keep the rows of all groups until the end of the tick."""
    pipeline, staged = in_chunks_of_one(A, group_chunks=3), list[int]()

    def note(reached: ReachedFailpoint) -> None:
        staged.append(len(reached.arguments["self"].staged))

    with failpoint_action("stage_chunks", before=note), reads_before_publications():
        pipeline.passed()
    assert staged == [0, 1, 1], "a group is read while the one before it is published"
    pipeline.finish()


def test_chunk_bounds_survive_a_death_during_the_first_read() -> None:
    """To find the bounds of a large table may take as long as a run has."""
    pipeline, found = filled(A), list[ReachedFailpoint]()
    with killed("stage_chunks", "before"):
        pipeline.run(pipeline.plan())
    with failpoint_action("find_chunk_bounds", before=found.append):
        pipeline.passed()
    assert found == []
    pipeline.finish()


def test_second_piece_that_fails_excludes_only_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces(monkeypatch, 3, 8)
    pipeline, seen = in_chunks_of_one(A, B, rows=2), list[TableId]()
    pipeline.source.commit({(A, key): 0 for key in range(2, 9)})

    def fail_second(reached: ReachedFailpoint) -> None:
        seen.append(table := reached.arguments["task"].table)
        if seen.count(A) == 2 and table == A:
            raise OSError("the statement was killed")

    with failpoint_action("stage_chunks", before=fail_second):
        assert "the statement was killed" in pipeline.failure(A)
    assert sorted(seen) == [A, A, B]
    assert pipeline.state(B) == pipeline.source.rows[B]
    assert batches_with_reads(pipeline, A) == [], "half a group is not published"
    pipeline.finish()


def test_changes_between_two_pieces_belong_to_the_window_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row changes after its read. The group before publishes that change while the second piece is still read."""
    pipeline, is_changed, is_published = in_chunks_of_one(A), Event(), Event()

    def change() -> None:
        pipeline.change(A, 4, 5)
        is_changed.set()
        assert is_published.wait(WAIT_S)

    with (
        second_group_in_two_pieces(monkeypatch),
        once("stage_chunks", "after", change, at=2),
        once("publish_group", "before", lambda: is_changed.wait(WAIT_S)),
        once("settle_table_snapshot", "after", is_published.set),
    ):
        pipeline.passed()
    first, second = batches_with_reads(pipeline, A)
    logged = [(batch, event.op) for batch, _, event in pipeline.target.log[A] if event.key == (4,)]
    assert logged == [(first, "u")], "an r of the second group would be older than the u"
    assert second > first
    assert published_chunks(pipeline) == 9
    pipeline.finish()


def test_pause_between_two_pieces_ends_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of the group is read again once the snapshot continues."""
    pipeline, is_reading, is_heard = in_chunks_of_one(A), Event(), Event()
    pipeline.passed()
    spans = list[ChunkSpan]()
    ask = in_signal_table(Signal("p", "pause-snapshot", "{}", ""))
    with (
        second_group_in_two_pieces(monkeypatch),
        spans_read(spans),
        once("stage_chunks", "after", lambda: pipeline.source.signals.append(ask)),
        once("stage_chunks", "before", is_reading.set, at=2),
        once("publish_group", "before", lambda: is_reading.wait(WAIT_S)),
        once("stage_chunks", "after", lambda: is_heard.wait(WAIT_S), at=2),
        once("after_group", "after", is_heard.set),
    ):
        *_, snapshot = pipeline.passed(execute("ask", A)).snapshots
    assert (snapshot.status, snapshot.done, len(spans)) == ("paused", 3, 2)
    pipeline.change(A, 4, 5)
    pipeline.change(A, 5, None)
    pipeline.source.signals.append(in_signal_table(Signal("r", "resume-snapshot", "{}", "")))
    pipeline.finish()
    assert published_chunks(pipeline) == 2 * 9, "each chunk is published once a snapshot"


def test_group_dropped_by_a_pause_is_read_again_after_the_resume() -> None:
    """It was read before the pause was handled. The same tick handles the resumption."""
    pipeline, spans = in_chunks_of_one(A, group_chunks=3), list[ChunkSpan]()
    pipeline.passed()

    def give(type_: str) -> None:
        pipeline.source.signals.append(in_signal_table(Signal(type_, type_, "{}", "")))

    with (
        spans_read(spans),
        reads_before_publications(),
        once("settle_table_snapshot", "after", lambda: give("pause-snapshot")),
        once("after_group", "after", lambda: give("resume-snapshot")),
    ):
        *_, snapshot = pipeline.passed(execute("ask", A)).snapshots
    assert (snapshot.status, snapshot.done) == ("completed", 9)
    assert {chunks(span)[0] for span in spans[:3]} == {0, 3}, "the second group was read twice"
    assert published_chunks(pipeline) == 2 * 9
    pipeline.finish()


def test_first_read_of_each_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the first table was read, the rows of the next one may take longer."""
    in_pieces(monkeypatch, 3, 8)
    pipeline, spans = in_chunks_of_one(A, B, rows=3), list[ChunkSpan]()
    pipeline.source.commit({(B, key): 0 for key in range(3, 9)})
    with spans_read(spans):
        pipeline.passed()
    assert [(span.table, chunks(span)) for span in spans] == [(A, range(3)), (B, range(3)), (B, range(3, 9))]
    pipeline.finish()


def test_deadline_ends_a_group_after_the_piece_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces(monkeypatch, 3, 8)
    pipeline = in_chunks_of_one(A)
    pipeline.set(snapshot_budget_s=0.0)
    assert pipeline.passed().snapshots[0].done == 3
    pipeline.set(snapshot_budget_s=900.0)
    assert pipeline.passed().snapshots[0].done == 9
    pipeline.finish()
