"""One table of a snapshot: how far it is, the chunks of it that a batch publishes, and what that makes of it.

All here is pure: a part is replaced by its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.table import TableId

Bound = tuple[str, ...]
"""A key as SQL literals, one a key column."""

Window = tuple[int, int]
"""Batches, behind the first one and up to the second."""

PartStatus = Literal["waiting", "reading", "completed", "failed", "stopped"]
OPEN_PARTS: frozenset[PartStatus] = frozenset({"waiting", "reading"})
MAX_FAILURES = 3


@dataclass(frozen=True)
class Part:
    """One table of a snapshot; `select` is read instead of the whole table, as one chunk.

    `bounds` are the keys that end its chunks but for the last one's; `done` chunks are published, `rows` rows of the
    `read` ones as `r`. `low_batch` is the first published group's; `fingerprint` that of the columns which it is read
    with. `sweep` says that rows of the target which the snapshot does not find are to be deleted; so are rows of which
    the `left` batches, given up when it began, have told in the change log. `failures` counts the ticks that it failed
    in since a read of it last brought it on.

    A table without a key is one chunk, and one more for each further read that it needs (cdc.copies); `windows` are the
    batches, behind one and up to the other, that the newest of these reads lay in.
    """

    table: TableId
    condition: str = ""
    surrogate: str = ""
    select: str = ""
    sweep: bool = False
    status: PartStatus = "waiting"
    bounds: tuple[Bound, ...] = ()
    done: int = 0
    rows: int = 0
    low_batch: int | None = None
    windows: tuple[Window, ...] = ()
    fingerprint: str = ""
    failures: int = 0
    reason: str = ""
    read: int = 0
    left: tuple[int, ...] = ()

    @property
    def chunks(self) -> int:
        """How many chunks it has; known once it is being read."""
        return len(self.bounds) + 1

    @property
    def open(self) -> bool:
        """Whether something of it is left to do."""
        return self.status in OPEN_PARTS


@dataclass(frozen=True)
class Reading:
    """Neighbouring chunks of one table, `first` to `last` inclusive, that are to be read together."""

    table: TableId
    first: int
    last: int


@dataclass(frozen=True)
class ChunkCounts:
    """One chunk that was read: the bounds that it lies between, its rows, and what the source counted right after."""

    low: Bound
    high: Bound
    read: int
    counted: int


@dataclass(frozen=True)
class Slice:
    """Chunks that were read, as the batch that publishes them names them.

    `low` is their low mark and `low_batch` the table's last batch when their read began; `staging_version` is the
    version of the table's staging table that holds just these rows. `begun_batch` is the low batch of its part's first
    slice, `read_before` and `rows_before` what the part read and published before it, so that the last slice alone
    tells how far the part is.
    `whole` says that rows of the target which its chunks should have found are deleted with it. Where Spark does not
    sort keys as the source does, or batches were `left`, a sweep does so at the end: it publishes none, and deletes the
    rows that no batch behind its low batch wrote.

    Of a table without a key, `windows` are those of its part's newest reads and of this one; `again` says that
    another read is needed, or that nobody knows yet.
    """

    snapshot: str
    kind: SnapshotKind
    first: int
    last: int
    low: Lsn
    low_batch: int
    begun_batch: int
    fingerprint: str
    rows_before: int = 0
    staging_version: int = 0
    counts: tuple[ChunkCounts, ...] = ()
    condition: str = ""
    sweep: bool = False
    windows: tuple[Window, ...] = ()
    whole: bool = False
    again: bool = False
    read_before: int = 0
    left: tuple[int, ...] = ()

    @property
    def covers_range(self) -> bool:
        """Whether what the target has between the ends of its chunks, and they did not find, is gone."""
        return self.whole and not self.windows


def ends(part: Part, chunk: int) -> tuple[Bound, Bound]:
    """Return the bounds that a chunk lies between: beyond the first, up to the second; empty where there is none."""
    low = part.bounds[chunk - 1] if chunk > 0 else ()
    return low, part.bounds[chunk] if chunk < len(part.bounds) else ()


def chunked(part: Part, bounds: Sequence[Sequence[str]], fingerprint: str) -> Part:
    """Return the part with its chunks known, and the columns that they are read with."""
    named = tuple(tuple(bound) for bound in bounds)
    return replace(part, status="reading", bounds=named, fingerprint=fingerprint)


def from_start(part: Part, is_held: bool) -> Part:
    """Return the part to be read from its beginning, if need be once more: under columns that have changed.

    What it has published stays. Where the target holds rows of the table, a read of all of it tells which are gone.
    """
    sweep = part.sweep or (is_held and not (part.condition or part.select))
    asked = Part(part.table, part.condition, part.surrogate, part.select, sweep, left=part.left)
    return replace(asked, reason=part.reason)


def published(part: Part, of: Slice, rows: int) -> Part:
    """Return the part after a slice's batch was applied, with as many rows; the same one again changes nothing.

    A slice that was read under other columns than the part is now tells nothing of it.
    """
    if not part.open or of.fingerprint != part.fingerprint or (of.last < part.done and not of.sweep):
        return part
    after = replace(
        part,
        status="reading",
        done=of.last + 1,
        bounds=((),) * (of.last + of.again) if of.windows else part.bounds,
        read=of.read_before + sum(chunk.read for chunk in of.counts),
        rows=of.rows_before + rows,
        low_batch=of.begun_batch,
        windows=of.windows,
        # A read that asks for another one has not helped a table that is never at rest.
        failures=part.failures if of.again else 0,
        reason="",
    )
    is_over = of.sweep or (after.done == after.chunks and (of.whole or bool(of.windows) or not after.sweep))
    return replace(after, status="completed") if is_over else after


def is_cut_alike(part: Part, of: Slice) -> bool:
    """Whether a slice's chunks end where the part's do now: under its columns it may have been cut anew since."""
    if of.windows or of.sweep:
        return True
    is_known = of.last < part.chunks
    return is_known and all((one.low, one.high) == ends(part, at) for at, one in enumerate(of.counts, of.first))


def failed(part: Part, reason: str, tries: int | None = MAX_FAILURES) -> Part:
    """Return the part after a failure: the next ticks try it again, as often as `tries` says (None: for ever)."""
    failures = part.failures + 1
    is_over = tries is not None and failures >= tries
    return replace(part, status="failed" if is_over else part.status, failures=failures, reason=reason)


def stopped(part: Part, reason: str) -> Part:
    """Return the part ended on request; what it has published stays."""
    return replace(part, status="stopped", reason=reason) if part.open else part
