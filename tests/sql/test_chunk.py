"""Chunk bounds and predicates, evaluated by SQLite. `table_database` adds the functions that SQLite does not have."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.keyed_tables import (
    NUMBER,
    TEXT,
    Drawn,
    Key,
    as_text,
    chunks,
    cut_of,
    float32,
    in_order,
    in_sqlite,
    keyed,
    keyed_tables,
    table_database,
)

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.sql.chunk import (
    ChunkKey,
    bound_after,
    chunk_predicate,
    condition_check,
    count_rows,
    key_literal,
    row_bytes,
    select_check,
    surrogate_check,
    table_rows,
)
from airflow_provider_db2cdc.sql.query import count_of
from airflow_provider_db2cdc.sql.quoting import quote, text_literal


def predicates(schema: TableSchema, bounds: Sequence[Sequence[str]], condition: str = "") -> list[str]:
    return [chunk_predicate(cut_of(schema, condition), bounds, at) for at in range(len(bounds) + 1)]


def test_a_row_is_as_long_as_the_catalog_and_its_varying_columns_say() -> None:
    varying = (Column("A", "VARCHAR", 4000), Column("B", "VARCHAR", 9, bit_data=True))
    schema = TableSchema(TableId("S", "T"), (Column("K", "INTEGER", 4), *varying, Column("C", "CHAR", 7)), ("K",))
    rows = [(1, "ab", b"xyz", "c"), (2, None, b"", "c"), (3, "abcdef", None, "c"), (9, "a" * 999, b"", "c")]
    connection = table_database(schema, rows)

    def average(condition: str) -> tuple[float] | None:
        select = row_bytes(schema, cut_of(schema, condition)).replace("FETCH FIRST 1000 ROWS ONLY", "LIMIT 1000")
        found: tuple[float] | None = connection.execute(select).fetchone()
        return found

    assert average("K < 9") == (11 + (5 + 0 + 6) / 3,)
    assert average("K > 9") is None


def literals(schema: TableSchema, key: Key) -> list[str]:
    return [key_literal(schema.column(name), as_text(value)) for name, value in zip(schema.key, key, strict=True)]


def walk(
    connection: sqlite3.Connection,
    schema: TableSchema,
    rows: int,
    text: Callable[[Any], str | None] = as_text,
    most: int = 1000,
) -> list[list[str]]:
    """Walk the bounds as a snapshot does."""
    bounds: list[list[str]] = []
    while len(bounds) < most:
        found = connection.execute(
            in_sqlite(bound_after(cut_of(schema), bounds[-1] if bounds else None, rows))
        ).fetchone()
        if found is None:
            return bounds
        texts = [text(value) for value in found]
        bounds.append([key_literal(schema.column(n), t) for n, t in zip(schema.key, texts, strict=True)])
    raise AssertionError("the walk does not end")


@settings(deadline=None, database=None)
@given(keyed_tables())
def test_every_row_is_in_exactly_one_chunk_for_any_bounds(
    drawn: Drawn,
) -> None:
    schema, rows, bounds = drawn
    connection = table_database(schema, rows)
    parts = chunks(connection, schema, [literals(schema, bound) for bound in bounds])
    assert len(parts) == len(bounds) + 1
    assert sorted((row for part in parts for row in part), key=in_order) == sorted(rows, key=in_order)


@settings(deadline=None, database=None)
@given(keyed_tables())
def test_a_chunk_has_the_rows_after_its_low_bound_up_to_its_high_bound(
    drawn: Drawn,
) -> None:
    schema, rows, bounds = drawn
    connection = table_database(schema, rows)
    parts = chunks(connection, schema, [literals(schema, bound) for bound in bounds])
    width = len(schema.key)
    for part, low, high in zip(parts, [None, *bounds], [*bounds, None], strict=True):
        inside = [
            row
            for row in rows
            if (low is None or in_order(row[:width]) > in_order(low))
            and (high is None or in_order(row[:width]) <= in_order(high))
        ]
        assert sorted(part, key=in_order) == sorted(inside, key=in_order)


@settings(deadline=None, database=None)
@given(keyed_tables(), st.integers(1, 6))
def test_the_walk_over_the_bounds_visits_each_row_once(drawn: Drawn, rows_per_chunk: int) -> None:
    schema, rows, _ = drawn
    connection = table_database(schema, rows)
    bounds = walk(connection, schema, rows_per_chunk)
    parts = chunks(connection, schema, bounds)
    assert len(bounds) == len(rows) // rows_per_chunk
    assert [len(part) for part in parts[:-1]] == [rows_per_chunk] * len(bounds)
    assert sorted((row for part in parts for row in part), key=in_order) == sorted(rows, key=in_order)
    ends = [max(part, key=in_order)[: len(schema.key)] for part in parts if part]
    assert ends == sorted(ends, key=in_order)


def test_a_walk_over_real_keys_advances_if_their_texts_are_rounded() -> None:
    """The text of a REAL is another number as a double. Without a cast the walk would reach the same row again."""
    column = Column("K", "REAL", 4, nullable=False)
    schema = keyed(column, NUMBER)
    reals = [float32(value) for value in (0.1, 0.3, 0.7, 16777216.0, 1e-7, -0.1)]
    rows = [(real, number, 0) for real in reals for number in range(5)]
    connection = table_database(schema, rows)

    def driver_text(value: float) -> str:
        texts = (f"{value:.{digits}g}" for digits in range(1, 10)) if isinstance(value, float) else [str(value)]
        return next(text for text in texts if float32(float(text)) == value)

    assert any(float(driver_text(real)) != real for real in reals)
    bounds = walk(connection, schema, 2, driver_text)
    assert [len(part) for part in chunks(connection, schema, bounds)] == [2] * 15 + [0]


def test_without_bounds_one_chunk_has_all_rows() -> None:
    assert predicates(keyed(NUMBER), []) == ["1 = 1"]


def test_predicates_of_a_single_key() -> None:
    assert predicates(keyed(NUMBER), [["1"], ["5"]]) == [
        'NOT ("K0" > 1)',
        '"K0" > 1 AND NOT ("K0" > 5)',
        '"K0" > 5',
    ]


def test_a_composite_predicate_begins_with_an_indexable_comparison() -> None:
    assert predicates(keyed(NUMBER, NUMBER, TEXT), [["1", "2", "'x'"]])[1] == (
        '"K0" >= 1 AND (("K0" > 1) OR ("K0" = 1 AND "K1" > 2) OR ("K0" = 1 AND "K1" = 2 AND "K2" > \'x\'))'
    )


def test_a_chunk_between_two_keys_begins_with_an_indexable_range() -> None:
    def led(schema: TableSchema, low: list[str], high: list[str]) -> str:
        return predicates(schema, [low, high])[1].split(" AND ((")[0].split(" AND NOT")[0]

    keys, nullable = keyed(NUMBER, NUMBER), replace(NUMBER, nullable=True)
    assert led(keys, ["1", "2"], ["3", "1"]) == '"K0" >= 1 AND "K0" <= 3'
    assert led(keys, ["1", "2"], ["1", "9"]) == '"K0" = 1 AND "K1" >= 2 AND "K1" <= 9'
    assert predicates(keys, [["3", "1"]])[0].startswith('"K0" <= 3 AND NOT')
    several = keyed(nullable, NUMBER)
    assert led(several, ["1", "2"], ["NULL", "9"]) == '("K0" >= 1 OR "K0" IS NULL)'
    assert led(several, ["NULL", "2"], ["NULL", "9"]) == '"K0" IS NULL AND "K1" >= 2 AND "K1" <= 9'
    assert predicates(keyed(nullable), [["1"], ["5"]])[1].startswith('"K0" >= 1 AND "K0" <= 5 AND ')


def test_nulls_sort_after_every_value() -> None:
    nullable = replace(NUMBER, nullable=True)
    assert predicates(keyed(nullable), [["1"], ["NULL"]]) == [
        'NOT (("K0" > 1 OR "K0" IS NULL))',
        '("K0" >= 1 OR "K0" IS NULL) AND ("K0" > 1 OR "K0" IS NULL) AND NOT (1 = 0)',
        "1 = 0",
    ]
    assert predicates(keyed(nullable, NUMBER), [["NULL", "2"]])[1] == '"K0" IS NULL AND (("K0" IS NULL AND "K1" > 2))'


def test_a_condition_is_added_to_every_predicate() -> None:
    assert predicates(keyed(NUMBER), [["1"]], "A = 1 OR B = 2") == [
        'NOT ("K0" > 1) AND (A = 1 OR B = 2)',
        '"K0" > 1 AND (A = 1 OR B = 2)',
    ]
    assert predicates(keyed(NUMBER), [], "A = 1") == ["(A = 1)"]
    select = bound_after(cut_of(keyed(NUMBER), "A = 1 OR B = 2"), ["1"], 5)
    assert ' WHERE "K0" > 1 AND (A = 1 OR B = 2) ORDER BY' in select


def test_checks_of_a_requests_condition_and_surrogate_key() -> None:
    table = TableId("S", "T")
    assert condition_check(keyed(NUMBER), "A = 1") == 'SELECT 1 AS ONE FROM "S"."T" WHERE (A = 1) AND 1 = 0'
    bare = TableSchema(table, (Column("A", "INTEGER", 4), Column('B"', "INTEGER", 4)), ())
    rows = '(SELECT "A", "B""" FROM "S"."T") AS "T"'
    assert condition_check(bare, "A = 1") == f"SELECT 1 AS ONE FROM {rows} WHERE (A = 1) AND 1 = 0"
    assert surrogate_check(table, "K", "A = 1") == (
        f"SELECT {count_of()} AS R, {count_of(quote('K'))} AS V, {count_of('DISTINCT ' + quote('K'))} AS D "
        'FROM "S"."T" WHERE (A = 1)'
    )
    assert count_rows(cut_of(keyed(NUMBER)), {3: "1 = 1", 4: "2 = 2"}) == (
        'SELECT 3 AS CHUNK, CAST(COUNT_BIG(*) AS BIGINT) AS ROWS_COUNTED FROM "S"."T" WHERE 1 = 1 UNION ALL '
        'SELECT 4 AS CHUNK, CAST(COUNT_BIG(*) AS BIGINT) AS ROWS_COUNTED FROM "S"."T" WHERE 2 = 2'
    )


