"""The signal table as the plan reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.signal import SOURCE_CHANNEL, Signal, SignalTable
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.catalog import read_columns
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.query import Query
from airflow_provider_db2cdc.sql.signal import given_signals

NAMES = ("ID", "TYPE", "DATA")
ID_TYPES = {"VARCHAR", "CHARACTER", "CHAR", "SMALLINT", "INTEGER", "BIGINT"}
"""Types of ids that are one text, whether ibm_db reads them or Spark."""


def read_signal_table(source: Source, table: TableId, instances: Mapping[TableId, CaptureInstance]) -> SignalTable:
    """Return the table of signals as it is: its columns by name, and its capture where it has one.

    :raises ConfigurationError: there is no such table, or it lacks the columns id, type and data.
    """
    columns = {column.name.upper(): column for column in read_columns(source, [table])[table]}
    found = {name: column.name for name, column in columns.items()}
    if not found:
        raise ConfigurationError(f"signal.data.collection {table} does not exist", "Create it, or correct its name.")
    lacking = [name.lower() for name in NAMES if name not in found]
    if lacking:
        raise ConfigurationError(
            f"signal.data.collection {table} has no column {lacking[0]}",
            "It needs id VARCHAR(42), type VARCHAR(32) and data VARCHAR(2048).",
        )
    if columns["ID"].bit_data or columns["ID"].type not in ID_TYPES:
        raise ConfigurationError(
            f"the id column of signal.data.collection {table} is of type {columns['ID'].type}, whose texts "
            "differ by driver",
            "Make it VARCHAR(42); CHAR, SMALLINT, INTEGER and BIGINT will do.",
        )
    capture = instances.get(table)
    is_active = capture is not None and capture.state == "A"
    return SignalTable(table, tuple(found[name] for name in NAMES), capture if is_active else None)


def read_signals(source: Source, table: SignalTable) -> list[Signal]:
    """Return the signals that the table holds, or, where it is captured, that were ever inserted and are not pruned.

    Its columns may be of other types, an id INTEGER say: a signal's are texts.
    """
    rows = source.rows(Query(given_signals(table)))
    return [Signal(_text(id_), _text(kind), _text(data), SOURCE_CHANNEL) for id_, kind, data in rows]


def _text(value: Any) -> str:
    return "" if value is None else str(value)
