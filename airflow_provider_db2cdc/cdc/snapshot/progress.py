"""Progress of snapshots for people: in logs, XCom and `db2cdc status`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.snapshot import OPEN, Snapshot, Status
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import OPEN_STATUSES, TableSnapshot, TableSnapshotStatus
from airflow_provider_db2cdc.cdc.table import TableId


@dataclass(frozen=True)
class TableSnapshotProgress:
    """The progress of one table of a snapshot. `chunks` is None until they are counted."""

    table: TableId
    status: TableSnapshotStatus
    published_chunks: int
    chunks: int | None
    rows: int
    reason: str = ""


@dataclass(frozen=True)
class SnapshotProgress:
    """The progress of a snapshot. `remaining_s` estimates the seconds of ticks for the rest, None if unknown."""

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
        return sum(table.published_chunks for table in self.tables)

    @property
    def chunks(self) -> int | None:
        """Chunks in total, None until those of every table are counted."""
        counts = [table.chunks for table in self.tables]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def rows(self) -> int:
        """Rows published."""
        return sum(table.rows for table in self.tables)

    @property
    def open_table_ids(self) -> tuple[TableId, ...]:
        """The tables with work left."""
        return tuple(table.table for table in self.tables if table.status in OPEN_STATUSES and self.status in OPEN)

    def __str__(self) -> str:
        """Describe it in a line."""
        known = sum(table.chunks or 0 for table in self.tables)
        total = self.chunks or (f"more than {known}" if known else "?")
        over = sum(table.status not in OPEN_STATUSES for table in self.tables)
        tables = f"{over} of {len(self.tables)} tables, " if len(self.tables) > 1 else ""
        left = "" if self.remaining_s is None else f", about {self.remaining_s} s more"
        text = f"{tables}{self.done} of {total} chunks, {self.rows} rows{left}"
        return f"snapshot {self.id} ({self.kind}) {self.status}: {text}"

    def at_pace(self, done: int, seconds: float) -> SnapshotProgress:
        """Return it with the estimated time of the rest, if the published chunks after `done` took `seconds`."""
        is_known = self.status in OPEN and self.chunks is not None and self.done > done
        left_s = (seconds / (self.done - done) * (self.chunks - self.done)) if is_known and self.chunks else None
        return replace(self, remaining_s=None if left_s is None else round(left_s))


def progress(snapshot: Snapshot) -> SnapshotProgress:
    """Return the progress of the snapshot."""
    tables = tuple(
        TableSnapshotProgress(
            table_snapshot.table,
            table_snapshot.status,
            table_snapshot.published_chunks,
            _chunks(table_snapshot),
            table_snapshot.rows_published,
            table_snapshot.reason,
        )
        for table_snapshot in snapshot.tables
    )
    return SnapshotProgress(
        snapshot.id, snapshot.kind, snapshot.status, tables, snapshot.started_at_ms, snapshot.reason
    )


def describe_applied(done: int, tables: int, seconds: float) -> str:
    """Describe how many of a batch's tables are applied, and how long the rest takes if these took `seconds`."""
    left = f", about {round(seconds / done * (tables - done))} s more" if done < tables else ""
    return f"{done} of {tables} tables{left}"


def _chunks(table_snapshot: TableSnapshot) -> int | None:
    """Return the number of a table's chunks, None if unknown. A stopped or failed table counts as complete."""
    if table_snapshot.status in ("stopped", "failed"):
        return table_snapshot.published_chunks
    return None if table_snapshot.status == "waiting" else table_snapshot.chunks


def describe_tables(snapshot: SnapshotProgress) -> list[tuple[str, str, str, str, str]]:
    """Return for each of its tables the name, the status, the chunks, the rows and the reason, as texts."""
    is_paused = snapshot.status == "paused"
    return [
        (
            str(table_snapshot.table),
            "paused" if is_paused and table_snapshot.status in OPEN_STATUSES else table_snapshot.status,
            f"{table_snapshot.published_chunks} of {'?' if table_snapshot.chunks is None else table_snapshot.chunks}",
            str(table_snapshot.rows),
            table_snapshot.reason,
        )
        for table_snapshot in snapshot.tables
    ]
