"""How many chunks make a group, and who reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.job import ApplySettings
from airflow_provider_db2cdc.cdc.pace import GROUP_S, first_chunks, more_chunks, next_group_chunks, readers


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
def test_the_first_group_begins_with_some_rows_whatever_chunks_hold(settings: ApplySettings, chunks: int) -> None:
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
    assert more_chunks(settings, 16, read_s, spent_s) == more
    assert next_group_chunks(settings, 16, read_s) == following
    assert more_chunks(settings, 0, read_s, spent_s) == 0, "nothing of it could be read"


def test_a_number_of_chunks_that_was_named_is_a_groups_whatever_its_time() -> None:
    settings = ApplySettings(snapshot_group_chunks=3)
    for read_s in (0.1, 1000):
        assert (more_chunks(settings, 3, read_s, read_s), next_group_chunks(settings, 3, read_s)) == (0, 3)


@given(st.floats(1e-4, 1e3), st.floats(0, 3), st.integers(1, 8), st.integers(1, 10_000_000))
def test_groups_take_their_time_and_no_more_at_a_steady_pace(
    chunk_s: float, start_s: float, readers: int, chunk_rows: int
) -> None:
    """But for what each begins with; whether the source reads one chunk after the other, or some side by side."""
    settings = ApplySettings(snapshot_chunk_rows=chunk_rows)
    begin = first_chunks(settings)
    for _ in range(4):
        spent_s, piece, pieces = 0.0, begin, 0
        while piece:
            read_s = start_s + -(-piece // readers) * chunk_s
            spent_s, read, pieces = spent_s + read_s, piece, pieces + 1
            piece = more_chunks(settings, read, read_s, spent_s)
            begin = next_group_chunks(settings, read, read_s)
        assert spent_s <= GROUP_S + chunk_s + start_s or (pieces == 1 and read == first_chunks(settings))
        assert spent_s > GROUP_S / 2


@pytest.mark.parametrize(
    ("tables", "slots", "at_once", "of_each"),
    [
        (1, 1, 1, 1), (1, 2, 1, 1), (1, 4, 1, 3), (1, 8, 1, 6), (1, 16, 1, 8), (1, 200, 1, 8),
        (3, 2, 1, 1), (3, 4, 3, 1), (9, 4, 3, 1), (9, 8, 4, 1), (2, 8, 2, 3), (9, 64, 4, 8),
    ],
)  # fmt: skip
def test_readers_beside_a_publish_leave_it_some_of_spark(tables: int, slots: int, at_once: int, of_each: int) -> None:
    assert readers(ApplySettings(), tables, slots) == (at_once, of_each)


@given(st.integers(1, 50), st.integers(1, 100), st.integers(1, 8), st.integers(1, 20))
def test_readers_beside_a_publish_never_take_all_slots(tables: int, slots: int, parallel: int, most: int) -> None:
    at_once, of_each = readers(ApplySettings(parallel_tables=parallel, parallel_reads=most), tables, slots)
    assert 1 <= at_once <= min(tables, parallel)
    assert 1 <= of_each <= most
    assert at_once * of_each < slots or slots == 1
