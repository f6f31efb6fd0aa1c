"""Tables with drawn keys and rows in SQLite, and chunks of them: it has the comparisons, functions lend it the rest."""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.sql.chunk import ChunkKey, chunk_predicate, table_rows
from airflow_provider_db2cdc.sql.quoting import quote, quote_table

NUMBER, TEXT = Column("K", "INTEGER", 4, nullable=False), Column("K", "VARCHAR", 20, nullable=False)


def cut_of(schema: TableSchema, condition: str = "") -> ChunkKey:
    return ChunkKey(schema.table, tuple(schema.column(name) for name in schema.key), condition)


def float32(value: float) -> float:
    [rounded] = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def keyed(*columns: Column) -> TableSchema:
    named = [replace(column, name=f"K{at}") for at, column in enumerate(columns)]
    return TableSchema(TableId("S", "T"), (*named, Column("V", "INTEGER", 4)), tuple(column.name for column in named))


def table_database(schema: TableSchema, rows: Iterable[Key]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name in ("TIMESTAMP", "DATE", "TIME"):
        connection.create_function(name, 1, lambda text: text, deterministic=True)
    connection.create_function("FLOAT32", 1, float32, deterministic=True)
    connection.execute(f"ATTACH ':memory:' AS {quote(schema.table.schema)}")
    names = ", ".join(quote(name) for name in schema.names)
    connection.execute(f"CREATE TABLE {quote_table(schema.table)} ({names})")
    marks = ", ".join("?" * len(schema.columns))
    connection.executemany(f"INSERT INTO {quote_table(schema.table)} VALUES ({marks})", rows)
    return connection


def in_sqlite(select: str) -> str:
    """Say a Db2 select in SQLite's words: nulls last; its CAST AS REAL keeps a double; its COUNT is big."""
    select = re.sub(r"(?<=ORDER BY )(.*)(?= OFFSET)", lambda keys: nulls_last(keys[0]), select)
    select = re.sub(r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY$", r"LIMIT 1 OFFSET \1", select)
    select = select.replace("COUNT_BIG(", "COUNT(")
    return re.sub(r"CAST\((\S+) AS REAL\)", r"FLOAT32(\1)", select)


def nulls_last(keys: str) -> str:
    return ", ".join(f"{key} NULLS LAST" for key in re.findall(r'"(?:[^"]|"")+"', keys))


def in_order(row: Key) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is None, 0 if value is None else value) for value in row)


def as_text(value: object) -> str | None:
    if value is None:
        return None
    return value.hex().upper() if isinstance(value, bytes) else str(value)


def chunks(connection: sqlite3.Connection, schema: TableSchema, bounds: Sequence[Sequence[str]]) -> list[list[Key]]:
    cut = cut_of(schema)
    columns = ", ".join(f"C{at}" for at in range(len(schema.columns)))
    selects = [
        f"SELECT {columns} FROM ({table_rows(schema, cut)}) AS S WHERE {chunk_predicate(cut.of_rows, bounds, at)}"
        for at in range(len(bounds) + 1)
    ]
    return [connection.execute(in_sqlite(select)).fetchall() for select in selects]


Key = tuple[Any, ...]
"""Values of a row or of a key, as SQLite has them."""
Drawn = tuple[TableSchema, list[Key], list[Key]]

VALUES: dict[str, tuple[Column, st.SearchStrategy[Any]]] = {
    "number": (NUMBER, st.integers(-3, 3)),
    "text": (TEXT, st.text("aB'\"é ", max_size=2)),
    "bits": (Column("K", "CHARACTER", 2, nullable=False, bit_data=True), st.binary(max_size=2)),
    "nullable number": (Column("K", "INTEGER", 4), st.none() | st.integers(-2, 2)),
    "nullable text": (Column("K", "VARCHAR", 20), st.none() | st.text("aB", max_size=2)),
    "big": (Column("K", "BIGINT", 8, nullable=False), st.sampled_from([-(2**63), -1, 0, 2**53 + 1, 2**63 - 1])),
}


@st.composite
def keyed_tables(draw: st.DrawFn) -> Drawn:
    """Draw a table with a key of one to three columns, its rows, and some ascending bounds among or between them."""
    kinds = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3))
    keys = st.tuples(*(VALUES[kind][1] for kind in kinds))
    return (
        keyed(*(VALUES[kind][0] for kind in kinds)),
        [(*key, at) for at, key in enumerate(draw(st.lists(keys, unique=True, max_size=25)))],
        sorted(draw(st.lists(keys, max_size=5)), key=in_order),
    )
