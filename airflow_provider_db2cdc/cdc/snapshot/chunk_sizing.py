"""The number of chunks that are read together, and the number of readers, by the time that a group may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from airflow_provider_db2cdc.cdc.job import ApplySettings

Name = TypeVar("Name")

GROUP_S = 60.0
"""Seconds that the read of a group should take, unless its first chunks take longer.

Next to that the cost of a batch is small.
"""

FIRST_ROWS, LEAST_CHUNKS, MOST_CHUNKS = 800_000, 4, 160
"""The rows of a table's first read, while its time is unknown, and the least and most chunks for them."""

MOST_TIMES = 8.0
"""The greatest factor between the chunks of two reads. Most of the time of a short read is overhead."""

PIECE_S = 15.0
"""Seconds of reading, during a publication, before the reader checks whether the publication is over."""


@dataclass(frozen=True)
class ReadPace:
    """How many chunks the last read had, and how many seconds it took."""

    chunks: int
    seconds: float

    def fitting(self, seconds: float) -> int:
        """Return how many chunks are read in this time."""
        return int(self.chunks * min(MOST_TIMES, seconds / max(self.seconds, 0.001)))


def first_chunks(settings: ApplySettings) -> int:
    """Return how many chunks the first group begins with: the configured number, or enough for the first rows."""
    if settings.snapshot_group_chunks is not None:
        return settings.snapshot_group_chunks
    if settings.snapshot_chunk_bytes is not None:
        return LEAST_CHUNKS
    return min(MOST_CHUNKS, max(LEAST_CHUNKS, FIRST_ROWS // settings.snapshot_chunk_rows))


def more_chunks(settings: ApplySettings, pace: ReadPace, spent_s: float, done: int = 0, left: int = 0) -> int:
    """Return how many more chunks a group of `done` chunks gets.

    The group took `spent_s` seconds so far, the last read of them at `pace`. `left` chunks of its planned start are
    not read yet. Of those it gets as many as fit, and in total at least the size of a first group. With none left it
    gets as many as fit, or none once half of its time is over. A configured number of chunks always gives `left`.
    """
    if settings.snapshot_group_chunks is not None:
        return left
    fitting = max(0, pace.fitting(GROUP_S - spent_s))
    if left:
        return min(left, max(fitting, first_chunks(settings) - done))
    return fitting if spent_s <= GROUP_S / 2 else 0


def next_group_chunks(settings: ApplySettings, pace: ReadPace) -> int:
    """Return how many chunks the next group begins with.

    It is the configured number, or as many as fit, but at least the size of the first group. With few readers at work a
    smaller group is read no faster.
    """
    return settings.snapshot_group_chunks or max(first_chunks(settings), pace.fitting(GROUP_S))


def free_slots(slots: int) -> int:
    """Return how many of Spark's slots read while a group is published: of two or more, never all.

    A reader keeps its slot for as long as the source takes, and Spark serves earlier requests first.
    """
    return max(1, slots - max(1, slots // 4))


def sub_group_size(chunks: int, pace: ReadPace, free: int) -> int:
    """Return how many of `chunks` are read at once during a publication.

    These are as many as fit into `PIECE_S`, or one per slot if that takes longer. Afterwards more slots may be free.
    """
    return min(chunks, max(free, pace.fitting(PIECE_S)))


def readers(settings: ApplySettings, chunks: Mapping[Name, int], free: int) -> tuple[int, dict[Name, int]]:
    """Return how many tables are read in parallel with `free` slots, and the number of readers for each table.

    `chunks` has each table's number of chunks. Each table has one reader. The remaining slots add readers to the tables
    with the most chunks per reader.
    """
    at_once = max(1, min(len(chunks), settings.parallel_tables, free))
    reader_counts = dict.fromkeys(chunks, 1)
    for _ in range(free - at_once):
        name = max(chunks, key=lambda name: chunks[name] / reader_counts[name])
        if reader_counts[name] < min(chunks[name], settings.parallel_reads):
            reader_counts[name] += 1
    return at_once, reader_counts
