"""The files of a Delta table: which are worth rewriting, and by which columns they are clustered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

SMALL_BYTES = 32 * 1024**2
SMALL_FILES = 20
"""So many files below `SMALL_BYTES` are compacted. Fewer do not slow a read, and each rewrite is a commit."""

MOST_CLUSTERED = 4
UNCLUSTERED_TYPES = ("binary", "boolean")
"""Types without minima and maxima in Delta's statistics."""


@dataclass(frozen=True)
class FileStatistics:
    """The files of a version: their number and bytes, how many are small, and how many have deleted rows.

    `vectors` is the number of files that hold their deletion vectors.
    """

    files: int = 0
    size: int = 0
    small: int = 0
    with_deletes: int = 0
    vectors: int = 0

    @property
    def needs_compaction(self) -> bool:
        """Whether there are enough small files."""
        return self.small >= SMALL_FILES

    @property
    def needs_purge(self) -> bool:
        """Whether rows that are marked as deleted are still in the files."""
        return self.with_deletes > 0

    def needs_vacuum(self, stored: int) -> bool:
        """Whether the table's folder has more files (`stored`, without Delta's log) than the version needs."""
        return stored > self.files + self.vectors


def clustering_columns(key: Sequence[str], types: Mapping[str, str], with_statistics: Collection[str]) -> list[str]:
    """Return the columns of a key by which the state is clustered, in the order of the key.

    Delta takes up to four columns, and only those with minima and maxima in the statistics (`with_statistics`).
    """
    usable = [name for name in key if name in with_statistics and types.get(name) not in (None, *UNCLUSTERED_TYPES)]
    return usable[:MOST_CLUSTERED]


def vacuum_hours(retained_s: float, oldest_manifest_age_s: float | None) -> int:
    """Return the hours for which VACUUM keeps removed files, rounded up.

    `retained_s` is the table's `delta.deletedFileRetentionDuration`. Versions that a kept manifest row names stay
    readable, also where the row is older.
    """
    longest = max(retained_s, oldest_manifest_age_s or 0)
    return int(-(-longest // 3600))
