"""SANDBOX.CONTROL: the switches that a test or an operator sets and the capture agent reads at each round."""

from __future__ import annotations

from airflow_provider_db2cdc.sandbox.capture.statement import Connection, execute, fetch


def read(connection: Connection) -> dict[str, str]:
    """Return the switches that are set."""
    rows = fetch(connection, "SELECT NAME, VALUE FROM SANDBOX.CONTROL WHERE NAME <> 'lock' WITH UR")
    return {str(name): str(value) for name, value in rows if value is not None}


def write(connection: Connection, name: str, value: str | None) -> None:
    """Set a switch, or with None unset it, without a commit."""
    if not execute(connection, "UPDATE SANDBOX.CONTROL SET VALUE = ? WHERE NAME = ?", value, name):
        execute(connection, "INSERT INTO SANDBOX.CONTROL VALUES (?, ?)", name, value)


def lock(connection: Connection) -> None:
    """Wait for the other rounds and changes of capture to end, and keep new ones out until this transaction ends."""
    execute(connection, "UPDATE SANDBOX.CONTROL SET VALUE = NULL WHERE NAME = 'lock'")
