"""`db2cdc offset`: shows and repairs the stored offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, new_revision
from airflow_provider_db2cdc.cdc.offset.request import RemoveOffset, SetOffset, TableRequests
from airflow_provider_db2cdc.cdc.offset.request_change import (
    describe_requests,
    find_all,
    find_failed,
    nothing_failed,
    with_entry,
    with_requests,
)
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.signal.action import OffsetAction
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.pipeline import open_kept
from airflow_provider_db2cdc.cli.screen import Table, clock, new_table, note, print_json, screen
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore

TableGroup: TypeAlias = Literal["all", "failed"]
"""The tables of the last tick, or those that failed in it."""


def show(config: Path, as_json: bool, airflow: bool = False) -> None:
    """Print the stored offset of each table."""
    store = _open(config, airflow)
    offsets = store.read().all()
    if as_json:
        print_json([to_data(offsets[table]) for table in sorted(offsets)])
    elif not offsets:
        note(f"no offsets yet in {store.where}")
    else:
        screen().print(_table(offsets))


def set_offset(config: Path, table: str, lsn: str, batch: int | None, airflow: bool = False) -> None:
    """Request an offset, also an earlier one. The next tick continues after it."""
    store = _open(config, airflow)
    name, position = parse_table(table, "the table's name"), Lsn.parse(lsn)
    seen = store.read()
    old = _kept(seen, name)
    if old is None:
        _warn_of_unknown(seen, name)
    number = batch if batch is not None else (old.batch if old else 0)
    wanted = SetOffset(new_revision(), position, time.time_ns() // 1_000_000, number)
    store.put_requests(partial(with_entry, TableRequests(wanted), name))
    note(f"{name}: {old.lsn if old else 'no offset'} -> {lsn} (batch {number}) in {store.where}")


def request(
    config: Path, action: OffsetAction, tables: Sequence[str], group: TableGroup | None = None, airflow: bool = False
) -> None:
    """Keep a request of each table for the next tick, and print what it will do.

    `group` adds all tables that are known, or those that failed in the last tick.

    :raises ConfigurationError: when no table is named, or one is unknown. Nothing is kept then.
    """
    if not (tables or group):
        raise ConfigurationError(f"no table to {action} is named", "Name tables as SCHEMA.TABLE, or give --all-failed.")
    named = [parse_table(table, "the table's name") for table in tables]
    store = _open(config, airflow)
    seen, revision = store.read(), new_revision()
    more = find_all(seen) if group == "all" else find_failed(action, seen) if group else []
    if not (named or more):
        note(f"{nothing_failed(action)}: nothing to do" if group == "failed" else "no tick has run yet: nothing to do")
        return
    wanted = [*dict.fromkeys([*named, *more])]
    lines = describe_requests(action, wanted, seen, store.where)
    store.put_requests(lambda seen: with_requests(action, wanted, seen, revision))
    for line in lines:
        note(line)
    note(f"The next tick: {'trigger a run of the DAG' if airflow else '`db2cdc tick`'}. Then see `db2cdc status`.")


def remove(config: Path, table: str, airflow: bool = False) -> None:
    """Have the next tick forget a table's offset."""
    store = _open(config, airflow)
    name, seen = parse_table(table, "the table's name"), store.read()
    old = _kept(seen, name)
    store.put_requests(partial(with_entry, TableRequests(RemoveOffset(new_revision())), name))
    note(f"{name}: its offset {old.lsn} is removed" if old else f"{name} has no offset in {store.where}")
    if old is None:
        _warn_of_unknown(seen, name)


def _warn_of_unknown(offsets: PipelineOffsets, table: TableId) -> None:
    """Warn if the last tick did not have the table, and name tables that only differ in case."""
    try:
        tables = offsets.summary().tables
    except OffsetError as error:
        note(f"warning: {error.problem}")
        return
    if tables and table not in tables:
        similar = [str(known) for known in tables if str(known).upper() == str(table).upper()]
        hint = f"; there is {', '.join(similar)}" if similar else ""
        note(f"warning: the pipeline's last tick had no table {table} (names are as in the catalog){hint}")


def _kept(offsets: PipelineOffsets, table: TableId) -> Offset | None:
    """Return a table's offset, or None. A damaged text counts as none, because it is to be replaced."""
    try:
        return offsets.get(table)
    except OffsetError as error:
        note(f"warning: {error.problem}")
        return None


def _open(config: Path, airflow: bool) -> KeyedOffsetStore:
    return open_kept(load_config(config), airflow)


def _table(offsets: Mapping[TableId, Offset]) -> Table:
    shown = new_table("table", "lsn", "batch", "newest commit (source's time)", "marks")
    for table in sorted(offsets):
        offset = offsets[table]
        flags = {
            "restart": offset.restart,
            "restore": offset.restore and not offset.restart,
            "was inactive": offset.capture_interrupted,
            "source restored": offset.source_restored,
        }
        set_flags = ", ".join(flag for flag, is_set in flags.items() if is_set)
        shown.add_row(str(table), str(offset.lsn), str(offset.batch), clock(offset.commit_ts_ms), set_flags)
    return shown
