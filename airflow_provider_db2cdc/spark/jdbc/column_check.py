"""Tables whose columns changed after the plan. A read with the plan's columns would miss or truncate values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql.catalog import column_of, columns
from airflow_provider_db2cdc.sql.query import inline


def column_errors(tasks: Sequence[TableTask], connection: DriverConnection) -> dict[TableId, Exception]:
    """Return an error for each table whose columns, or whose change table's columns, differ from the plan's.

    Runs one statement. Call it after a read, or after the count of changes beyond the plan's capture position.
    Ranges that the plan itself counted need no check. They lie before its capture position, and the plan read the
    columns after that position.
    """
    if not tasks:
        return {}
    tables = [table for task in tasks for table in (task.table, task.capture.change_table)]
    wanted = frozenset(tables)
    by_table: dict[TableId, dict[str, Column]] = {}
    for row in connection.text_rows(inline(columns(tables))):
        column, table = column_of(row[2:]), TableId.in_catalog(row[0], row[1]).among(wanted)
        if table is not None:
            by_table.setdefault(table, {})[column.name] = column
    changed = {task.table: _changed_columns(task, by_table) for task in tasks}
    return {table: _error(table, names) for table, names in changed.items() if names}


def _changed_columns(task: TableTask, by_table: Mapping[TableId, Mapping[str, Column]]) -> list[str]:
    """Return the columns of the plan that have changed, and the columns that a new plan would add."""
    schema = task.schema
    source, carried = (by_table.get(table, {}) for table in (task.table, task.capture.change_table))
    known = {*schema.names, *schema.excluded_columns, *({*schema.uncaptured_columns} & {*task.capture.cd_names})}
    changed = [column.name for column in schema.columns if source.get(column.name) != column]
    return [*changed, *(name for name in source if name in carried and name not in known)]


def _error(table: TableId, names: Sequence[str]) -> SourceError:
    return SourceError(
        f"{table}: columns {', '.join(names)} changed, or came, while this tick was under way",
        "Nothing is kept that was read by its plan's columns since then: the next tick reads it by the columns as they "
        "are then.",
    )
