"""How far snapshots are, for people: in logs, XCom and `db2cdc status`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.snapshot import OPEN, Snapshot, Status
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import OPEN_STATUSES, TableSnapshot, TableSnapshotStatus
from airflow_provider_db2cdc.cdc.table import TableId


@dataclass(frozen=True)
class TableSnapshotProgress:
    """How far one table of a snapshot is; `chunks` is None while they are not counted."""

    table: TableId
    status: TableSnapshotStatus
    published_chunks: int
    chunks: int | None
    rows: int
    reason: str = ""


@dataclass(frozen=True)
class SnapshotProgress:
    """How far a snapshot is; `remaining_s` is about how long the rest takes ticks, None where that cannot be told."""

    id: str
    kind: SnapshotKind
    status: Status
    tables: tuple[TableSnapshotProgress, ...]
    started_at_ms: int
    reason: str = ""
    remaining_s: int | None = None

    @property
    def done(self) -> int:
        """Chunks published."""
        return sum(part.published_chunks for part in self.tables)

    @property
    def chunks(self) -> int | None:
        """Chunks in all; None while those of some table are not counted."""
        counts = [part.chunks for part in self.tables]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def rows(self) -> int:
        """Rows published."""
        return sum(part.rows for part in self.tables)

    @property
    def open_table_ids(self) -> tuple[TableId, ...]:
        """The tables of which something is left to do."""
        return tuple(part.table for part in self.tables if part.status in OPEN_STATUSES and self.status in OPEN)

    def __str__(self) -> str:
        """Say it in a line."""
        known = sum(part.chunks or 0 for part in self.tables)
        in_all = self.chunks or (f"more than {known}" if known else "?")
        over = sum(part.status not in OPEN_STATUSES for part in self.tables)
        tables = f"{over} of {len(self.tables)} tables, " if len(self.tables) > 1 else ""
        left = "" if self.remaining_s is None else f", about {self.remaining_s} s more"
        told = f"{tables}{self.done} of {in_all} chunks, {self.rows} rows{left}"
        return f"snapshot {self.id} ({self.kind}) {self.status}: {told}"

    def at_pace(self, done: int, seconds: float) -> SnapshotProgress:
        """Return it with how long the rest takes, if the chunks after `published_chunks` took so many seconds."""
        is_known = self.status in OPEN and self.chunks is not None and self.done > done
        left_s = (seconds / (self.done - done) * (self.chunks - self.done)) if is_known and self.chunks else None
        return replace(self, remaining_s=None if left_s is None else round(left_s))


def progress(snapshot: Snapshot) -> SnapshotProgress:
    """Return how far the snapshot is."""
    parts = tuple(
        TableSnapshotProgress(
            part.table,
            part.status,
            part.published_chunks,
            _chunks(part),
            part.rows_published,
            part.reason,
        )
        for part in snapshot.tables
    )
    return SnapshotProgress(snapshot.id, snapshot.kind, snapshot.status, parts, snapshot.started_at_ms, snapshot.reason)


def describe_applied(done: int, tables: int, seconds: float) -> str:
    """Say how many of a batch's tables are applied, and about how long the rest takes where these took `seconds`."""
    left = f", about {round(seconds / done * (tables - done))} s more" if done < tables else ""
    return f"{done} of {tables} tables{left}"


def _chunks(part: TableSnapshot) -> int | None:
    """Return how many chunks a part comes to; a stopped one has come to its end."""
    if part.status in ("stopped", "failed"):
        return part.published_chunks
    return None if part.status == "waiting" else part.chunks


def describe_tables(snapshot: SnapshotProgress) -> list[tuple[str, str, str, str, str]]:
    """Return of each of its tables the name, the status, the chunks, the rows and the reason, as texts."""
    is_paused = snapshot.status == "paused"
    return [
        (
            str(part.table),
            "paused" if is_paused and part.status in OPEN_STATUSES else part.status,
            f"{part.published_chunks} of {'?' if part.chunks is None else part.chunks}",
            str(part.rows),
            part.reason,
        )
        for part in snapshot.tables
    ]
