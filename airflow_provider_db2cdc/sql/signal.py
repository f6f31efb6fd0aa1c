"""Statements on the signal table: its signals, and the watermarks that a snapshot writes into it."""

from __future__ import annotations

import json

from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.sql.changes import COMMIT, INTENT, OPERATION, change_table
from airflow_provider_db2cdc.sql.quoting import quote, quote_table, text_literal

WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"
MARK_CHARACTERS = 42
"""The length of a watermark's id: a UUID and `-close`."""


def given_signals(signals: SignalTable) -> str:
    """Return the select of the signals: id, type, data. Watermarks of snapshots and padding blanks are removed.

    If capture has shown rows of the table, the signals come from its change table, in the order of their commits.
    Deleted ones are included. Otherwise the order is not known. They are then sorted by the length of the id and the
    id, so that ids which count up keep their order.
    """
    names = [f"RTRIM({quote(name)})" if name in signals.padded else quote(name) for name in signals.columns]
    listed = ", ".join(f"{name} AS {alias}" for name, alias in zip(names, ("ID", "TYPE", "DATA"), strict=True))
    # A signal without a type is included, so that it is refused with an outcome.
    is_signal = f"({names[1]} IS NULL OR {names[1]} NOT IN ({text_literal(WINDOW_OPEN)}, {text_literal(WINDOW_CLOSE)}))"
    if signals.shown is None:
        rows = f"{quote_table(signals.table)} WHERE {is_signal}"
        return f"SELECT {listed} FROM {rows} ORDER BY LENGTH({names[0]}), {names[0]}"
    return (
        f"SELECT {listed} FROM {change_table(signals.shown)} "
        f"WHERE {OPERATION} = 'I' AND {is_signal} ORDER BY {COMMIT}, {INTENT}"
    )


def insert_mark(signals: SignalTable, mark: str, kind: str) -> str:
    """Return the insert of a watermark. It is only seen if the signal table is captured."""
    names = ", ".join(quote(name) for name in signals.columns)
    values = ", ".join(text_literal(text) for text in (mark, kind, json.dumps({})))
    return f"INSERT INTO {quote_table(signals.table)} ({names}) VALUES ({values})"


def delete_mark(signals: SignalTable, mark: str) -> str:
    """Return the delete of a watermark."""
    return f"DELETE FROM {quote_table(signals.table)} WHERE {quote(signals.columns[0])} = {text_literal(mark)}"


def captured_mark(signals: SignalTable, mark: str, operation: str) -> str:
    """Return the select of the commit that inserted (`I`) or deleted (`D`) a watermark. It is null until captured."""
    assert signals.capture is not None
    return (
        f"SELECT MAX({COMMIT}) FROM {change_table(signals.capture)} "
        f"WHERE {OPERATION} = '{operation}' AND {quote(signals.columns[0])} = {text_literal(mark)}"
    )
