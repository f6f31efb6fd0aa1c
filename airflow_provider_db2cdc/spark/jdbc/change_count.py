"""Counts of changes at the source, before a batch pulls a range that the plan did not count."""

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
    """Return planned batches with the change rows that the source counts for ranges that the plan did not count.

    `fail` is called for each table with an error, and its batch is excluded. A table fails if changes were pruned or
    never captured, as the count misses them. It also fails if it cannot be counted. Without a count the pull would not
    notice changes that are pruned before it reads them.
    """
    tasks = {task.table: task for task in spec.tables}
    uncounted = [planned for planned in batches if is_uncounted(planned, tasks[planned.table].upto)]
    rows: Counts = {}
    errors: Errors = {}
    for start in range(0, len(uncounted), COUNTED_AT_ONCE):
        group_rows, group_errors = _counts(spec, uncounted[start : start + COUNTED_AT_ONCE], connection)
        rows |= group_rows
        errors |= group_errors
    for table, error in errors.items():
        fail(table, error)
    return [
        replace(planned, rows=rows.get(planned.table, planned.rows))
        for planned in batches
        if planned.table not in errors
    ]


def _counts(spec: JobSpec, batches: Sequence[PlannedBatch], connection: DriverConnection) -> tuple[Counts, Errors]:
    """Return the change rows of each batch's range, by one statement. If it fails, use one statement per table."""
    tasks = {task.table: task for task in spec.tables}
    try:
        # The checks come after the count. A check before it would miss changes that are lost between the two.
        counted_rows = _rows([tasks[planned.table] for planned in batches], batches, connection)
        pulled = [tasks[table] for table, rows in counted_rows.items() if rows]
        captures = [tasks[planned.table].capture for planned in batches]
        spans = [planned.span for planned in batches]
        missed = registration_errors(spec.source.asn_schema, captures, spans, connection)
        return counted_rows, {**column_errors(pulled, connection), **missed}
    except Exception as error:
        if len(batches) == 1:
            return {}, {batches[0].table: error}
    rows: Counts = {}
    errors: Errors = {}
    for planned in batches:
        table_rows, table_errors = _counts(spec, [planned], connection)
        rows |= table_rows
        errors |= table_errors
    return rows, errors


def _rows(
    tasks: Sequence[TableTask], batches: Sequence[PlannedBatch], connection: DriverConnection
) -> dict[TableId, int]:
    ranges = [(task.capture, planned.span) for task, planned in zip(tasks, batches, strict=True)]
    counts = connection.text_rows(count_changes(ranges).text)
    return {batches[int(place or 0)].table: int(count or 0) for place, count in counts}
