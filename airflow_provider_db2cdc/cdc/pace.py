"""How much of a table is read at a time, and by how many readers: as much as fits into a group's time."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.job import ApplySettings

GROUP_S = 60.0
"""What a group is to take to read, if no less than it begins with: what a batch costs is little beside that."""

FIRST_ROWS, LEAST_CHUNKS, MOST_CHUNKS = 800_000, 4, 160
"""What is read of a table first, while nobody knows how long that takes; in no less and no more chunks than these."""

MOST_TIMES = 8.0
"""How many times as many chunks may come next: of few rows most of the time is none of theirs."""


def first_chunks(settings: ApplySettings) -> int:
    """Return how many chunks the first group begins with: those named, or as make not too many rows."""
    if settings.snapshot_group_chunks is not None:
        return settings.snapshot_group_chunks
    if settings.snapshot_chunk_bytes is not None:
        return LEAST_CHUNKS
    return min(MOST_CHUNKS, max(LEAST_CHUNKS, FIRST_ROWS // settings.snapshot_chunk_rows))


def more_chunks(settings: ApplySettings, chunks: int, read_s: float, spent_s: float) -> int:
    """Return how many more a group gets that took `spent_s` so far, and `read_s` for its last `chunks`.

    As many as fit; none where a group's number is named, or half of its time is over.
    """
    if settings.snapshot_group_chunks is not None or spent_s > GROUP_S / 2:
        return 0
    return _fitting(chunks, read_s, GROUP_S - spent_s)


def next_group_chunks(settings: ApplySettings, chunks: int, read_s: float) -> int:
    """Return how many chunks the next group begins with, if `chunks` took `read_s`: those named, or as many as fit.

    But no less than the first one: with few readers at work a group is read no faster.
    """
    return settings.snapshot_group_chunks or max(first_chunks(settings), _fitting(chunks, read_s, GROUP_S))


def readers(settings: ApplySettings, tables: int, slots: int) -> tuple[int, int]:
    """Return how many of `tables` are read side by side, and by how many readers each, while a group is published.

    A reader keeps one of Spark's slots for as long as its source takes, and what was asked of Spark first goes first.
    So a quarter of the slots, at least one, is left to what is published.
    """
    free = max(1, slots - max(1, slots // 4))
    at_once = max(1, min(tables, settings.parallel_tables, free))
    return at_once, max(1, min(settings.parallel_reads, free // at_once))


def _fitting(chunks: int, read_s: float, left_s: float) -> int:
    """Return how many chunks are read in `left_s`, if `chunks` of them took `read_s`."""
    return int(chunks * min(MOST_TIMES, left_s / max(read_s, 0.001)))
