"""Snapshots under way: which tables, how far, and what comes next.

A snapshot is a list of parts, one a table, each cut into chunks. Chunks are read and published in groups; a group may
span the end of one table and the beginning of others. All here is pure: a snapshot is replaced by its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.table import TableId

Bound = tuple[str, ...]
"""A key as SQL literals, one a key column."""

Window = tuple[int, int]
"""Batches, behind the first one and up to the second."""

PartStatus = Literal["waiting", "reading", "completed", "failed", "stopped"]
Status = Literal["running", "paused", "completed", "failed", "stopped"]

OPEN_PARTS: frozenset[PartStatus] = frozenset({"waiting", "reading"})
OPEN: frozenset[Status] = frozenset({"running", "paused"})
MAX_FAILURES = 3
LISTED, REASON_CHARACTERS = 20, 200
"""Of a snapshot's reason: the parts that it lists, and the characters of each one's."""


@dataclass(frozen=True)
class Part:
    """One table of a snapshot; `select` is read instead of the whole table, as one chunk.

    `bounds` are the keys that end its chunks but for the last one's; `done` chunks are published, `rows` rows of the
    `read` ones as `r`. `low_batch` is the first published group's; `fingerprint` that of the columns which it is read
    with. `sweep` says that rows of the target which the snapshot does not find are to be deleted. `failures` counts the
    ticks that it failed in.

    A table without a key is one chunk, and one more for each further read that it needs (cdc.copies); `windows` are the
    batches, behind one and up to the other, that these reads lay in.
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
    sort keys as the source does, a sweep does so at the end: it publishes none, and deletes the rows that no batch
    behind its low batch wrote.

    Of a table without a key, `windows` are those of all its part's reads so far and of this one; `again` says that
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

    @property
    def covers_range(self) -> bool:
        """Whether what the target has between the ends of its chunks, and they did not find, is gone."""
        return self.whole and not self.windows


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with its tables in the order in which they are read; `reason` says which did not complete, and why."""

    id: str
    kind: SnapshotKind
    parts: tuple[Part, ...]
    channel: str = ""
    status: Status = "running"
    started_at_ms: int = 0
    reason: str = ""

    @property
    def open(self) -> bool:
        """Whether it is not over."""
        return self.status in OPEN

    @property
    def open_parts(self) -> tuple[Part, ...]:
        """The parts of which something is left to do."""
        return tuple(part for part in self.parts if self.open and part.open)

    def part(self, table: TableId) -> Part | None:
        """Return the table's part, None when it has none."""
        return next((part for part in self.parts if part.table == table), None)

    def with_part(self, part: Part) -> Snapshot:
        """Return the snapshot with the part in the place of the table's old one, and closed if it was the last."""
        parts = tuple(part if old.table == part.table else old for old in self.parts)
        return replace(self, parts=parts)._settled()

    def _settled(self) -> Snapshot:
        """Return it closed once no part is open: it only ever completes with every part."""
        if not self.open or any(part.open for part in self.parts):
            return self
        ends = {part.status for part in self.parts}
        status: Status = "failed" if "failed" in ends else "stopped" if ends == {"stopped"} else "completed"
        return replace(self, status=status, reason=_left_out(self.parts))


def _left_out(parts: Iterable[Part]) -> str:
    """Return which parts did not complete and why, the failed ones first; of many the first ones and a count."""
    lacking = sorted((part for part in parts if part.status != "completed"), key=lambda part: part.status != "failed")
    listed = [f"{part.status}: {part.table}{_because(part)}" for part in lacking[:LISTED]]
    more = [f"and {len(lacking) - LISTED} more"] if len(lacking) > LISTED else []
    return "; ".join(listed + more)


def _because(part: Part) -> str:
    reason = " ".join(part.reason.removeprefix(f"{part.table}: ").split())
    shown = reason if len(reason) <= REASON_CHARACTERS else f"{reason[:REASON_CHARACTERS]}..."
    return f" ({shown})" if shown else ""


def ends(part: Part, chunk: int) -> tuple[Bound, Bound]:
    """Return the bounds that a chunk lies between: beyond the first, up to the second; empty where there is none."""
    low = part.bounds[chunk - 1] if chunk > 0 else ()
    return low, part.bounds[chunk] if chunk < len(part.bounds) else ()


def chunked(part: Part, bounds: Sequence[Sequence[str]], fingerprint: str) -> Part:
    """Return the part with its chunks known, and the columns that they are read with."""
    named = tuple(tuple(bound) for bound in bounds)
    return replace(part, status="reading", bounds=named, fingerprint=fingerprint)


def renewed(part: Part) -> Part:
    """Return the part to be read from its beginning, under columns that have changed; what it has published stays."""
    return Part(part.table, part.condition, part.surrogate, part.select, part.sweep, reason=part.reason)


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
        failures=0,
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


def without_progress(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as it was before anything of it was published, but for what has ended since."""
    parts = (replace(part, done=0, read=0, rows=0, low_batch=None, failures=0) for part in snapshot.parts)
    return replace(snapshot, parts=tuple(parts))


def failed(part: Part, reason: str, tries: int | None = MAX_FAILURES) -> Part:
    """Return the part after a failure: the next ticks try it again, as often as `tries` says (None: for ever)."""
    failures = part.failures + 1
    is_over = tries is not None and failures >= tries
    return replace(part, status="failed" if is_over else part.status, failures=failures, reason=reason)


def stopped(part: Part, reason: str) -> Part:
    """Return the part ended on request; what it has published stays."""
    return replace(part, status="stopped", reason=reason) if part.open else part


def next_to_chunk(snapshot: Snapshot, begun: Mapping[TableId, int], chunks: int) -> TableId | None:
    """Return the table whose chunks must be known before the next group of up to `chunks` chunks can be formed."""
    room = _room(snapshot, chunks)
    for part in snapshot.open_parts:
        if room <= 0:
            return None
        if part.status == "waiting":
            return part.table
        room -= part.chunks - begun.get(part.table, part.done)
    return None


def next_group(snapshot: Snapshot, begun: Mapping[TableId, int], chunks: int) -> list[Reading]:
    """Return the next chunks to read, behind those `begun` (a table's next chunk): up to `chunks`, of several tables.

    A blocking snapshot is one group, so that all its tables come to stand at one mark.
    """
    room = _room(snapshot, chunks)
    group: list[Reading] = []
    for part in snapshot.open_parts:
        if part.status == "waiting":
            break
        first = begun.get(part.table, part.done)
        last = int(min(part.chunks, first + room)) - 1
        if first <= last:
            group.append(Reading(part.table, first, last))
            room -= last - first + 1
    return group


def is_together(snapshot: Snapshot, tables: Collection[TableId]) -> bool:
    """Whether a group of these tables may be published: those of a blocking snapshot come to one mark, or stay."""
    unread = (part.table for part in snapshot.open_parts if part.done < part.chunks)
    return snapshot.kind != "blocking" or all(table in tables for table in unread)


def _room(snapshot: Snapshot, chunks: int) -> float:
    return inf if snapshot.kind == "blocking" else chunks


def find_open(snapshots: Iterable[Snapshot], table: TableId) -> Snapshot | None:
    """Return the open snapshot that has something left to do for the table, None when there is none."""
    for snapshot in snapshots:
        part = snapshot.part(table) if snapshot.open else None
        if part is not None and part.open:
            return snapshot
    return None
