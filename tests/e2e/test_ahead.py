"""A group that is read ahead, by a source that lets its readers wait, beside the one that is published."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain

import pytest
from support.filled import ask, filled
from support.log import check_log
from support.pipeline import Pipeline
from support.writing import behind, beside

from airflow_provider_db2cdc.cdc.snapshot import chunk_sizing
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.spark.session import slots

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

FIRST_S = 3.0
"""Beside so long a read, what it takes to open a connection does not count."""


def test_readers_that_wait_for_the_source_do_not_keep_a_group_from_being_published(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Each of the next group's chunks waits for a row of an open transaction, which ends once the first is compared.

    Were Spark's two slots all theirs, nothing could be compared, and they would be refused as victims of a timeout.
    """
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 2})
    table = filled(pipeline, 8)
    pipeline.passed()
    assert slots(pipeline.spark) == 2
    read, is_let_go = [0], list[int]()

    def lock(group: int) -> None:
        read[0] = group
        if group == 1:
            pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID IN (4, 6)")

    def let_go(_: int) -> None:
        if not is_let_go:
            is_let_go.append(read[0])
            pipeline.writer.commit()

    with (
        behind("stage_chunks", lock),
        beside("publish_group", lambda: _await_read(pipeline)),
        behind("compare_state", let_go),
    ):
        pipeline.passed(ask(table))
    assert is_let_go == [1], "the second group was read before the first was compared: nothing was to be shown"
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_what_is_read_beside_a_publish_comes_in_pieces(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one chunk each here: one of Spark's two slots is free, and no time is a piece's.

    Before the first of all the chunks' bounds are written down.
    """
    monkeypatch.setattr(chunk_sizing, "PIECE_S", 0.0)
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 1, "snapshot.group.chunks": 3})
    table, pieces = filled(pipeline, 9), list[range]()
    written: list[int] = []

    def note(reached: ReachedFailpoint) -> None:
        reading: ChunkSpan = reached.arguments["span"]
        assert written, "a death within the first read would forget where the chunks end"
        pieces.append(range(reading.first, reading.last + 1))
        if reading.first == 4:
            pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID IN (3, 5)")
            pipeline.writer.commit()

    with failpoint_action("stage_chunks", before=note), behind("write_journal", written.append):
        pipeline.passed()
    assert pieces[:2] == [range(3), range(3, 4)]
    assert [*chain.from_iterable(pieces)] == [*range(10)], "each chunk once"
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def test_a_group_beside_a_publish_has_no_fewer_chunks_than_a_first_one(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor more, if it is to have more and they take longer than a group may: here two of three, and one at a time."""
    for name, value in {"MOST_CHUNKS": 2, "PIECE_S": 0.0}.items():
        monkeypatch.setattr(chunk_sizing, name, value)
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 1})
    filled(pipeline, 9)
    groups, begun = list[list[int]](), list[float]()

    def note(reached: ReachedFailpoint) -> None:
        of, reading = reached.arguments["chunk_range"], reached.arguments["span"]
        groups.extend([] if of.counts else [[]])
        groups[-1].extend(range(reading.first, reading.last + 1))
        begun.append(time.monotonic())
        monkeypatch.setattr(chunk_sizing, "GROUP_S", 0.0)
        if len(groups) == 1:
            time.sleep(FIRST_S)

    def pace_first(_: ReachedFailpoint) -> None:
        """Have a group of three chunks fit, and no more to the first one: half of its time is over."""
        if len(groups) == 1:
            monkeypatch.setattr(chunk_sizing, "GROUP_S", 1.8 * (time.monotonic() - begun[0]))

    with failpoint_action("stage_chunks", before=note, after=pace_first):
        pipeline.passed()
    assert groups == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def _await_read(pipeline: Pipeline) -> None:
    """Wait until a task of Spark's, which may be another test's, has been at work for a second."""
    tracker, begun = pipeline.spark.sparkContext.statusTracker(), dict[int, float]()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = time.monotonic()
        begun = {stage: begun.get(stage, now) for stage in tracker.getActiveStageIds()}
        if any(now - since > 1 for since in begun.values()):
            return
        time.sleep(0.2)
    raise AssertionError("nothing was read ahead")
