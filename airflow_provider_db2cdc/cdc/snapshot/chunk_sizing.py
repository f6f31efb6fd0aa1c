"""How much of a table is read at a time, and by how many readers: as much as fits into a group's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from airflow_provider_db2cdc.cdc.job import ApplySettings

Name = TypeVar("Name")

GROUP_S = 60.0
"""What a group is to take to read, if no less than it begins with: what a batch costs is little beside that."""

FIRST_ROWS, LEAST_CHUNKS, MOST_CHUNKS = 800_000, 4, 160
"""What is read of a table first, while nobody knows how long that takes; in no less and no more chunks than these."""

MOST_TIMES = 8.0
"""How many times as many chunks may come next: of few rows most of the time is none of theirs."""

PIECE_S = 15.0
"""What is read of a group, while another is published, before it is asked whether that is over."""


def first_chunks(settings: ApplySettings) -> int:
    """Return how many chunks the first group begins with: those named, or as make not too many rows."""
    if settings.snapshot_group_chunks is not None:
        return settings.snapshot_group_chunks
    if settings.snapshot_chunk_bytes is not None:
        return LEAST_CHUNKS
    return min(MOST_CHUNKS, max(LEAST_CHUNKS, FIRST_ROWS // settings.snapshot_chunk_rows))


def more_chunks(
    settings: ApplySettings, chunks: int, read_s: float, spent_s: float, done: int = 0, left: int = 0
) -> int:
    """Return how many more a group of `done` gets that took `spent_s` so far, and `read_s` for its last `chunks`.

    Of those `left` of what it begins with, if any: as many as fit, but no less than make a first group. Else as many as
    fit, none where half of its time is over. Where a number is named, those that are left.
    """
    if settings.snapshot_group_chunks is not None:
        return left
    fitting = max(0, _fitting(chunks, read_s, GROUP_S - spent_s))
    if left:
        return min(left, max(fitting, first_chunks(settings) - done))
    return fitting if spent_s <= GROUP_S / 2 else 0


def next_group_chunks(settings: ApplySettings, chunks: int, read_s: float) -> int:
    """Return how many chunks the next group begins with, if `chunks` took `read_s`: those named, or as many as fit.

    But no less than the first one: with few readers at work a group is read no faster.
    """
    return settings.snapshot_group_chunks or max(first_chunks(settings), _fitting(chunks, read_s, GROUP_S))


def free_slots(slots: int) -> int:
    """Return how many of Spark's slots are read with while a group is published: of two or more, never all.

    A reader keeps its slot for as long as the source takes, and what was asked of Spark first goes first.
    """
    return max(1, slots - max(1, slots // 4))


def sub_group_size(chunks: int, read: int, read_s: float, free: int) -> int:
    """Return how many of `chunks` are read at once while a group is published, if the `read` last ones took `read_s`.

    As many as fit into a piece's time, or one a slot if that takes longer: behind it there may be more slots.
    """
    return min(chunks, max(free, _fitting(read, read_s, PIECE_S)))


def readers(settings: ApplySettings, chunks: Mapping[Name, int], free: int) -> tuple[int, dict[Name, int]]:
    """Return how many tables are read side by side with so many slots, and by how many readers each has.

    `chunks` are each table's: what is left of the slots when each has one goes to those of the most chunks a reader.
    """
    at_once = max(1, min(len(chunks), settings.parallel_tables, free))
    of_each = dict.fromkeys(chunks, 1)
    for _ in range(free - at_once):
        name = max(chunks, key=lambda name: chunks[name] / of_each[name])
        if of_each[name] < min(chunks[name], settings.parallel_reads):
            of_each[name] += 1
    return at_once, of_each


def _fitting(chunks: int, read_s: float, left_s: float) -> int:
    """Return how many chunks are read in `left_s`, if `chunks` of them took `read_s`."""
    return int(chunks * min(MOST_TIMES, left_s / max(read_s, 0.001)))
