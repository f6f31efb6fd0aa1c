"""The tables of a requested snapshot, with their conditions, and checks of the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.selection.select_override import is_select
from airflow_provider_db2cdc.cdc.selection.table_names import condition_of, match_tables
from airflow_provider_db2cdc.cdc.signal.request import ExecuteSnapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError


def requested_tables(
    request: ExecuteSnapshot, tables: Mapping[TableId, str], check: Callable[[TableSnapshot], None]
) -> tuple[TableSnapshot, ...]:
    """Return a table snapshot for each table that a request names. A table that cannot be read now is a failed one.

    `tables` are the pipeline's, each with the reason why it cannot be read now, empty where it can. `check` examines a
    table snapshot at the source.

    :raises SignalError: when something in the request names nothing, is never used or is refused by `check`.
    :raises SignalError: when none of its tables can be read.
    """
    requested = [*dict.fromkeys(table for pattern in request.collections for table in match_tables(pattern, tables))]
    _check_conditions(request, requested)
    table_snapshots = [_table_snapshot(table, request) for table in requested]
    if request.surrogate_key and all(table_snapshot.select for table_snapshot in table_snapshots):
        raise SignalError("the surrogate key is never used: a select is read as one chunk", "Remove it.")
    for index, table_snapshot in enumerate(table_snapshots):
        if tables[table_snapshot.table]:
            table_snapshots[index] = replace(table_snapshot, status="failed", reason=tables[table_snapshot.table])
        else:
            check(table_snapshot)
    if not any(table_snapshot.is_open for table_snapshot in table_snapshots):
        reasons = shortened((table_snapshot.reason.rstrip(".") for table_snapshot in table_snapshots), separator="; ")
        raise SignalError(f"none of its tables can be read: {reasons}", "Send it again when that is repaired.")
    return tuple(table_snapshots)


def _check_conditions(request: ExecuteSnapshot, requested: Sequence[TableId]) -> None:
    """Refuse a condition that applies to no table, and a select that applies to several."""
    without_condition = [*requested]
    for condition in request.conditions:
        named = [table for table in without_condition if condition.names(table)]
        called = "additional-condition" if condition.pattern == "*" else f"condition for {condition.pattern!r}"
        if not any(map(condition.names, requested)):
            listed = shortened(requested)
            raise SignalError(
                f"the {called} applies to no table of data-collections",
                f"They name {listed}. Add the table to them, or remove its condition.",
            )
        if not named:
            raise SignalError(
                f"the {called} is never used: an earlier one applies to its tables", "Remove one of the two."
            )
        without_condition = [table for table in without_condition if table not in named]
    for select in {condition.filter for condition in request.conditions if is_select(condition.filter)}:
        names = [str(table) for table in requested if condition_of(table, request.conditions) == select]
        if len(names) > 1:
            raise SignalError(f"one select is given for {shortened(names)}", "Give each table its own.")


def _table_snapshot(table: TableId, request: ExecuteSnapshot) -> TableSnapshot:
    filter_ = condition_of(table, request.conditions)
    if is_select(filter_):
        return TableSnapshot(table, surrogate=request.surrogate_key, select=filter_)
    is_whole, heals = not filter_, request.kind == "heal"
    return TableSnapshot(table, filter_, request.surrogate_key, delete_missing=is_whole, differences_only=heals)
