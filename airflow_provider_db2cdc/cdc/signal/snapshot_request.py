"""The tables of a snapshot as a signal asks for them: which, under which conditions, and whether that can be meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.selection.select_override import is_select
from airflow_provider_db2cdc.cdc.selection.table_names import condition_of, match_tables
from airflow_provider_db2cdc.cdc.signal.request import ExecuteSnapshot
from airflow_provider_db2cdc.cdc.snapshot.snapshot import LISTED
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError


def requested_tables(
    request: ExecuteSnapshot, tables: Mapping[TableId, str], check: Callable[[TableSnapshot], None]
) -> tuple[TableSnapshot, ...]:
    """Return a part for each table that a request names; one that cannot be read now has failed.

    `tables` are the pipeline's, each with why it cannot be read now, empty where it can. `check` looks at a part at the
    source.

    :raises SignalError: something of the request names nothing, is never used or is refused by `check`, or none of its
        tables can be read.
    """
    found = [*dict.fromkeys(table for pattern in request.collections for table in match_tables(pattern, tables))]
    _check_conditions(request, found)
    parts = [_part(table, request) for table in found]
    if request.surrogate_key and all(part.select for part in parts):
        raise SignalError("the surrogate key is never used: a select is read as one chunk", "Leave it out.")
    for at, part in enumerate(parts):
        if tables[part.table]:
            parts[at] = replace(part, status="failed", reason=tables[part.table])
        else:
            check(part)
    if not any(part.is_open for part in parts):
        reasons = "; ".join(part.reason.rstrip(".") for part in parts[:LISTED])
        raise SignalError(f"nothing of it can be read: {reasons}", "Give it again once that is mended.")
    return tuple(parts)


def _check_conditions(request: ExecuteSnapshot, found: Sequence[TableId]) -> None:
    """Refuse a condition that counts for no table, and a select that counts for several."""
    left = [*found]
    for condition in request.conditions:
        named = [table for table in left if condition.names(table)]
        called = "additional-condition" if condition.pattern == "*" else f"condition for {condition.pattern!r}"
        if not any(map(condition.names, found)):
            listed = ", ".join(map(str, found[:LISTED]))
            raise SignalError(
                f"the {called} is for no table of data-collections",
                f"They name {listed}. Add the table to them, or leave its condition out.",
            )
        if not named:
            raise SignalError(
                f"the {called} is never used: an earlier one counts for its tables", "Leave one of the two out."
            )
        left = [table for table in left if table not in named]
    for select in {one.filter for one in request.conditions if is_select(one.filter)}:
        of = [str(table) for table in found if condition_of(table, request.conditions) == select]
        if len(of) > 1:
            raise SignalError(f"one select is given for {', '.join(of[:LISTED])}", "Give each table its own.")


def _part(table: TableId, request: ExecuteSnapshot) -> TableSnapshot:
    filter_ = condition_of(table, request.conditions)
    if is_select(filter_):
        return TableSnapshot(table, surrogate=request.surrogate_key, select=filter_)
    return TableSnapshot(table, filter_, request.surrogate_key, delete_missing=not filter_)
