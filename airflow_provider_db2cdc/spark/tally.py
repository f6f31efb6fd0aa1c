"""Ranges that end beyond what the plan has counted, counted at the source before they are pulled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.gap import gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.ledger import Entry
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.progress import describe, say
from airflow_provider_db2cdc.sql.asn import count_changes, floors


def counted(
    spec: JobSpec, entries: Sequence[Entry], connection: DriverConnection, fail: Callable[[TableId, GapError], None]
) -> list[Entry]:
    """Return entries, those whose ranges, all captured, end beyond the plan's with what the source counts there.

    Something may have been pruned by then, and so not be counted: such a table is left out, and fails.
    """
    tasks = {task.table: task for task in spec.tables}
    beyond = [entry for entry in entries if not entry.span.empty and entry.upto > tasks[entry.table].upto]
    if not beyond:
        return list(entries)
    rows = _rows([tasks[entry.table] for entry in beyond], beyond, connection)
    gaps = dict(_gaps(spec, beyond, connection))
    for table, gap in gaps.items():
        fail(table, gap)
    return [replace(entry, rows=rows.get(entry.table, entry.rows)) for entry in entries if entry.table not in gaps]


def _rows(tasks: Sequence[TableTask], entries: Sequence[Entry], connection: DriverConnection) -> dict[TableId, int]:
    ranges = [(task.capture, entry.span) for task, entry in zip(tasks, entries, strict=True)]
    try:
        counts = connection.text_rows(count_changes(ranges).text)
    except Exception as error:
        say(f"changes could not be counted, so they are read: {describe(error)}")
        return {}
    return {entries[int(place or 0)].table: int(count or 0) for place, count in counts}


def _gaps(spec: JobSpec, entries: Sequence[Entry], connection: DriverConnection) -> Iterator[tuple[TableId, GapError]]:
    """Return the tables whose floor has moved beyond where their ranges begin; asked for behind the count."""
    rows = connection.text_rows(floors(spec.source.asn_schema).text)
    known = {TableId((owner or "").rstrip(), (name or "").rstrip()): floor for owner, name, floor in rows}
    for entry in entries:
        floor = known.get(entry.table)
        if floor and entry.after < (moved := Lsn.parse(floor)):
            gap = f"changes up to {moved} are pruned, and only those up to {entry.after} were read"
            yield entry.table, gap_error(entry.table, gap)
