"""Reads and checks of the signal table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.job import Watermarking
from airflow_provider_db2cdc.cdc.signal.request import READERS
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalTable
from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.catalog import read_columns
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.query import Query
from airflow_provider_db2cdc.sql.signal import MARK_CHARACTERS, WINDOW_CLOSE, given_signals

NAMES = ("ID", "TYPE", "DATA")
PADDED = {"CHARACTER", "CHAR", "GRAPHIC"}
SIZED = {*PADDED, "VARCHAR", "VARGRAPHIC"}
TEXTS = {*SIZED, "LONG VARCHAR", "LONG VARGRAPHIC", "CLOB", "DBCLOB"}
ID_TYPES = {"VARCHAR", "CHARACTER", "CHAR", "SMALLINT", "INTEGER", "BIGINT"}
"""Types of the id column whose values become the same text in ibm_db and in Spark."""


def read_signal_table(
    source: Source, table: TableId, registrations: Mapping[TableId, CaptureRegistration], watermarking: Watermarking
) -> SignalTable:
    """Return the signal table: its columns by name, and its registration if that is active.

    :raises ConfigurationError: when there is no such table, or it lacks one of the columns id, type and data. Also when
        a column cannot hold a signal, or the watermarks that the strategy `watermarking` writes.
    """
    columns = {column.name.upper(): column for column in read_columns(source, [table])[table]}
    if not columns:
        raise ConfigurationError(f"signal.data.collection {table} does not exist", "Create it, or correct its name.")
    lacking = [name.lower() for name in NAMES if name not in columns]
    if lacking:
        raise ConfigurationError(
            f"signal.data.collection {table} has no column {lacking[0]}",
            "It needs id VARCHAR(42), type VARCHAR(32) and data VARCHAR(2048).",
        )
    signal_columns = [columns[name] for name in NAMES]
    _check_columns(table, signal_columns, watermarking)
    capture = registrations.get(table)
    is_active = capture is not None and capture.state == "A"
    padded = tuple(column.name for column in signal_columns if column.type in PADDED)
    names = tuple(column.name for column in signal_columns)
    return SignalTable(table, names, capture if is_active else None, padded=padded)


def _check_columns(table: TableId, columns: Sequence[Column], watermarking: Watermarking) -> None:
    """Reject columns that cannot hold a signal, or a watermark if the strategy writes them."""
    id_, type_, data = columns
    if id_.bit_data or id_.type not in ID_TYPES:
        raise ConfigurationError(
            f"the id column of signal.data.collection {table} is of type {id_.type}, whose texts differ by driver",
            "Make it VARCHAR(42); CHAR, SMALLINT, INTEGER and BIGINT will do.",
        )
    for column in (type_, data):
        if column.bit_data or column.type not in TEXTS:
            raise ConfigurationError(
                f"column {column.name} of signal.data.collection {table} is {column.type}, which holds no text",
                "Make it VARCHAR.",
            )
    _check_length(table, type_, max(map(len, READERS)), "signals")
    if watermarking != "read_only":
        _check_length(table, id_, MARK_CHARACTERS, f"the marks of {watermarking}")
        _check_length(table, type_, len(WINDOW_CLOSE), f"the marks of {watermarking}")


def _check_length(table: TableId, column: Column, needed: int, purpose: str) -> None:
    if column.type not in TEXTS:
        raise ConfigurationError(
            f"column {column.name} of signal.data.collection {table} is {column.type}, and cannot hold {purpose}",
            f"Make it VARCHAR({needed}).",
        )
    if column.type in SIZED and column.length < needed:
        raise ConfigurationError(
            f"column {column.name} of signal.data.collection {table} holds {column.length} characters, and needs "
            f"{needed} for {purpose}",
            f"Make it VARCHAR({needed}) at least.",
        )


def read_signals(source: Source, table: SignalTable) -> list[Signal]:
    """Return the signals that the table holds.

    If capture has shown rows of the table, they are the inserted signals that its change table still holds, deleted
    ones too. The id column may be an INTEGER. The id of a signal is its text.
    """
    rows = source.rows(Query(given_signals(table)))
    return [Signal(_text(id_), _text(kind), _text(data), SOURCE_CHANNEL) for id_, kind, data in rows]


def _text(value: Any) -> str:
    return "" if value is None else str(value)
