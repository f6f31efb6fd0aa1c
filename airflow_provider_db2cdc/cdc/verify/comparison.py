"""The comparison of some chunks of a table with its current state, and whether they have to be read again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import Bound

MAX_READS = 3
"""The most reads of chunks whose keys change too much."""

FEW_KEYS, CHANGED_SHARE = 100, 0.1
"""Up to so many changed keys, or up to this share of the rows, chunks need not be read again."""

NextStep = Literal["done", "confirm", "read_again"]


@dataclass(frozen=True)
class ChunkDifference:
    """The differences in the chunks `first` to `last`: keys that are greater than `low`, and at most `high`.

    A row is `missing` if the state lacks it, `surplus` if only the state has it, and `different` if both have its key
    and the values differ. An empty bound is open.
    """

    first: int
    last: int
    low: Bound = ()
    high: Bound = ()
    missing: int = 0
    surplus: int = 0
    different: int = 0

    @property
    def rows(self) -> int:
        """The number of rows that differ."""
        return self.missing + self.surplus + self.different


@dataclass(frozen=True)
class Comparison:
    """What a comparison of chunks has found.

    `keys_changed` keys were not compared, because the source has changed them since the state, or during the read. In a
    comparison of counts it is the number of changes, which may explain a difference.
    """

    source_rows: int
    state_rows: int
    keys_changed: int = 0
    differences: tuple[ChunkDifference, ...] = ()

    @property
    def is_too_changed(self) -> bool:
        """Whether so many keys have changed that the chunks should be read again."""
        rows = max(self.source_rows, self.state_rows)
        return self.keys_changed > max(FEW_KEYS, rows * CHANGED_SHARE)


def next_step(comparisons: Sequence[Comparison]) -> NextStep:
    """Return what to do after these comparisons of the same chunks.

    Differences are confirmed by another read. The comparison after that only has the keys that differed before. If
    too many keys of the chunks have changed, they are read again, at most `MAX_READS` times in total.
    """
    last = comparisons[-1]
    if last.differences:
        has_confirmed = len(comparisons) > 1 and bool(comparisons[-2].differences)
        return "done" if has_confirmed else "confirm"
    return "read_again" if last.is_too_changed and len(comparisons) < MAX_READS else "done"


def unexplained(source_rows: int, state_rows: int, changes: int) -> tuple[int, int]:
    """Return by how many rows at least a state has too few, and too many. Each change may explain one row."""
    lack = source_rows - state_rows
    return max(0, lack - changes), max(0, -lack - changes)


def total(differences: Iterable[ChunkDifference]) -> ChunkDifference:
    """Return the sum of differences, without a place."""
    found = [*differences]
    return ChunkDifference(
        0,
        0,
        missing=sum(item.missing for item in found),
        surplus=sum(item.surplus for item in found),
        different=sum(item.different for item in found),
    )
