"""Statements of a snapshot: a table's rows, and key ranges found by the database's own order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from airflow_provider_db2cdc.cdc.table import Column, TableSchema
from airflow_provider_db2cdc.cdc.types import MICROSECOND_DIGITS, map_type
from airflow_provider_db2cdc.sql.quoting import quote, quote_table, text_literal

Bound = Sequence[str]
"""A key as SQL literals, one a key column."""

CALL_LITERALS = {"DATE": "DATE", "TIME": "TIME", "TIMESTAMP": "TIMESTAMP", "DECFLOAT": "DECFLOAT"}
NUMBERS = {"SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC"}
FLOATS = {"REAL", "DOUBLE", "FLOAT"}


def table_rows(schema: TableSchema, predicate: str = "") -> str:
    """Return the select of a table's rows: C0..Cn in the schema's order, committed rows only."""
    columns = ", ".join(
        f"{map_type(schema.table, column).select.format(c=quote(column.name))} AS C{at}"
        for at, column in enumerate(schema.columns)
    )
    where = f" WHERE {predicate}" if predicate else ""
    return f"SELECT {columns} FROM {quote_table(schema.table)}{where}"


def bound_after(schema: TableSchema, previous: Bound | None, rows: int) -> str:
    """Return the select of the key that ends the chunk of `rows` rows behind `previous`; no row: fewer are left.

    It walks the key's index once over all chunks: each call touches only its own chunk's entries.
    """
    keys = ", ".join(quote(name) for name in schema.key)
    where = f" WHERE {_beyond(schema, previous)}" if previous else ""
    return (
        f"SELECT {keys} FROM {quote_table(schema.table)}{where} "
        f"ORDER BY {keys} OFFSET {rows - 1} ROWS FETCH FIRST 1 ROW ONLY"
    )


def chunk_predicates(schema: TableSchema, bounds: Sequence[Bound]) -> list[str]:
    """Return one predicate a chunk; together they hold every row once, wherever the ascending bounds lie.

    Each row is either beyond a bound or not, by the database's comparison alone; null keys would be in no chunk.
    """
    if not bounds:
        return ["1 = 1"]
    first = f"NOT ({_beyond(schema, bounds[0])})"
    middle = [f"({_beyond(schema, low)}) AND NOT ({_beyond(schema, high)})" for low, high in pairwise(bounds)]
    return [first, *middle, _beyond(schema, bounds[-1])]


def key_literal(column: Column, text: str) -> str:
    """Return a key column's value, given as the driver's text (hex for bit data), as a literal of its type."""
    kind = column.type.upper()
    if kind in NUMBERS:
        return text
    if kind in FLOATS:
        number = text if "E" in text.upper() else f"{text}E0"
        # A REAL's text read as a double is not the REAL: a walk over bounds would find the same row again and again.
        return f"CAST({number} AS REAL)" if kind == "REAL" else number
    if kind == "TIMESTAMP" and column.scale > MICROSECOND_DIGITS:
        return f"CAST({text_literal(text)} AS TIMESTAMP({column.scale}))"
    if kind in CALL_LITERALS:
        return f"{CALL_LITERALS[kind]}({text_literal(text)})"
    return f"X'{text}'" if column.bit_data or kind in ("BINARY", "VARBINARY") else text_literal(text)


def _beyond(schema: TableSchema, bound: Bound) -> str:
    """Return `key > bound` for a composite key, led by a plain comparison that an index range can use."""
    names = [quote(name) for name in schema.key]
    terms = []
    for at, (name, literal) in enumerate(zip(names, bound, strict=True)):
        equal = [f"{n} = {v}" for n, v in zip(names[:at], bound[:at], strict=True)]
        terms.append(" AND ".join([*equal, f"{name} > {literal}"]))
    if len(terms) == 1:
        return terms[0]
    alternatives = " OR ".join(f"({term})" for term in terms)
    return f"{names[0]} >= {bound[0]} AND ({alternatives})"
