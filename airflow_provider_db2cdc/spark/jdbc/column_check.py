"""Tables that have other columns by now than the plan found: what is read by the plan's would lack or cut values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql.catalog import column_of, columns
from airflow_provider_db2cdc.sql.query import inline


def column_errors(tasks: Sequence[TableTask], connection: DriverConnection) -> dict[TableId, Exception]:
    """Return the error of each table whose columns, or those of its change table, are others by now; one statement.

    Asked behind a read, or behind a count of what is about to be pulled from behind the plan's fence: what the plan
    itself has counted lies before it, and the plan asks for columns behind its fence.
    """
    if not tasks:
        return {}
    tables = [table for task in tasks for table in (task.table, task.capture.change_table)]
    asked = frozenset(tables)
    found: dict[TableId, dict[str, Column]] = {}
    for row in connection.text_rows(inline(columns(tables))):
        column, table = column_of(row[2:]), TableId.in_catalog(row[0], row[1]).among(asked)
        if table is not None:
            found.setdefault(table, {})[column.name] = column
    names = {task.table: _altered(task, found) for task in tasks}
    return {table: _error(table, others) for table, others in names.items() if others}


def _altered(task: TableTask, found: Mapping[TableId, Mapping[str, Column]]) -> list[str]:
    """Return the columns that are read and have changed, and those that would be read by now."""
    schema = task.schema
    source, carried = (found.get(table, {}) for table in (task.table, task.capture.change_table))
    known = {*schema.names, *schema.excluded_columns, *({*schema.uncaptured_columns} & {*task.capture.cd_names})}
    changed = [column.name for column in schema.columns if source.get(column.name) != column]
    return [*changed, *(name for name in source if name in carried and name not in known)]


def _error(table: TableId, names: Sequence[str]) -> SourceError:
    return SourceError(
        f"{table}: columns {', '.join(names)} changed, or came, while this tick was under way",
        "Nothing is kept that was read by its plan's columns since then: the next tick reads it by the columns as they "
        "are then.",
    )
