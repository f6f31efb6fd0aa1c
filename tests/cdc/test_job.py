"""What a job is told: how many chunks make a group, and the source's clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.capture import Fence
from airflow_provider_db2cdc.cdc.job import GROUP_S, ApplySettings, JobSpec, SourceSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn


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
    assert settings.first_chunks == chunks


@pytest.mark.parametrize(("clock", "ahead_ms"), [("2023-11-14T22:13:20.5", 500), ("2023-11-15T00:13:20", 7_200_000)])
def test_a_plan_knows_how_far_the_sources_local_clock_is_ahead(clock: str, ahead_ms: int) -> None:
    fence = Fence(Lsn(bytes(16)), clock, clock, 0.0)
    source = SourceSpec("jdbc:db2://h/D", "D", "p", "ASN")
    spec = JobSpec("p", "run", "0a", 1_700_000_000_000, "/t", source, fence, ())
    assert spec.source_ahead_ms == ahead_ms


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
    assert settings.more_chunks(16, read_s, spent_s) == more
    assert settings.next_group_chunks(16, read_s) == following
    assert settings.more_chunks(0, read_s, spent_s) == 0, "nothing of it could be read"


def test_a_number_of_chunks_that_was_named_is_a_groups_whatever_its_time() -> None:
    settings = ApplySettings(snapshot_group_chunks=3)
    for read_s in (0.1, 1000):
        assert (settings.more_chunks(3, read_s, read_s), settings.next_group_chunks(3, read_s)) == (0, 3)


@given(st.floats(1e-4, 1e3), st.floats(0, 3), st.integers(1, 8), st.integers(1, 10_000_000))
def test_groups_take_their_time_and_no_more_at_a_steady_pace(
    chunk_s: float, start_s: float, readers: int, chunk_rows: int
) -> None:
    """But for what each begins with; whether the source reads one chunk after the other, or some side by side."""
    settings = ApplySettings(snapshot_chunk_rows=chunk_rows)
    begin = settings.first_chunks
    for _ in range(4):
        spent_s, piece, pieces = 0.0, begin, 0
        while piece:
            read_s = start_s + -(-piece // readers) * chunk_s
            spent_s, read, pieces = spent_s + read_s, piece, pieces + 1
            piece = settings.more_chunks(read, read_s, spent_s)
            begin = settings.next_group_chunks(read, read_s)
        assert spent_s <= GROUP_S + chunk_s + start_s or (pieces == 1 and read == settings.first_chunks)
        assert spent_s > GROUP_S / 2
