"""Identifiers and literals in Db2's SQL."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId


def quote(identifier: str) -> str:
    """Return the identifier in double quotes, so that case, spaces and reserved words are preserved."""
    doubled = identifier.replace('"', '""')
    return f'"{doubled}"'


def quote_table(table: TableId) -> str:
    """Return `"schema"."name"`."""
    return f"{quote(table.schema)}.{quote(table.name)}"


def text_literal(text: str) -> str:
    """Return a character literal."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def lsn_literal(lsn: Lsn) -> str:
    """Return the LSN as a bit-data literal. Compare it with the bare column, so that Db2 can use its index."""
    return f"X'{lsn.hex}'"
