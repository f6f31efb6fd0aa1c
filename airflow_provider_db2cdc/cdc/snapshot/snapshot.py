"""Snapshots under way: which tables, how far, and what comes next.

A snapshot is a list of parts, one a table, each cut into chunks. Chunks are read and published in groups; a group may
span the end of one table and the beginning of others. All here is pure: a snapshot is replaced by its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, Protocol

from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import MAX_FAILURES, ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId

Status = Literal["running", "paused", "completed", "failed", "stopped"]

OPEN: frozenset[Status] = frozenset({"running", "paused"})
LISTED, REASON_CHARACTERS = 20, 200
"""Of a snapshot's reason: the parts that it lists, and the characters of each one's."""


class QueuedSnapshot(Protocol):
    """A snapshot, or what is known of how far one is, as far as turns go."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def kind(self) -> SnapshotKind:
        """What kind of snapshot it is."""

    @property
    def open_table_ids(self) -> Collection[TableId]:
        """The tables of which something is left to do."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with its tables in the order in which they are read; `reason` says which did not complete, and why."""

    id: str
    kind: SnapshotKind
    tables: tuple[TableSnapshot, ...]
    channel: str = ""
    status: Status = "running"
    started_at_ms: int = 0
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.status in OPEN

    @property
    def open_tables(self) -> tuple[TableSnapshot, ...]:
        """The parts of which something is left to do."""
        return tuple(part for part in self.tables if self.is_open and part.is_open)

    @property
    def open_table_ids(self) -> tuple[TableId, ...]:
        """The tables of these parts."""
        return tuple(part.table for part in self.open_tables)

    def makes_no_progress(self, tables: Container[TableId]) -> bool:
        """Whether all that is left of it has failed, and come no further, as often as ends one that was asked for.

        Of `tables` alone, the pipeline's: nothing comes of one that it does not carry.
        """
        return all(part.failures >= MAX_FAILURES for part in self.open_tables if part.table in tables)

    def table_snapshot(self, table: TableId) -> TableSnapshot | None:
        """Return the table's part, None when it has none."""
        return next((part for part in self.tables if part.table == table), None)

    def with_table(self, part: TableSnapshot) -> Snapshot:
        """Return the snapshot with the part in the place of the table's old one, and closed if it was the last."""
        parts = tuple(part if old.table == part.table else old for old in self.tables)
        return replace(self, tables=parts)._settled()

    def _settled(self) -> Snapshot:
        """Return it closed once no part is open: it only ever completes with every part."""
        if not self.is_open or any(part.is_open for part in self.tables):
            return self
        ends = {part.status for part in self.tables}
        status: Status = "failed" if "failed" in ends else "stopped" if ends == {"stopped"} else "completed"
        return replace(self, status=status, reason=_left_out(self.tables))


def _left_out(parts: Iterable[TableSnapshot]) -> str:
    """Return which parts did not complete and why, the failed ones first; of many the first ones and a count."""
    lacking = sorted((part for part in parts if part.status != "completed"), key=lambda part: part.status != "failed")
    listed = [f"{part.status}: {part.table}{_because(part)}" for part in lacking[:LISTED]]
    more = [f"and {len(lacking) - LISTED} more"] if len(lacking) > LISTED else []
    return "; ".join(listed + more)


def _because(part: TableSnapshot) -> str:
    reason = " ".join(part.reason.removeprefix(f"{part.table}: ").split())
    shown = reason if len(reason) <= REASON_CHARACTERS else f"{reason[:REASON_CHARACTERS]}..."
    return f" ({shown})" if shown else ""


def without_progress(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as it was before anything of it was published, but for what has ended since."""
    parts = (
        replace(part, published_chunks=0, rows_read=0, rows_published=0, low_batch=None, failures=0)
        for part in snapshot.tables
    )
    return replace(snapshot, tables=tuple(parts))


def next_table_to_chunk(snapshot: Snapshot, begun: Mapping[TableId, int], chunks: int) -> TableId | None:
    """Return the table whose chunks must be known before the next group of up to `chunks` chunks can be formed."""
    room = _room(snapshot, chunks)
    for part in snapshot.open_tables:
        if room <= 0:
            return None
        if part.status == "waiting":
            return part.table
        room -= part.chunks - begun.get(part.table, part.published_chunks)
    return None


def next_group(snapshot: Snapshot, begun: Mapping[TableId, int], chunks: int) -> list[ChunkSpan]:
    """Return the next chunks to read, behind those `begun` (a table's next chunk): up to `chunks`, of several tables.

    A blocking snapshot is one group, so that all its tables come to stand at one mark.
    """
    room = _room(snapshot, chunks)
    group: list[ChunkSpan] = []
    for part in snapshot.open_tables:
        if part.status == "waiting":
            break
        first = begun.get(part.table, part.published_chunks)
        last = int(min(part.chunks, first + room)) - 1
        if first <= last:
            group.append(ChunkSpan(part.table, first, last))
            room -= last - first + 1
    return group


def may_publish(snapshot: Snapshot, tables: Collection[TableId]) -> bool:
    """Whether a group of these tables may be published: those of a blocking snapshot come to one mark, or stay."""
    unread = (part.table for part in snapshot.open_tables if part.published_chunks < part.chunks)
    return snapshot.kind != "blocking" or all(table in tables for table in unread)


def _room(snapshot: Snapshot, chunks: int) -> float:
    return inf if snapshot.kind == "blocking" else chunks


def snapshots_in_turn(snapshots: Iterable[QueuedSnapshot]) -> dict[TableId, str]:
    """Return of each table that snapshots have something left to do for the id of the one whose turn it is.

    That is an initial snapshot, else the one that was asked for first: the others wait for it.
    """
    found: dict[TableId, str] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.kind != "initial"):
        for table in snapshot.open_table_ids:
            found.setdefault(table, snapshot.id)
    return found
