"""What a job is told: how many chunks make a group."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.job import ApplySettings


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


def test_groups_grow_while_they_are_read_fast_unless_their_size_was_named() -> None:
    settings = ApplySettings()
    assert [settings.next_group_chunks(16, read_s) for read_s in (1, 59, 61, 600)] == [32, 32, 16, 16]
    assert ApplySettings(snapshot_group_chunks=3).next_group_chunks(3, 1) == 3
