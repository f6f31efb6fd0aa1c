"""Statements on the signal table: what it asks for, and the marks that a snapshot writes into it."""

from __future__ import annotations

import json

from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.sql.changes import COMMIT, INTENT, OPERATION, change_table
from airflow_provider_db2cdc.sql.quoting import quote, quote_table, text_literal

WINDOW_OPEN, WINDOW_CLOSE = "snapshot-window-open", "snapshot-window-close"
MARK_CHARACTERS = 42
"""Of a mark's id: a UUID and `-close`."""


def given_signals(of: SignalTable) -> str:
    """Return the select of the signals: id, type, data; in the order of their commits where capture has shown any.

    The marks that snapshots write are left out. Signals that were captured are found even where they were deleted. Of
    another table nobody knows the order; by the length of the id first, numbers that are counted up keep theirs.
    Blanks that pad a value are left out.
    """
    names = [f"RTRIM({quote(name)})" if name in of.padded else quote(name) for name in of.columns]
    listed = ", ".join(f"{name} AS {alias}" for name, alias in zip(names, ("ID", "TYPE", "DATA"), strict=True))
    # A signal without a type is refused, which somebody wants to hear.
    marks = f"({names[1]} IS NULL OR {names[1]} NOT IN ({text_literal(WINDOW_OPEN)}, {text_literal(WINDOW_CLOSE)}))"
    if of.shown is None:
        return f"SELECT {listed} FROM {quote_table(of.table)} WHERE {marks} ORDER BY LENGTH({names[0]}), {names[0]}"
    return (
        f"SELECT {listed} FROM {change_table(of.shown)} WHERE {OPERATION} = 'I' AND {marks} ORDER BY {COMMIT}, {INTENT}"
    )


def insert_mark(of: SignalTable, mark: str, kind: str) -> str:
    """Return the insert of a mark; the signal table must be captured for it to be seen."""
    names = ", ".join(quote(name) for name in of.columns)
    values = ", ".join(text_literal(text) for text in (mark, kind, json.dumps({})))
    return f"INSERT INTO {quote_table(of.table)} ({names}) VALUES ({values})"


def delete_mark(of: SignalTable, mark: str) -> str:
    """Return the delete of a mark."""
    return f"DELETE FROM {quote_table(of.table)} WHERE {quote(of.columns[0])} = {text_literal(mark)}"


def captured_mark(of: SignalTable, mark: str, operation: str) -> str:
    """Return the select of the commit that inserted (`I`) or deleted (`D`) a mark; null until it is captured."""
    assert of.capture is not None
    return (
        f"SELECT MAX({COMMIT}) FROM {change_table(of.capture)} "
        f"WHERE {OPERATION} = '{operation}' AND {quote(of.columns[0])} = {text_literal(mark)}"
    )
