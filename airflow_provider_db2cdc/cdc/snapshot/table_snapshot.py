"""One table of a snapshot: its progress, the chunk range of a batch, and the successor after each step.

All code here is pure: a table snapshot is replaced by its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.table import TableId

Bound = tuple[str, ...]
"""A key as SQL literals, one per key column."""

BatchWindow = tuple[int, int]
"""Batches after the first one and up to the second."""

TableSnapshotStatus = Literal["waiting", "reading", "completed", "failed", "stopped"]
OPEN_STATUSES: frozenset[TableSnapshotStatus] = frozenset({"waiting", "reading"})
MAX_FAILURES = 3


@dataclass(frozen=True)
class TableSnapshot:
    """One table of a snapshot. `select` is read instead of the whole table, as one chunk.

    `bounds` are the keys that end its chunks, except the last chunk. `published_chunks` chunks are published. Of the
    `rows_read` rows, `rows_published` were published as `r`. `low_batch` is the first published group's. `fingerprint`
    is that of the columns that are read.

    `delete_missing`: rows of the target that the snapshot does not find are to be deleted. `failures` counts
    the ticks in which it failed since the last read with progress.

    A table without a key is one chunk, and one more for each further read that it needs (cdc.event.row_multiset).
    `windows` are the batch windows of the newest of these reads.

    `differences_only`: only rows that differ from the state are published, as a heal does. `in_one_group`: its chunks
    are only compared with the state together (cdc.snapshot.heal).
    """

    table: TableId
    condition: str = ""
    surrogate: str = ""
    select: str = ""
    delete_missing: bool = False
    status: TableSnapshotStatus = "waiting"
    bounds: tuple[Bound, ...] = ()
    published_chunks: int = 0
    rows_published: int = 0
    low_batch: int | None = None
    windows: tuple[BatchWindow, ...] = ()
    fingerprint: str = ""
    failures: int = 0
    reason: str = ""
    rows_read: int = 0
    differences_only: bool = False
    in_one_group: bool = False

    @property
    def chunks(self) -> int:
        """The number of chunks, known once the table is being read."""
        return len(self.bounds) + 1

    @property
    def is_open(self) -> bool:
        """Whether something of it is left to do."""
        return self.status in OPEN_STATUSES


@dataclass(frozen=True)
class ChunkSpan:
    """Neighbouring chunks of one table, `first` to `last` inclusive, that are to be read together."""

    table: TableId
    first: int
    last: int


@dataclass(frozen=True)
class ChunkCounts:
    """One chunk that was read: its bounds, its rows, and the source's count right after the read."""

    low: Bound
    high: Bound
    rows_read: int
    rows_counted: int


@dataclass(frozen=True)
class ChunkRangeBase:
    """Chunks `first` to `last` of a table, as named by the batch that publishes them.

    `low_watermark` is their low watermark. `low_batch` is the table's last batch when their read began.
    `read_id` names the rows that were read. Only the run that read them has them.

    `first_low_batch` is the low batch of the table snapshot's first chunk range. `read_before` and `rows_before` are
    the rows read and published before this range. So the last chunk range is enough to show the progress of the table
    snapshot. With `differences_only` no row is published that the state already has.
    """

    snapshot: str
    snapshot_kind: SnapshotKind
    first: int
    last: int
    low_watermark: Lsn
    low_batch: int
    first_low_batch: int
    fingerprint: str
    rows_before: int = 0
    read_id: str = ""
    counts: tuple[ChunkCounts, ...] = ()
    condition: str = ""
    read_before: int = 0
    differences_only: bool = False

    @property
    def begins_table(self) -> bool:
        """Whether it has the first chunk of a table that is read without a condition."""
        return not self.condition and self.first == 0

    @property
    def ends_table(self) -> bool:
        """Whether it has the last chunk of a table that is read without a condition."""
        return not self.condition and bool(self.counts) and not self.counts[-1].high

    @property
    def rows_read(self) -> int:
        """The number of rows that were read."""
        return sum(chunk.rows_read for chunk in self.counts)


@dataclass(frozen=True)
class KeyedChunks(ChunkRangeBase):
    """Chunks of a table with a key.

    `deletes_by_range`: rows of the target between the ends of the chunks are deleted if the chunks did not find them.
    They are not where Spark sorts keys differently from the source. Then a deletion of missing rows follows.
    """

    deletes_by_range: bool = False
    type: Literal["keyed_chunks"] = "keyed_chunks"

    @property
    def is_compared(self) -> bool:
        """Whether its rows are compared with the state before they are published."""
        return self.deletes_by_range or self.differences_only


@dataclass(frozen=True)
class KeylessRead(ChunkRangeBase):
    """A read of a table without a key, as one chunk.

    `windows` are those of the newest reads and, once it is planned, of this one. `needs_another_read`: another read is
    needed, or the need is not known yet. `covers_table`: rows that only the target has are deleted.
    """

    windows: tuple[BatchWindow, ...] = ()
    needs_another_read: bool = False
    covers_table: bool = False
    type: Literal["keyless_read"] = "keyless_read"


