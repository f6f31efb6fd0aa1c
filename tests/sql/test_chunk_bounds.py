"""The walk over chunk bounds as the driver makes it, while rows are inserted and deleted between its statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from support.keyed_tables import Drawn, as_text, chunks, cut_of, in_order, in_sqlite, keyed_tables, table_database

from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql.quoting import quote, quote_table


class Walked(DriverConnection):
    """A source in SQLite. `between` is called after each statement of the walk."""

    def __init__(self, database: sqlite3.Connection, between: Callable[[], None]) -> None:
        self._database, self._between = database, between

    def text_rows(self, select: str) -> list[list[str | None]]:
        rows = [[as_text(value) for value in row] for row in self._database.execute(in_sqlite(select))]
        self._between()
        return rows


@settings(deadline=None, database=None, max_examples=150)
@given(keyed_tables(), st.integers(1, 5), st.data())
def test_each_row_is_in_one_chunk_while_rows_come_and_go(
    drawn: Drawn,
    size: int,
    data: st.DataObject,
) -> None:
    schema, rows, others = drawn
    width, left = len(schema.key), 12
    database = table_database(schema, rows)
    names, marks = ", ".join(map(quote, schema.names)), ", ".join("?" * len(schema.names))
    where = " AND ".join(f"{quote(name)} IS ?" for name in schema.key)
    place, keys = quote_table(schema.table), [*{*(row[:width] for row in rows), *others}]

    def between() -> None:
        nonlocal left
        for key in data.draw(st.lists(st.sampled_from(keys), max_size=min(2, left))) if keys else ():
            left -= 1
            if database.execute(f"SELECT 1 FROM {place} WHERE {where}", key).fetchone():
                database.execute(f"DELETE FROM {place} WHERE {where}", key)
            else:
                database.execute(f"INSERT INTO {place} ({names}) VALUES ({marks})", (*key, 1))

    bounds = Walked(database, between).chunk_bounds(cut_of(schema), size)
    now = database.execute(f"SELECT {names} FROM {place}").fetchall()
    found = [row for part in chunks(database, schema, bounds) for row in part]
    assert sorted(found, key=in_order) == sorted(now, key=in_order)


@settings(deadline=None, database=None, max_examples=150)
@given(keyed_tables(), st.integers(1, 5))
def test_chunks_of_an_unchanged_table_have_exactly_their_size(drawn: Drawn, size: int) -> None:
    schema, rows, _ = drawn
    database = table_database(schema, rows)
    bounds = Walked(database, lambda: None).chunk_bounds(cut_of(schema), size)
    parts = chunks(database, schema, bounds)
    assert len(bounds) == len(rows) // size
    assert [len(part) for part in parts[:-1]] == [size] * len(bounds)
    assert sorted((row for part in parts for row in part), key=in_order) == sorted(rows, key=in_order)