def test_bound_selects() -> None:
    assert bound_after(cut_of(keyed(NUMBER)), None, 100) == (
        'SELECT "K0" FROM "S"."T" ORDER BY "K0" OFFSET 99 ROWS FETCH FIRST 1 ROW ONLY'
    )
    assert bound_after(cut_of(keyed(NUMBER, NUMBER)), ["1", "2"], 100) == (
        'SELECT "K0", "K1" FROM "S"."T" WHERE "K0" >= 1 AND (("K0" > 1) OR ("K0" = 1 AND "K1" > 2)) '
        'ORDER BY "K0", "K1" OFFSET 99 ROWS FETCH FIRST 1 ROW ONLY'
    )


def test_a_bound_is_selected_in_its_transfer_form_and_ordered_as_it_is() -> None:
    columns = (replace(NUMBER, name="N"), Column("T", "TIME", 3, nullable=False))
    assert bound_after(ChunkKey(TableId("S", "T"), columns), None, 100) == (
        'SELECT "N", HOUR("T") * 10000 + MINUTE("T") * 100 + SECOND("T") FROM "S"."T" '
        'ORDER BY "N", "T" OFFSET 99 ROWS FETCH FIRST 1 ROW ONLY'
    )


def test_a_bound_of_another_width_than_the_key_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        bound_after(cut_of(keyed(NUMBER, NUMBER)), ["1"], 100)


