"""One table of a snapshot: how far it is, the chunks of it that a batch publishes, and what that makes of it.

All here is pure: a part is replaced by its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.table import TableId

Bound = tuple[str, ...]
"""A key as SQL literals, one a key column."""

BatchWindow = tuple[int, int]
"""Batches, behind the first one and up to the second."""

TableSnapshotStatus = Literal["waiting", "reading", "completed", "failed", "stopped"]
OPEN_STATUSES: frozenset[TableSnapshotStatus] = frozenset({"waiting", "reading"})
MAX_FAILURES = 3


@dataclass(frozen=True)
class TableSnapshot:
    """One table of a snapshot; `select` is read instead of the whole table, as one chunk.

    `bounds` are the keys that end its chunks but for the last one's; `published_chunks` chunks are published,
    `rows_published` rows of the `rows_read` ones as `r`. `low_batch` is the first published group's; `fingerprint` that
    of the columns which it is read with. `delete_missing` says that rows of the target which the snapshot does not find
    are to be deleted; so are rows of which the `abandoned_batches` batches, given up when it began, have told in the
    change log. `failures` counts the ticks that it failed in since a read of it last brought it on.

    A table without a key is one chunk, and one more for each further read that it needs (cdc.copies); `windows` are the
    batches, behind one and up to the other, that the newest of these reads lay in.
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
    abandoned_batches: tuple[int, ...] = ()

    @property
    def chunks(self) -> int:
        """How many chunks it has; known once it is being read."""
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
    """One chunk that was read: the bounds that it lies between, its rows, and what the source counted right after."""

    low: Bound
    high: Bound
    rows_read: int
    rows_counted: int


@dataclass(frozen=True)
class ChunkRange:
    """Chunks that were read, as the batch that publishes them names them.

    `low_watermark` is their low mark and `low_batch` the table's last batch when their read began; `staging_version` is
    the version of the table's staging table that holds just these rows. `first_low_batch` is the low batch of its
    part's first slice, `read_before` and `rows_before` what the part read and published before it, so that the last
    slice alone tells how far the part is. `covers_key_range` says that rows of the target which its chunks should have
    found are deleted with it. Where Spark does not sort keys as the source does, or batches were `abandoned_batches`, a
    sweep does so at the end: it publishes none, and deletes the rows that no batch behind its low batch wrote.

    Of a table without a key, `windows` are those of its part's newest reads and of this one; `needs_another_read` says
    that another read is needed, or that nobody knows yet.
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
    staging_version: int = 0
    counts: tuple[ChunkCounts, ...] = ()
    condition: str = ""
    delete_missing: bool = False
    windows: tuple[BatchWindow, ...] = ()
    covers_key_range: bool = False
    needs_another_read: bool = False
    read_before: int = 0
    abandoned_batches: tuple[int, ...] = ()

    @property
    def deletes_by_range(self) -> bool:
        """Whether what the target has between the ends of its chunks, and they did not find, is gone."""
        return self.covers_key_range and not self.windows


def chunk_bounds(part: TableSnapshot, chunk: int) -> tuple[Bound, Bound]:
    """Return the bounds that a chunk lies between: beyond the first, up to the second; empty where there is none."""
    low = part.bounds[chunk - 1] if chunk > 0 else ()
    return low, part.bounds[chunk] if chunk < len(part.bounds) else ()


def deletion_range(part: TableSnapshot, snapshot: str, kind: SnapshotKind, upto: Lsn) -> ChunkRange:
    """Return the range that deletes what a table snapshot that was read to its end did not find.

    It publishes no rows. A row is missing if no batch after `low_batch` wrote it.
    """
    assert part.low_batch is not None
    return ChunkRange(
        snapshot=snapshot,
        snapshot_kind=kind,
        first=0,
        last=part.published_chunks - 1,
        low_watermark=upto,
        low_batch=part.low_batch,
        first_low_batch=part.low_batch,
        fingerprint=part.fingerprint,
        read_before=part.rows_read,
        rows_before=part.rows_published,
        delete_missing=True,
        abandoned_batches=part.abandoned_batches,
    )


def with_chunks(part: TableSnapshot, bounds: Sequence[Sequence[str]], fingerprint: str) -> TableSnapshot:
    """Return the part with its chunks known, and the columns that they are read with."""
    named = tuple(tuple(bound) for bound in bounds)
    return replace(part, status="reading", bounds=named, fingerprint=fingerprint)


def restarted(part: TableSnapshot, is_held: bool) -> TableSnapshot:
    """Return the part to be read from its beginning, if need be once more: under columns that have changed.

    What it has published stays. Where the target holds rows of the table, a read of all of it tells which are gone.
    """
    sweep = part.delete_missing or (is_held and not (part.condition or part.select))
    asked = TableSnapshot(
        part.table, part.condition, part.surrogate, part.select, sweep, abandoned_batches=part.abandoned_batches
    )
    return replace(asked, reason=part.reason)


def with_published(part: TableSnapshot, chunk_range: ChunkRange, rows: int) -> TableSnapshot:
    """Return the part after a slice's batch was applied, with as many rows; the same one again changes nothing.

    A slice that was read under other columns than the part is now tells nothing of it.
    """
    if (
        not part.is_open
        or chunk_range.fingerprint != part.fingerprint
        or (chunk_range.last < part.published_chunks and not chunk_range.delete_missing)
    ):
        return part
    after = replace(
        part,
        status="reading",
        published_chunks=chunk_range.last + 1,
        bounds=((),) * (chunk_range.last + chunk_range.needs_another_read) if chunk_range.windows else part.bounds,
        rows_read=chunk_range.read_before + sum(chunk.rows_read for chunk in chunk_range.counts),
        rows_published=chunk_range.rows_before + rows,
        low_batch=chunk_range.first_low_batch,
        windows=chunk_range.windows,
        # A read that asks for another one has not helped a table that is never at rest.
        failures=part.failures if chunk_range.needs_another_read else 0,
        reason="",
    )
    is_over = chunk_range.delete_missing or (
        after.published_chunks == after.chunks
        and (chunk_range.covers_key_range or bool(chunk_range.windows) or not after.delete_missing)
    )
    return replace(after, status="completed") if is_over else after


def has_same_bounds(part: TableSnapshot, chunk_range: ChunkRange) -> bool:
    """Whether a slice's chunks end where the part's do now: under its columns it may have been cut anew since."""
    if chunk_range.windows or chunk_range.delete_missing:
        return True
    is_known = chunk_range.last < part.chunks
    return is_known and all(
        (one.low, one.high) == chunk_bounds(part, at) for at, one in enumerate(chunk_range.counts, chunk_range.first)
    )


def with_failure(part: TableSnapshot, reason: str, tries: int | None = MAX_FAILURES) -> TableSnapshot:
    """Return the part after a failure: the next ticks try it again, as often as `tries` says (None: for ever)."""
    failures = part.failures + 1
    is_over = tries is not None and failures >= tries
    return replace(part, status="failed" if is_over else part.status, failures=failures, reason=reason)


def with_stop(part: TableSnapshot, reason: str) -> TableSnapshot:
    """Return the part ended on request; what it has published stays."""
    return replace(part, status="stopped", reason=reason) if part.is_open else part
