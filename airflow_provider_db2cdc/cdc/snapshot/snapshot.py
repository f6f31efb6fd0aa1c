"""Snapshots under way: their tables, their progress, and the next step.

A snapshot is a list of table snapshots, each cut into chunks. Chunks are read and published in groups. A group may span
the end of one table and the beginning of others. All code here is pure: a snapshot is replaced by its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, Protocol

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import MAX_FAILURES, ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId

Status = Literal["running", "paused", "completed", "failed", "stopped"]

OPEN: frozenset[Status] = frozenset({"running", "paused"})
REASON_CHARACTERS = 200
"""Characters that a snapshot's reason has of each table's reason."""


class QueuedSnapshot(Protocol):
    """A snapshot or the progress of one, with what determines turns."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def kind(self) -> SnapshotKind:
        """What kind of snapshot it is."""

    @property
    def open_table_ids(self) -> Collection[TableId]:
        """The tables with work left."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with its tables in reading order. `reason` says which did not complete, and why."""

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
        """The table snapshots with work left."""
        return tuple(table_snapshot for table_snapshot in self.tables if self.is_open and table_snapshot.is_open)

    @property
    def open_table_ids(self) -> tuple[TableId, ...]:
        """The names of its open tables."""
        return tuple(table_snapshot.table for table_snapshot in self.open_tables)

    def makes_no_progress(self, tables: Container[TableId]) -> bool:
        """Return whether all open tables among `tables` have failed `MAX_FAILURES` times without progress.

        A requested snapshot ends after so many failures. `tables` are the pipeline's, because a table that the pipeline
        does not carry makes no progress.
        """
        return all(
            table_snapshot.failures >= MAX_FAILURES
            for table_snapshot in self.open_tables
            if table_snapshot.table in tables
        )

    def table_snapshot(self, table: TableId) -> TableSnapshot | None:
        """Return the snapshot of the table, None when it has none."""
        return next((table_snapshot for table_snapshot in self.tables if table_snapshot.table == table), None)

    def with_table(self, table_snapshot: TableSnapshot) -> Snapshot:
        """Return the snapshot with the new state of one of its tables, and closed if that was the last open one."""
        tables = tuple(table_snapshot if old.table == table_snapshot.table else old for old in self.tables)
        return replace(self, tables=tables)._settled()

    def _settled(self) -> Snapshot:
        """Return it closed once no table snapshot is open: it only ever completes with every one."""
        if not self.is_open or any(table_snapshot.is_open for table_snapshot in self.tables):
            return self
        ends = {table_snapshot.status for table_snapshot in self.tables}
        status: Status = "failed" if "failed" in ends else "stopped" if ends == {"stopped"} else "completed"
        return replace(self, status=status, reason=_left_out(self.tables))


def _left_out(table_snapshots: Iterable[TableSnapshot]) -> str:
    """Return which tables did not complete and why, the failed ones first: of many the first ones and a count."""
    lacking = sorted(
        (table_snapshot for table_snapshot in table_snapshots if table_snapshot.status != "completed"),
        key=lambda table_snapshot: table_snapshot.status != "failed",
    )
    listed = [
        f"{table_snapshot.status}: {table_snapshot.table}{_because(table_snapshot)}" for table_snapshot in lacking
    ]
    return shortened(listed, separator="; ")


def _because(table_snapshot: TableSnapshot) -> str:
    reason = " ".join(table_snapshot.reason.removeprefix(f"{table_snapshot.table}: ").split())
    shown = reason if len(reason) <= REASON_CHARACTERS else f"{reason[:REASON_CHARACTERS]}..."
    return f" ({shown})" if shown else ""


def without_progress(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as it was before any publication, except for tables that have ended since."""
    tables = (
        replace(table_snapshot, published_chunks=0, rows_read=0, rows_published=0, low_batch=None, failures=0)
        for table_snapshot in snapshot.tables
    )
    return replace(snapshot, tables=tuple(tables))


def next_table_to_chunk(snapshot: Snapshot, begun: Mapping[TableId, int], chunks: int) -> TableId | None:
    """Return the table whose chunks must be known before the next group of up to `chunks` chunks can be formed."""
    room = _room(snapshot, chunks)
    for table_snapshot in snapshot.open_tables:
        if room <= 0:
            return None
        if table_snapshot.status == "waiting":
            return table_snapshot.table
        room -= table_snapshot.chunks - begun.get(table_snapshot.table, table_snapshot.published_chunks)
    return None


def next_group(snapshot: Snapshot, begun: Mapping[TableId, int], chunks: int) -> list[ChunkSpan]:
    """Return the next chunks to read, up to `chunks`, of several tables.

    `begun` has the next chunk of tables whose reading has begun. A blocking snapshot is one group, so that all its
    tables reach one watermark. A table that is compared as a whole may exceed the number.
    """
    room = _room(snapshot, chunks)
    group: list[ChunkSpan] = []
    for table_snapshot in snapshot.open_tables:
        if table_snapshot.status == "waiting":
            break
        first = begun.get(table_snapshot.table, table_snapshot.published_chunks)
        is_whole = table_snapshot.in_one_group and room > 0
        last = int(table_snapshot.chunks if is_whole else min(table_snapshot.chunks, first + room)) - 1
        if first <= last:
            group.append(ChunkSpan(table_snapshot.table, first, last))
            room -= last - first + 1
    return group


def may_publish(snapshot: Snapshot, tables: Collection[TableId]) -> bool:
    """Return whether a group of these tables may be published.

    The tables of a blocking snapshot reach one watermark together, or stay unpublished.
    """
    unread = (
        table_snapshot.table
        for table_snapshot in snapshot.open_tables
        if table_snapshot.published_chunks < table_snapshot.chunks
    )
    return snapshot.kind != "blocking" or all(table in tables for table in unread)


def _room(snapshot: Snapshot, chunks: int) -> float:
    return inf if snapshot.kind == "blocking" else chunks


def snapshots_in_turn(snapshots: Iterable[QueuedSnapshot]) -> dict[TableId, str]:
    """Return for each table with open work the id of the snapshot whose turn it is.

    That is an initial snapshot, or else the one that was requested first. The others wait for it.
    """
    holders: dict[TableId, str] = {}
    for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.kind != "initial"):
        for table in snapshot.open_table_ids:
            holders.setdefault(table, snapshot.id)
    return holders
