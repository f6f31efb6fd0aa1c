"""The source's cost of finding chunk bounds: the rows that it visits. The source counts them itself."""

from __future__ import annotations

from typing import Any

import pytest
from support.visited import VisitingConnection

from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.sql.chunk import ChunkKey

pytestmark = pytest.mark.sandbox
ROWS, CHUNK = 4_096, 200


def filled(cursor: Any, table: TableId, keys: dict[str, str]) -> ChunkKey:
    """Make a table with these expressions of a row's number N as its key columns."""
    columns, names = ", ".join(f"{name} INTEGER NOT NULL" for name in keys), ", ".join(keys)
    cursor.execute(f"CREATE TABLE {table} (N INTEGER, {columns}, PRIMARY KEY ({names}))")
    cursor.execute(f"INSERT INTO {table} VALUES (0{', 0' * len(keys)})")
    have = 1
    while have < ROWS:
        numbers = f"(SELECT N + {have} AS N FROM {table}) AS MORE"
        cursor.execute(f"INSERT INTO {table} (N, {names}) SELECT N, {', '.join(keys.values())} FROM {numbers}")
        have *= 2
    return ChunkKey(table, tuple(Column(name, "INTEGER", 4, nullable=False) for name in keys))


@pytest.mark.parametrize(
    ("name", "keys", "most"),
    [
        ("SINGLE", {"K": "N"}, 1.1),
        ("LINES", {"ORDER_NO": "N / 16", "LINE": "MOD(N, 16)"}, 1.1),
        # After its last bound the one client has too few rows, and another client may have more.
        ("CLIENT", {"CLIENT": "0", "K": "N"}, 2.1),
    ],
)
def test_each_bound_is_searched_from_the_last_one(
    connection: Any, name: str, keys: dict[str, str], most: float
) -> None:
    cursor = connection.cursor()
    cut = filled(cursor, TableId("WALKED", name), keys)
    source = VisitingConnection(cursor)
    assert len(source.chunk_bounds(cut, CHUNK)) == ROWS // CHUNK
    assert source.visited <= most * ROWS
