"""Ranges that are not just what the plan has counted, counted at the source before they are pulled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.ledger import Entry
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.altered import altered
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.registered import lost
from airflow_provider_db2cdc.sql.asn import COUNTED_AT_ONCE, count_changes

Counts = dict[TableId, int]
Errors = dict[TableId, Exception]


@failpoint("count_ranges")
def counted(
    spec: JobSpec, entries: Sequence[Entry], connection: DriverConnection, fail: Callable[[TableId, Exception], None]
) -> list[Entry]:
    """Return entries, those whose ranges are not the plan's with what the source counts there.

    Something may have been pruned by then, or never captured, and so not be counted: such a table is left out, and
    fails; so does each that cannot be counted, for nobody would miss what is pruned before it is read.
    """
    tasks = {task.table: task for task in spec.tables}
    unknown = [entry for entry in entries if is_uncounted(entry, tasks[entry.table])]
    rows: Counts = {}
    errors: Errors = {}
    for start in range(0, len(unknown), COUNTED_AT_ONCE):
        rows_of_some, errors_of_some = _counts(spec, unknown[start : start + COUNTED_AT_ONCE], connection)
        rows |= rows_of_some
        errors |= errors_of_some
    for table, error in errors.items():
        fail(table, error)
    return [replace(entry, rows=rows.get(entry.table, entry.rows)) for entry in entries if entry.table not in errors]


def is_uncounted(entry: Entry, task: TableTask) -> bool:
    """Whether nobody has counted an entry's changes: it begins elsewhere than the plan's, or ends behind it.

    So is each window of a snapshot: one that holds nothing may do so because nobody captures any more.
    """
    is_beyond = not entry.span.empty and (entry.rows is None or entry.upto > task.upto)
    return is_beyond or entry.slice is not None


def _counts(spec: JobSpec, entries: Sequence[Entry], connection: DriverConnection) -> tuple[Counts, Errors]:
    """Return the change rows of each entry's range, by one statement; where that fails, by one a table."""
    tasks = {task.table: task for task in spec.tables}
    try:
        # What is lost behind the count, or it would not tell of what was not counted any more.
        counted_rows = _rows([tasks[entry.table] for entry in entries], entries, connection)
        pulled = [tasks[table] for table, rows in counted_rows.items() if rows]
        captures = [tasks[entry.table].capture for entry in entries]
        missed = lost(spec.source.asn_schema, captures, entries, connection)
        return counted_rows, {**altered(pulled, connection), **missed}
    except Exception as error:
        if len(entries) == 1:
            return {}, {entries[0].table: error}
    rows: Counts = {}
    errors: Errors = {}
    for entry in entries:
        of_one, error_of_one = _counts(spec, [entry], connection)
        rows |= of_one
        errors |= error_of_one
    return rows, errors


@failpoint("count_changes")
def _rows(tasks: Sequence[TableTask], entries: Sequence[Entry], connection: DriverConnection) -> dict[TableId, int]:
    ranges = [(task.capture, entry.span) for task, entry in zip(tasks, entries, strict=True)]
    counts = connection.text_rows(count_changes(ranges).text)
    return {entries[int(place or 0)].table: int(count or 0) for place, count in counts}
