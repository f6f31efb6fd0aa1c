"""The number of chunks of a group, and the number of its readers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.job import ApplySettings
from airflow_provider_db2cdc.cdc.snapshot.chunk_sizing import (
    GROUP_S,
    ReadPace,
    first_chunks,
    free_slots,
    more_chunks,
    next_group_chunks,
    readers,
    sub_group_size,
)


@pytest.mark.parametrize(
    ("settings", "chunks"),
    [
        (ApplySettings(), 4),
        (ApplySettings(snapshot_chunk_rows=5_000_000), 4),
        (ApplySettings(snapshot_chunk_rows=100_000), 8),
        (ApplySettings(snapshot_chunk_rows=10_000), 80),
        (ApplySettings(snapshot_chunk_rows=1024), 160),
        (ApplySettings(snapshot_chunk_rows=1024, snapshot_chunk_bytes=10_000_000), 4),
        (ApplySettings(snapshot_chunk_rows=1024, snapshot_group_chunks=3), 3),
    ],
)
def test_the_first_group_has_about_the_same_rows_for_any_chunk_size(settings: ApplySettings, chunks: int) -> None:
    assert first_chunks(settings) == chunks


@pytest.mark.parametrize(
    ("read_s", "spent_s", "more", "following"),
    [
        (0.0, 0.0, 128, 128), (1, 1, 128, 128), (10, 10, 80, 96), (10, 30, 48, 96), (30, 30, 16, 32), (10, 31, 0, 96),
        (60, 60, 0, 16), (2000, 2000, 0, 4),
    ],
)  # fmt: skip
def test_a_group_gets_as_many_chunks_as_fit_into_its_time(
    read_s: float, spent_s: float, more: int, following: int
) -> None:
    settings = ApplySettings()
    assert more_chunks(settings, ReadPace(16, read_s), spent_s) == more
    assert next_group_chunks(settings, ReadPace(16, read_s)) == following
    assert more_chunks(settings, ReadPace(0, read_s), spent_s) == 0, "nothing of it could be read"


def test_a_configured_number_of_chunks_is_used_whatever_the_time() -> None:
    settings = ApplySettings(snapshot_group_chunks=3)
    for read_s in (0.1, 1000):
        pace = ReadPace(3, read_s)
        assert (more_chunks(settings, pace, read_s), next_group_chunks(settings, pace)) == (0, 3)


@pytest.mark.parametrize(
    ("spent_s", "done", "left", "more"),
    [
        (15, 4, 3, 3), (15, 4, 20, 12), (15, 4, 0, 12), (45, 12, 3, 3), (45, 12, 9, 4), (45, 12, 0, 0), (61, 16, 3, 0),
        (61, 1, 3, 3), (61, 3, 9, 1), (61, 1, 0, 0),
    ],
)  # fmt: skip
def test_a_group_gets_the_planned_chunks_that_fit_or_the_minimum(spent_s: int, done: int, left: int, more: int) -> None:
    assert more_chunks(ApplySettings(), ReadPace(4, 15), spent_s, done, left) == more
    assert more_chunks(ApplySettings(snapshot_group_chunks=9), ReadPace(4, 15), spent_s, done, left) == left


@given(st.floats(1e-4, 1e3), st.floats(0, 3), st.integers(1, 8), st.integers(1, 10_000_000))
def test_groups_use_their_time_and_no_more_at_a_steady_pace(
    chunk_s: float, start_s: float, readers: int, chunk_rows: int
) -> None:
    """The first chunks of each are excepted. The source reads chunks in sequence or in parallel."""
    settings = ApplySettings(snapshot_chunk_rows=chunk_rows)
    begin = first_chunks(settings)
    for _ in range(4):
        spent_s, piece, pieces = 0.0, begin, 0
        while piece:
            read_s = start_s + -(-piece // readers) * chunk_s
            spent_s, read, pieces = spent_s + read_s, piece, pieces + 1
            piece = more_chunks(settings, ReadPace(read, read_s), spent_s)
            begin = next_group_chunks(settings, ReadPace(read, read_s))
        assert spent_s <= GROUP_S + chunk_s + start_s or (pieces == 1 and read == first_chunks(settings))
        assert spent_s > GROUP_S / 2


@pytest.mark.parametrize(("slots", "free"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (16, 12), (200, 150)])
def test_reads_during_a_publication_leave_it_some_slots(slots: int, free: int) -> None:
    assert free_slots(slots) == free


@pytest.mark.parametrize(
    ("chunks", "free", "at_once", "of_each"),
    [
        ({"a": 9}, 1, 1, {"a": 1}), ({"a": 9}, 6, 1, {"a": 6}), ({"a": 9}, 12, 1, {"a": 8}),
        ({"a": 2}, 12, 1, {"a": 2}),
        ({"a": 1, "b": 50, "c": 1}, 1, 1, {"a": 1, "b": 1, "c": 1}),
        ({"a": 1, "b": 50, "c": 1}, 6, 3, {"a": 1, "b": 4, "c": 1}),
        ({"a": 2, "b": 2}, 3, 2, {"a": 2, "b": 1}), ({"a": 8, "b": 8}, 6, 2, {"a": 3, "b": 3}),
        ({"a": 1, "b": 1}, 6, 2, {"a": 1, "b": 1}), ({"a": 40, "b": 20}, 9, 2, {"a": 6, "b": 3}),
    ],
)  # fmt: skip
def test_tables_have_readers_by_their_chunks(
    chunks: dict[str, int], free: int, at_once: int, of_each: dict[str, int]
) -> None:
    assert readers(ApplySettings(), chunks, free) == (at_once, of_each)


@given(st.lists(st.integers(1, 99), min_size=1, max_size=9), st.integers(1, 100), st.integers(1, 8), st.integers(1, 20))
def test_readers_never_take_more_slots_than_are_free(chunks: list[int], free: int, parallel: int, most: int) -> None:
    settings = ApplySettings(parallel_tables=parallel, parallel_reads=most)
    at_once, of_each = readers(settings, dict(enumerate(chunks)), free)
    assert 1 <= at_once <= min(len(chunks), parallel)
    assert all(1 <= number <= most for number in of_each.values())
    assert sum(sorted(of_each.values())[-at_once:]) <= free


@pytest.mark.parametrize(
    ("read", "read_s", "free", "piece"),
    [(4, 53, 1, 1), (4, 53, 3, 3), (4, 5, 1, 12), (4, 0.1, 1, 20), (4, 30, 1, 2), (0, 9, 2, 2)],
)
def test_a_piece_during_a_publication_is_short_with_a_chunk_per_slot(
    read: int, read_s: float, free: int, piece: int
) -> None:
    assert sub_group_size(20, ReadPace(read, read_s), free) == piece
    assert sub_group_size(2, ReadPace(read, read_s), free) <= 2