def test_rows_are_selected_in_order_and_in_their_transfer_form() -> None:
    columns = (Column("V", "XML"), Column("K", "INTEGER", 4), Column("T", "TIME"))
    schema = TableSchema(TableId("S", "T"), columns, ("K",))
    select = (
        'SELECT XMLSERIALIZE("V" AS CLOB) AS C0, "K" AS C1, HOUR("T") * 10000 + MINUTE("T") * 100 + SECOND("T") AS C2, '
        '"K" AS K0 FROM "S"."T"'
    )
    assert table_rows(schema, cut_of(schema)) == select
    assert table_rows(schema, cut_of(schema, "A = 1")) == f"{select} WHERE (A = 1)"
    assert chunk_predicate(cut_of(schema, "A = 1").of_rows, [["1"]], 1) == '("K0" > 1 OR "K0" IS NULL)'


def test_a_select_replaces_the_table() -> None:
    schema = keyed(NUMBER)
    cut = replace(cut_of(schema), select="SELECT * FROM X WHERE A = 1")
    place = "(SELECT * FROM X WHERE A = 1) AS O"
    assert table_rows(schema, cut) == f'SELECT "K0" AS C0, "V" AS C1, "K0" AS K0 FROM {place}'
    assert count_rows(cut, {0: "1 = 1"}) == f"SELECT 0 AS CHUNK, {count_of()} AS ROWS_COUNTED FROM {place} WHERE 1 = 1"
    rows = '(SELECT "K0", "V" FROM (SELECT * FROM X WHERE A = 1) AS O)'
    assert select_check(schema, cut.select) == f'SELECT 1 AS ONE FROM {rows} AS "T" WHERE 1 = 0'


ODD = ["select", "a b", 'quo"te', '""', "it's", "ä€", "{c}", "{0}", "%s", "a.b", "semi;colon", "--", "?", "lower", "\\"]


