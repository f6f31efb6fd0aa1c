"""`db2cdc offset`: the stored offsets, looked at and repaired."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.lsn import WIDTHS, Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, new_revision
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.pipeline import KeptOffsets, open_kept
from airflow_provider_db2cdc.cli.screen import Table, clock, new_table, note, print_json, screen
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError


def show(config: Path, as_json: bool, airflow: bool = False) -> None:
    """Print every table's stored offset."""
    store = _open(config, airflow)
    offsets = store.all()
    if as_json:
        print_json([to_data(offsets[table]) for table in sorted(offsets)])
    elif not offsets:
        note(f"no offsets yet in {store.where}")
    else:
        screen().print(_table(offsets))


def set_offset(config: Path, table: str, lsn: str, batch: int | None, airflow: bool = False) -> None:
    """Store an offset, backwards too."""
    store = _open(config, airflow)
    name = parse_table(table, "the table's name")
    old = _kept(store, name)
    if old is None:
        _warn_of_unknown(store, name)
    number = batch if batch is not None else (old.batch if old else 0)
    now_ms = time.time_ns() // 1_000_000
    newest_ms = old.commit_ts_ms if old else None
    # What was proven stays: an offset beyond it is to be told.
    proven = old.committed_lsn if old else None
    at = (name, Lsn.parse(lsn), number, newest_ms)
    store.reset(Offset(*at, planned_at_ms=now_ms, revision=new_revision(), committed_lsn=proven))
    note(f"{name}: {old.lsn if old else 'no offset'} -> {lsn} (batch {number}) in {store.where}")


def restart(config: Path, table: str, airflow: bool = False) -> None:
    """Mark a table to be snapshotted anew by the next tick."""
    store = _open(config, airflow)
    name = parse_table(table, "the table's name")
    store.reset(_marked(name, store))
    note(f"{name}: the next tick snapshots it anew and replaces its state")


def remove(config: Path, table: str, airflow: bool = False) -> None:
    """Remove a table's offset."""
    store = _open(config, airflow)
    name = parse_table(table, "the table's name")
    old = store.remove(name)
    note(f"{name}: its offset {old.lsn} is removed" if old else f"{name} has no offset in {store.where}")
    if old is None:
        _warn_of_unknown(store, name)


def _warn_of_unknown(store: KeptOffsets, table: TableId) -> None:
    """Say that a table may be meant for another one, where ticks have told which there are."""
    try:
        tables = store.summary().tables
    except OffsetError as error:
        note(f"warning: {error.problem}")
        return
    if tables and table not in tables:
        alike = [str(one) for one in tables if str(one).upper() == str(table).upper()]
        meant = f"; there is {', '.join(alike)}" if alike else ""
        note(f"warning: {table} was no table of the pipeline's last tick, whose names are as in the catalog{meant}")


def _marked(table: TableId, store: KeptOffsets) -> Offset:
    """Return a table's offset as one to restart; a table whose first batch failed has none, and gets one.

    :raises ConfigurationError: it has no offset, and the pipeline's last tick had no such table.
    """
    old = _kept(store, table)
    if old is not None:
        return replace(old, restart=True, revision=new_revision())
    if table not in store.summary().tables:
        raise ConfigurationError(
            f"{table} has no offset in {store.where}, and was no table of the pipeline's last tick",
            "A table that is nowhere yet starts with a snapshot anyway; where Airflow runs the pipeline add --airflow.",
        )
    # A restart asks for no position; but one of the source's width is comparable with its others.
    width = max((len(other.lsn.raw) for other in store.all().values()), default=max(WIDTHS))
    return Offset(table, Lsn(bytes(width)), 0, restart=True, revision=new_revision())


def _kept(store: KeptOffsets, table: TableId) -> Offset | None:
    """Return a table's offset, None too where its text is damaged: to be replaced it need not be read."""
    try:
        return store.get(table)
    except OffsetError as error:
        note(f"warning: {error.problem}")
        return None


def _open(config: Path, airflow: bool) -> KeptOffsets:
    return open_kept(load_config(config), airflow)


def _table(offsets: Mapping[TableId, Offset]) -> Table:
    shown = new_table("table", "lsn", "batch", "newest commit (source's time)", "marks")
    for name in sorted(offsets):
        offset = offsets[name]
        named = {
            "restart": offset.restart,
            "was inactive": offset.capture_interrupted,
            "source restored": offset.source_restored,
        }
        marks = [mark for mark, is_set in named.items() if is_set]
        times = (str(offset.batch), clock(offset.commit_ts_ms), ", ".join(marks))
        shown.add_row(str(name), str(offset.lsn), *times)
    return shown
