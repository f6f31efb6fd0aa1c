"""Retention of a change log: which batches may be trimmed, and which ones something still needs.

A change log is trimmed from its beginning, by whole batches. Its *horizon* is the first batch that it has complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, KeylessRead, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

PROPERTY = "change.log.retention"


@dataclass(frozen=True)
class LogHorizon:
    """The first batch that a change log has complete. Events of commits up to `after` may be missing.

    A restored source uses its LSNs again. `greatest` is the greatest LSN of all its histories up to which events may be
    missing, an LSN of 16 bytes before one of 10. It is None where it is `after`. The horizon of a log that was never
    trimmed is batch 0, and no commit.
    """

    batch: int = 0
    after: Lsn | None = None
    greatest: Lsn | None = None

    @property
    def is_trimmed(self) -> bool:
        """Whether events may be missing."""
        return self.batch > 0

    def __str__(self) -> str:
        return f"{self.batch} {self.after or ''} {self.greatest or ''}".strip()

    @classmethod
    def parse(cls, text: str) -> LogHorizon:
        """Return the horizon that a text names, an empty one that of a log that was never trimmed."""
        batch, *lsns = text.split() or ["0"]
        return cls(int(batch), *map(Lsn.parse, lsns))

    def moved(self, batch: int, trimmed: Sequence[Lsn]) -> LogHorizon:
        """Return the horizon at a later batch. `trimmed` are the positions of the batches between the two, in order."""
        after = trimmed[-1] if trimmed else self.after
        known = [lsn for lsn in (self.after, self.greatest, *trimmed) if lsn is not None]
        greatest = max(known, key=_by_width, default=None)
        return LogHorizon(batch, after, None if greatest == after else greatest)

    def has_commits_after(self, lsn: Lsn | None) -> bool:
        """Return whether the log has all commits after an LSN, in each history of the source."""
        trimmed = self.greatest or self.after
        return trimmed is None or (lsn is not None and _by_width(lsn) >= _by_width(trimmed))


def _by_width(lsn: Lsn) -> tuple[int, bytes]:
    return len(lsn.raw), lsn.raw


@dataclass(frozen=True)
class LogAge:
    """The age of a table's applied batches: the last batch, and the first one that is younger than the retention.

    `first_young` is None if all are older.
    """

    last: int
    first_young: int | None

    @property
    def first_kept(self) -> int:
        """The first batch that the retention keeps. The last batch is always kept: it is the table's position."""
        return self.last if self.first_young is None else min(self.first_young, self.last)


@dataclass(frozen=True)
class LogNeed:
    """The first batch of a change log that something needs. `snapshot` is the open snapshot that needs it, if any."""

    batch: int
    snapshot: str = ""


def find_horizon(table: TableId, age: LogAge, needs: Sequence[LogNeed]) -> int:
    """Return the first batch to keep: the retention's, or an earlier one that something needs.

    :raises ConfigurationError: when an open snapshot needs more than the retention keeps.
    """
    for need in needs:
        if need.snapshot and need.batch < age.first_kept:
            raise ConfigurationError(
                f"{table}: {PROPERTY} is shorter than the open snapshot {need.snapshot!r} needs. It needs the change "
                f"log from batch {need.batch} on, and the retention begins with batch {age.first_kept}",
                "Let the snapshot end, stop it, or set a longer retention. Nothing of the table was changed.",
            )
    return min([age.first_kept, *(need.batch for need in needs)])


def log_needs(
    table: TableId,
    snapshots: Iterable[Snapshot],
    published: ChunkRange | None,
    pending: Iterable[PlannedBatch],
    manifest: int | None,
) -> list[LogNeed]:
    """Return what a table's change log is needed for.

    That is open snapshots, planned batches that are not applied, and the batches after that of the oldest manifest row
    (`manifest`). A reader may continue from that row's versions by the log. `published` is the table's last published
    chunk range. The journal may not have the progress of its snapshot yet.
    """
    needs = [] if manifest is None else [LogNeed(manifest + 1)]
    needs += [LogNeed(_first_of_batch(planned)) for planned in pending if planned.table == table]
    for snapshot in snapshots:
        open_tables = [table_snapshot for table_snapshot in snapshot.open_tables if table_snapshot.table == table]
        firsts = [first for open_table in open_tables if (first := _first_of_snapshot(open_table)) is not None]
        if open_tables and published is not None and published.snapshot == snapshot.id:
            firsts.append(_first_of_range(published))
        needs += [LogNeed(min(firsts), snapshot.id)] if firsts else []
    return needs


def _first_of_batch(planned: PlannedBatch) -> int:
    """Return the first batch whose events the redo of a planned batch reads."""
    return planned.batch if planned.chunk_range is None else min(planned.batch, _first_of_range(planned.chunk_range))


def _first_of_range(chunk_range: ChunkRange) -> int:
    """Return the first batch whose events the publication of a chunk range reads, or that of a later one."""
    lows = [chunk_range.low_batch, chunk_range.first_low_batch]
    if isinstance(chunk_range, KeylessRead):
        lows += [low for low, _ in chunk_range.windows]
    return min(lows) + 1


def _first_of_snapshot(table_snapshot: TableSnapshot) -> int | None:
    """Return the first batch whose events an open table snapshot reads, None if it has begun nothing yet.

    What it reads from now on has windows of batches that no tick has planned so far.
    """
    lows = [low for low, _ in table_snapshot.windows]
    if table_snapshot.low_batch is not None:
        lows.append(table_snapshot.low_batch)
    return min(lows) + 1 if lows else None
