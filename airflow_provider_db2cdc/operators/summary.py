"""What a tick's log says of each table."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.job import TableResult
from airflow_provider_db2cdc.cdc.snapshot import SnapshotProgress


def change_count(table: TableResult) -> int:
    """Return how many events this tick wrote for a table."""
    return table.creates + table.updates + table.deletes + table.reads


def describe_table(table: TableResult, now_ms: int) -> str:
    """Return a table's line of the tick's summary; the lag is the age of the newest commit that was applied."""
    counts = f"+{table.creates} ~{table.updates} -{table.deletes} r{table.reads}"
    rows = "" if table.rows is None else f" rows={table.rows}"
    lag = "" if table.commit_ts_ms is None else f" lag={max(0, now_ms - table.commit_ts_ms) / 1000:.1f}s"
    error = f" error: {table.error}" if table.error else ""
    return f"table={table.table} {table.status} {counts}{rows} lsn={table.lsn or 'none'}{lag}{error}"


def describe_snapshot(snapshot: SnapshotProgress) -> str:
    """Return how far a snapshot is, in a line."""
    rows = sum(part.rows for part in snapshot.parts)
    tables = ", ".join(f"{part.table} {part.done}/{part.chunks or '?'} {part.status}" for part in snapshot.parts)
    chunks = f"{snapshot.done} of {snapshot.chunks or '?'} chunks"
    return f"snapshot {snapshot.id} ({snapshot.kind}) {snapshot.status}: {chunks}, {rows} rows; {tables}"
