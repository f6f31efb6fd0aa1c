"""The lines of a tick's log on each table and snapshot."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.job import TableResult
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, describe_tables


def describe_table(table: TableResult, source_ms: int) -> str:
    """Return a table's line in the log. The lag is the age of the newest applied commit, in seconds.

    `source_ms` is the source's local time in milliseconds. Like commit times, it is treated as UTC.
    """
    counts = f"+{table.creates} ~{table.updates} -{table.deletes} r{table.reads}"
    rows = "" if table.rows is None else f" rows={table.rows}"
    lag = "" if table.commit_ts_ms is None else f" lag={max(0, source_ms - table.commit_ts_ms) / 1000:.1f}s"
    error = f" error: {table.error}" if table.error else ""
    return f"table={table.table} {table.status} {counts}{rows} lsn={table.lsn or 'none'}{lag}{error}"


def describe_snapshot(snapshot: SnapshotProgress) -> str:
    """Return a line on how far a snapshot and each of its tables is."""
    parts = [
        f"{table} {status} {chunks}{f' ({reason})' if reason else ''}"
        for table, status, chunks, _, reason in describe_tables(snapshot)
    ]
    return f"{snapshot}; {', '.join(parts)}"
