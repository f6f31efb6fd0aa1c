"""`db2cdc offset`: shows and repairs the stored offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, new_revision
from airflow_provider_db2cdc.cdc.offset.request import find_failed, keep_requests, nothing_failed
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.signal.action import OffsetAction
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.pipeline import KeptOffsets, open_kept
from airflow_provider_db2cdc.cli.screen import Table, clock, new_table, note, print_json, screen
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError


def show(config: Path, as_json: bool, airflow: bool = False) -> None:
    """Print the stored offset of each table."""
    store = _open(config, airflow)
    offsets = store.all()
    if as_json:
        print_json([to_data(offsets[table]) for table in sorted(offsets)])
    elif not offsets:
        note(f"no offsets yet in {store.where}")
    else:
        screen().print(_table(offsets))


def set_offset(config: Path, table: str, lsn: str, batch: int | None, airflow: bool = False) -> None:
    """Store an offset, also an earlier one."""
    store = _open(config, airflow)
    name = parse_table(table, "the table's name")
    old = _kept(store, name)
    if old is None:
        _warn_of_unknown(store, name)
    number = batch if batch is not None else (old.batch if old else 0)
    now_ms = time.time_ns() // 1_000_000
    newest_ms = old.commit_ts_ms if old else None
    # The committed LSN stays, so that an offset beyond it is noticed.
    committed = old.committed_lsn if old else None
    position = (name, Lsn.parse(lsn), number, newest_ms)
    offset = Offset(*position, planned_at_ms=now_ms, revision=new_revision(), committed_lsn=committed)
    store.reset(replace(offset, announced=old.announced if old else None))
    note(f"{name}: {old.lsn if old else 'no offset'} -> {lsn} (batch {number}) in {store.where}")


def request(
    config: Path, action: OffsetAction, tables: Sequence[str], all_failed: bool = False, airflow: bool = False
) -> None:
    """Keep a request of each table for the next tick, and print what it will do.

    :raises ConfigurationError: when no table is named, or one is unknown. Nothing is kept then.
    """
    if not (tables or all_failed):
        raise ConfigurationError(f"no table to {action} is named", "Name tables as SCHEMA.TABLE, or give --all-failed.")
    named = [parse_table(table, "the table's name") for table in tables]
    store = _open(config, airflow)
    failed = find_failed(action, store) if all_failed else []
    if not (named or failed):
        note(f"{nothing_failed(action)}: nothing to do")
        return
    for line in keep_requests(action, dict.fromkeys([*named, *failed]), store, new_revision()):
        note(line)
    note(f"The next tick: {'trigger a run of the DAG' if airflow else '`db2cdc tick`'}. Then see `db2cdc status`.")


def remove(config: Path, table: str, airflow: bool = False) -> None:
    """Remove a table's offset."""
    store = _open(config, airflow)
    name = parse_table(table, "the table's name")
    old = store.remove(name)
    note(f"{name}: its offset {old.lsn} is removed" if old else f"{name} has no offset in {store.where}")
    if old is None:
        _warn_of_unknown(store, name)


def _warn_of_unknown(store: KeptOffsets, table: TableId) -> None:
    """Warn if the last tick did not have the table, and name tables that only differ in case."""
    try:
        tables = store.summary().tables
    except OffsetError as error:
        note(f"warning: {error.problem}")
        return
    if tables and table not in tables:
        similar = [str(known) for known in tables if str(known).upper() == str(table).upper()]
        hint = f"; there is {', '.join(similar)}" if similar else ""
        note(f"warning: the pipeline's last tick had no table {table} (names are as in the catalog){hint}")


def _kept(store: KeptOffsets, table: TableId) -> Offset | None:
    """Return a table's offset, or None. A damaged text counts as none, because it is to be replaced."""
    try:
        return store.get(table)
    except OffsetError as error:
        note(f"warning: {error.problem}")
        return None


def _open(config: Path, airflow: bool) -> KeptOffsets:
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
