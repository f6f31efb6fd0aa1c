"""Run SQL on a DB-API connection, and name things in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from airflow_provider_db2cdc.sandbox.protocol.sql_rewrite import split_statements
from airflow_provider_db2cdc.source import driver

_DDL = Path(__file__).with_name("ddl")


class Connection(Protocol):
    """What the sandbox needs of an ibm_db_dbi connection."""

    def cursor(self) -> Any:
        """Return a new cursor."""

    def commit(self) -> Any:
        """Commit."""

    def rollback(self) -> Any:
        """Roll back."""

    def close(self) -> Any:
        """Close the connection."""


def fetch(connection: Connection, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a query and return all its rows."""
    cursor = connection.cursor()
    try:
        driver.execute(cursor, sql, parameters)
        return list(cursor.fetchall())
    finally:
        cursor.close()


def execute(connection: Connection, sql: str, *parameters: object) -> int:
    """Run a statement and return how many rows it touched."""
    cursor = connection.cursor()
    try:
        driver.execute(cursor, sql, parameters)
        return int(cursor.rowcount)
    finally:
        cursor.close()


def run_script(connection: Connection, name: str) -> None:
    """Run a script of the `ddl` folder, without a commit."""
    for statement in split_statements(script_text(name)):
        execute(connection, statement)


def script_text(name: str) -> str:
    """Return the text of a script of the `ddl` folder."""
    return (_DDL / name).read_text(encoding="utf-8")


def quoted(*names: str) -> str:
    """Return a delimited identifier, qualified if several names are given."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