@pytest.mark.parametrize("name", ODD)
def test_odd_identifiers_survive_in_every_statement(name: str) -> None:
    columns = (Column(name, "INTEGER", 4, nullable=False), Column(name + "2", "INTEGER", 4, nullable=False))
    schema = TableSchema(TableId(name, name), columns, (name, name + "2"))
    rows = [(one, two) for one in range(3) for two in range(3)]
    connection = table_database(schema, rows)
    bounds = walk(connection, schema, 4)
    assert len(bounds) == 2
    assert sorted(row for part in chunks(connection, schema, bounds) for row in part) == rows


LITERALS = [
    (Column("K", "SMALLINT"), "-5", "-5"),
    (Column("K", "INTEGER"), "7", "7"),
    (Column("K", "BIGINT"), "-9223372036854775808", "-9223372036854775808"),
    (Column("K", "DECIMAL", 5, 2), "-1.50", "-1.50"),
    (Column("K", "DECIMAL", 20, 12), "-1.5E-9", "-0.0000000015"),
    (Column("K", "DECIMAL", 31, 31), f"-0.{'1' * 31}", f"-.{'1' * 31}"),
    (Column("K", "NUMERIC", 5, 0), "12", "12"),
    (Column("K", "DOUBLE"), "1.5", "1.5E0"),
    (Column("K", "DOUBLE"), "-1.0E10", "-1.0E10"),
    (Column("K", "FLOAT"), "2e-3", "2e-3"),
    (Column("K", "REAL"), "0.1", "CAST(0.1E0 AS REAL)"),
    (Column("K", "REAL"), "1.0E-7", "CAST(1.0E-7 AS REAL)"),
    (Column("K", "CHARACTER"), "it's  ", "'it''s  '"),
    (Column("K", "VARCHAR"), "", "''"),
    (Column("K", "CHARACTER", bit_data=True), "00FF", "X'00FF'"),
    (Column("K", "VARCHAR", bit_data=True), "", "X''"),
    (Column("K", "DATE"), "9999-12-31", "DATE('9999-12-31')"),
    (Column("K", "TIME"), "240000", "TIME('24:00:00')"),
    (Column("K", "TIME"), "5", "TIME('00:00:05')"),
    (Column("K", "TIMESTAMP", 10, 6), "2024-01-01 00:00:00.123456", "TIMESTAMP('2024-01-01 00:00:00.123456')"),
    (Column("K", "integer"), "7", "7"),
]
NOT_RUN_ON_DB2 = [
    (Column("K", "GRAPHIC"), "é", "'é'"),
    (Column("K", "VARGRAPHIC"), "é", "'é'"),
    (Column("K", "DECFLOAT"), "1E+40", "DECFLOAT('1E+40')"),
    (Column("K", "DECFLOAT"), "NaN", "DECFLOAT('NaN')"),
    (
        Column("K", "TIMESTAMP", 13, 12),
        "2024-01-01 00:00:00.123456789012",
        "CAST('2024-01-01 00:00:00.123456789012' AS TIMESTAMP(12))",
    ),
]


@pytest.mark.parametrize(
    ("column", "text", "literal"),
    [
        *(pytest.param(*case, id=f"{case[0].type} {case[1]}") for case in LITERALS),
        *(pytest.param(*case, id=f"{case[0].type} {case[1]} not run on Db2") for case in NOT_RUN_ON_DB2),
    ],
)
def test_literal_of_each_key_type(column: Column, text: str, literal: str) -> None:
    assert key_literal(column, text) == literal


@settings(deadline=None, database=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_any_text_reads_back_from_its_literal(text: str) -> None:
    assert sqlite3.connect(":memory:").execute(f"SELECT {text_literal(text)}").fetchone() == (text,)


@settings(deadline=None, database=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.integers())
def test_any_identifier_is_quoted_as_one_name(name: str, value: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({quote(name)} INTEGER)")
    connection.execute(f"INSERT INTO t ({quote(name)}) VALUES ({value % 1000})")
    cursor = connection.execute("SELECT * FROM t")
    assert [column[0] for column in cursor.description] == [name]
    assert quote(name)[1:-1].replace('""', "").count('"') == 0


@settings(deadline=None, database=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2, unique=True).map(sorted))
def test_doubles_keep_their_order_as_literals(pair: list[float]) -> None:
    column = Column("K", "DOUBLE")
    texts = [key_literal(column, repr(value)) for value in pair]
    assert all(low < high for low, high in pairwise(float(text) for text in texts))
    assert sqlite3.connect(":memory:").execute(f"SELECT typeof({texts[0]})").fetchone() == ("real",)
