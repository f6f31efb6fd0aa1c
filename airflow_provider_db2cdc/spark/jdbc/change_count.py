"""Ranges that are not just what the plan has counted, counted at the source before they are pulled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch, is_uncounted
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.jdbc.column_check import column_errors
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.spark.jdbc.registration_check import registration_errors
from airflow_provider_db2cdc.sql.asn import COUNTED_AT_ONCE, count_changes

Counts = dict[TableId, int]
Errors = dict[TableId, Exception]


@failpoint("count_ranges")
def with_row_counts(
    spec: JobSpec,
    batches: Sequence[PlannedBatch],
    connection: DriverConnection,
    fail: Callable[[TableId, Exception], None],
) -> list[PlannedBatch]:
    """Return entries, those whose ranges are not the plan's with what the source counts there.

    Something may have been pruned by then, or never captured, and so not be counted: such a table is left out, and
    fails; so does each that cannot be counted, for nobody would miss what is pruned before it is read.
    """
    tasks = {task.table: task for task in spec.tables}
    unknown = [planned for planned in batches if is_uncounted(planned, tasks[planned.table].upto)]
    rows: Counts = {}
    errors: Errors = {}
    for start in range(0, len(unknown), COUNTED_AT_ONCE):
        rows_of_some, errors_of_some = _counts(spec, unknown[start : start + COUNTED_AT_ONCE], connection)
        rows |= rows_of_some
        errors |= errors_of_some
    for table, error in errors.items():
        fail(table, error)
    return [
        replace(planned, rows=rows.get(planned.table, planned.rows))
        for planned in batches
        if planned.table not in errors
    ]


def _counts(spec: JobSpec, batches: Sequence[PlannedBatch], connection: DriverConnection) -> tuple[Counts, Errors]:
    """Return the change rows of each entry's range, by one statement; where that fails, by one a table."""
    tasks = {task.table: task for task in spec.tables}
    try:
        # What is lost behind the count, or it would not tell of what was not counted any more.
        counted_rows = _rows([tasks[planned.table] for planned in batches], batches, connection)
        pulled = [tasks[table] for table, rows in counted_rows.items() if rows]
        captures = [tasks[planned.table].capture for planned in batches]
        missed = registration_errors(spec.source.asn_schema, captures, batches, connection)
        return counted_rows, {**column_errors(pulled, connection), **missed}
    except Exception as error:
        if len(batches) == 1:
            return {}, {batches[0].table: error}
    rows: Counts = {}
    errors: Errors = {}
    for planned in batches:
        of_one, error_of_one = _counts(spec, [planned], connection)
        rows |= of_one
        errors |= error_of_one
    return rows, errors


@failpoint("count_changes")
def _rows(
    tasks: Sequence[TableTask], batches: Sequence[PlannedBatch], connection: DriverConnection
) -> dict[TableId, int]:
    ranges = [(task.capture, planned.span) for task, planned in zip(tasks, batches, strict=True)]
    counts = connection.text_rows(count_changes(ranges).text)
    return {batches[int(place or 0)].table: int(count or 0) for place, count in counts}
