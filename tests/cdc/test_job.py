"""What a job is told: how many chunks make a group, and the source's clock."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.capture import Fence
from airflow_provider_db2cdc.cdc.job import ApplySettings, JobSpec, SourceSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn


@pytest.mark.parametrize(
    ("settings", "chunks"),
    [
        (ApplySettings(), 16),
        (ApplySettings(snapshot_chunk_rows=5_000_000), 8),
        (ApplySettings(snapshot_chunk_rows=100_000), 32),
        (ApplySettings(snapshot_chunk_rows=10_000), 160),
        (ApplySettings(snapshot_chunk_rows=1024), 160),
        (ApplySettings(snapshot_chunk_rows=1024, snapshot_chunk_bytes=10_000_000), 8),
        (ApplySettings(snapshot_chunk_rows=1024, snapshot_group_chunks=3), 3),
    ],
)
def test_small_chunks_make_groups_as_large_as_large_ones_do(settings: ApplySettings, chunks: int) -> None:
    assert settings.group_chunks == chunks


@pytest.mark.parametrize(("clock", "ahead_ms"), [("2023-11-14T22:13:20.5", 500), ("2023-11-15T00:13:20", 7_200_000)])
def test_a_plan_knows_how_far_the_sources_local_clock_is_ahead(clock: str, ahead_ms: int) -> None:
    fence = Fence(Lsn(bytes(16)), clock, clock, 0.0)
    source = SourceSpec("jdbc:db2://h/D", "D", "p", "ASN")
    spec = JobSpec("p", "run", "0a", 1_700_000_000_000, "/t", source, fence, ())
    assert spec.source_ahead_ms == ahead_ms


def test_groups_grow_while_they_are_read_fast_unless_their_size_was_named() -> None:
    settings = ApplySettings()
    assert [settings.next_group_chunks(16, read_s) for read_s in (1, 59, 61, 600)] == [32, 32, 16, 16]
    assert ApplySettings(snapshot_group_chunks=3).next_group_chunks(3, 1) == 3