@dataclass(frozen=True)
class DeleteMissing(ChunkRangeBase):
    """The deletion of the rows that no batch after the low batch wrote. It publishes no rows."""

    type: Literal["delete_missing"] = "delete_missing"


ChunkRange: TypeAlias = KeyedChunks | KeylessRead | DeleteMissing
"""What a batch publishes of a snapshot."""


def chunk_bounds(table_snapshot: TableSnapshot, chunk: int) -> tuple[Bound, Bound]:
    """Return the bounds of a chunk: after the first, up to the second. A bound is empty where there is none."""
    low = table_snapshot.bounds[chunk - 1] if chunk > 0 else ()
    return low, table_snapshot.bounds[chunk] if chunk < len(table_snapshot.bounds) else ()


def deletion_range(table_snapshot: TableSnapshot, snapshot: str, kind: SnapshotKind, upto: Lsn) -> DeleteMissing:
    """Return the range that deletes the rows that a completely read table snapshot did not find."""
    assert table_snapshot.low_batch is not None
    return DeleteMissing(
        snapshot=snapshot,
        snapshot_kind=kind,
        first=0,
        last=table_snapshot.published_chunks - 1,
        low_watermark=upto,
        low_batch=table_snapshot.low_batch,
        first_low_batch=table_snapshot.low_batch,
        fingerprint=table_snapshot.fingerprint,
        read_before=table_snapshot.rows_read,
        rows_before=table_snapshot.rows_published,
    )


def with_chunks(
    table_snapshot: TableSnapshot, bounds: Sequence[Sequence[str]], fingerprint: str, in_one_group: bool = False
) -> TableSnapshot:
    """Return the table snapshot with its chunks known, and the columns that they are read with."""
    named = tuple(tuple(bound) for bound in bounds)
    return replace(table_snapshot, status="reading", bounds=named, fingerprint=fingerprint, in_one_group=in_one_group)


def restarted(table_snapshot: TableSnapshot, is_held: bool) -> TableSnapshot:
    """Return the table snapshot to be read from its beginning, as after a change of its columns.

    Published rows stay. Where the target holds rows of the table, a read of all of it shows which rows are missing.
    """
    delete_missing = table_snapshot.delete_missing or (
        is_held and not (table_snapshot.condition or table_snapshot.select)
    )
    fresh = TableSnapshot(
        table_snapshot.table,
        table_snapshot.condition,
        table_snapshot.surrogate,
        table_snapshot.select,
        delete_missing,
        differences_only=table_snapshot.differences_only,
    )
    return replace(fresh, reason=table_snapshot.reason)


def with_published(table_snapshot: TableSnapshot, chunk_range: ChunkRange, rows: int) -> TableSnapshot:
    """Return the table snapshot after the batch of a chunk range was applied with `rows` rows.

    The same chunk range again changes nothing. A chunk range that was read under other columns than the current ones is
    ignored.
    """
    if (
        not table_snapshot.is_open
        or chunk_range.fingerprint != table_snapshot.fingerprint
        or (chunk_range.last < table_snapshot.published_chunks and not isinstance(chunk_range, DeleteMissing))
    ):
        return table_snapshot
    after = replace(
        table_snapshot,
        status="reading",
        published_chunks=chunk_range.last + 1,
        rows_read=chunk_range.read_before + chunk_range.rows_read,
        rows_published=chunk_range.rows_before + rows,
        low_batch=chunk_range.first_low_batch,
        failures=0,
        reason="",
    )
    match chunk_range:
        case KeyedChunks(deletes_by_range=deletes):
            is_over = after.published_chunks == after.chunks and (deletes or not after.delete_missing)
        case KeylessRead(last=last, windows=windows, needs_another_read=needs_another):
            # A read that needs another one made no progress: the table changes all the time.
            failures, is_over = table_snapshot.failures if needs_another else 0, not needs_another
            after = replace(after, bounds=((),) * (last + needs_another), windows=windows, failures=failures)
        case DeleteMissing():
            is_over = True
    return replace(after, status="completed") if is_over else after


def has_same_bounds(table_snapshot: TableSnapshot, chunk_range: ChunkRange) -> bool:
    """Return whether a chunk range's chunks end where the table snapshot's do now.

    The same columns may have been cut again in between.
    """
    if not isinstance(chunk_range, KeyedChunks):
        return True
    is_known = chunk_range.last < table_snapshot.chunks
    return is_known and all(
        (chunk.low, chunk.high) == chunk_bounds(table_snapshot, index)
        for index, chunk in enumerate(chunk_range.counts, chunk_range.first)
    )


def with_failure(table_snapshot: TableSnapshot, reason: str, tries: int | None = MAX_FAILURES) -> TableSnapshot:
    """Return the table snapshot after a failure. The next ticks try it again, up to `tries` times (None: for ever)."""
    failures = table_snapshot.failures + 1
    is_over = tries is not None and failures >= tries
    return replace(
        table_snapshot, status="failed" if is_over else table_snapshot.status, failures=failures, reason=reason
    )


def with_stop(table_snapshot: TableSnapshot, reason: str) -> TableSnapshot:
    """Return the table snapshot ended on request. Published rows stay."""
    return replace(table_snapshot, status="stopped", reason=reason) if table_snapshot.is_open else table_snapshot
