"""Keys other than primary keys, end to end: named columns, and a unique index of nullable columns."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from support.filled import ask
from support.log import check_log, events_beside, reads, rebuilt
from support.pipeline import Pipeline
from support.writing import after_each, in_turn

from airflow_provider_db2cdc.cdc.table import TableId

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

ROWS = [
    ("v0", None, None),
    ("v1", None, "a"),
    ("v2", 1, None),
    ("v3", 1, "a"),
    ("v4", 1, "b"),
    ("v5", 2, "a"),
    ("v6", 3, "a"),
    ("v7", 4, None),
]
SIX_ROWS_END_AT_A_NULL = {"incremental.snapshot.chunk.size": 6}
COMMITS = {
    "null key deleted": ["DELETE FROM {t} WHERE A IS NULL AND B IS NULL"],
    "null key updated": ["UPDATE {t} SET V = 'new' WHERE A IS NULL AND B = 'a'"],
    "key becomes null": ["UPDATE {t} SET A = NULL, B = NULL WHERE A = 2"],
    "null becomes a key": ["UPDATE {t} SET A = 4 WHERE A IS NULL AND B = 'a'"],
    "null and key swapped": ["UPDATE {t} SET B = CASE WHEN B IS NULL THEN 'a' END WHERE A = 1 AND V <> 'v4'"],
    "part becomes null": ["UPDATE {t} SET A = NULL WHERE B = 'b'"],
    "null key replaced": [
        "INSERT INTO {t} VALUES ('first', 6, NULL)",
        "DELETE FROM {t} WHERE A = 6",
        "INSERT INTO {t} VALUES ('second', 6, NULL)",
    ],
    "key deleted": ["DELETE FROM {t} WHERE A = 3"],
}


def table_of(pipeline: Pipeline, name: str) -> TableId:
    ddl = f"CREATE TABLE {pipeline.schema}.{name} (V VARCHAR(9) NOT NULL, A INTEGER, B VARCHAR(9))"
    table = pipeline.create(ddl, name)
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?, ?)", ROWS)
    return table


Key = tuple[int | None, str | None]
POOL: list[Key] = list(itertools.product((None, *range(12)), (None, "a", "b")))


def moves(table: TableId, rng: random.Random, count: int) -> list[list[str]]:
    """Return transactions that insert, delete, update and move rows. The keys are of the pool, and stay unique."""
    held, free = set(POOL[::2]), set(POOL[1::2])

    def values(key: Key) -> tuple[str, str]:
        return "NULL" if key[0] is None else str(key[0]), "NULL" if key[1] is None else f"'{key[1]}'"

    def where(key: Key) -> str:
        return " AND ".join(
            f"{name} IS NULL" if value == "NULL" else f"{name} = {value}"
            for name, value in zip("AB", values(key), strict=True)
        )

    def transaction(number: int) -> list[str]:
        old, new = rng.choice(sorted(held, key=str)), rng.choice(sorted(free, key=str))
        gone = f"DELETE FROM {table} WHERE {where(old)}"
        a, b = values(new)
        kind = rng.choice(("move", "replace", "exchange", "change"))
        if kind in ("move", "exchange"):
            for keys in (held, free):
                keys.symmetric_difference_update({old, new})
        match kind:
            case "move":
                return [f"UPDATE {table} SET A = {a}, B = {b} WHERE {where(old)}"]
            case "replace":
                return [gone, f"INSERT INTO {table} VALUES ('r{number}', {', '.join(values(old))})"]
            case "exchange":
                return [gone, f"INSERT INTO {table} VALUES ('x{number}', {a}, {b})"]
            case _:
                return [f"UPDATE {table} SET V = 'c{number}' WHERE {where(old)}"]

    return [transaction(number) for number in range(count)]


KEYS: tuple[tuple[tuple[str, list[Any]], tuple[str, list[Any]]], ...] = (
    (
        ("DECIMAL(20,5)", [Decimal("-3.00001"), Decimal("-3"), Decimal(0), Decimal("2.5"), Decimal(10**14)]),
        ("DOUBLE", [-1e300, 1 / 3]),
    ),
    (("CHAR(3)", ["", "a", "a b", "b", "\u00e9"]), ("DATE", [date(1, 1, 1), date(1582, 10, 4)])),
    (("VARCHAR(9)", ["", "$a", "${x}", "A'", "a${x}"]), ("VARCHAR(4) FOR BIT DATA", [b"\x00", b"'"])),
    (
        ("CHAR(16) FOR BIT DATA", [bytes([first, *range(15)]) for first in (0, 1, 127, 128, 255)]),
        ("TIMESTAMP", [datetime(2024, 3, 31, 2, 30, 0, micros) for micros in (1, 999_999)]),
    ),
)
"""The types of two key columns, each with its values."""


class KeyedTables:
    """Tables of one pipeline whose keys differ: their types, how updates are captured, and what makes rows unique."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, schema = pipeline, pipeline.schema
        self.typed = [self.typed_table(f"K{at}", *kinds) for at, kinds in enumerate(KEYS)]
        ddl = f"CREATE TABLE {schema}.IMAGES (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))"
        self.images = pipeline.create(ddl, "IMAGES", update_as="U", before_img_prefix="X")
        pipeline.many(f"INSERT INTO {self.images} VALUES (?, ?)", [(at, f"v{at}") for at in range(20)])
        self.nullable = [table_of(pipeline, name) for name in ("NAMED", "UNIQ")]
        pipeline.execute(f"CREATE UNIQUE INDEX {schema}.UX ON {self.nullable[1]} (A, B)")
        self.shared = pipeline.create(f"CREATE TABLE {schema}.SHARED (ID INTEGER NOT NULL, V VARCHAR(9))", "SHARED")
        pipeline.many(f"INSERT INTO {self.shared} VALUES (?, ?)", [(1, "a"), (1, "b"), (2, "c")])
        named = rf"{schema}\.NAMED:b,A;{schema}\.SHARED:ID"
        pipeline.properties = {**SIX_ROWS_END_AT_A_NULL, "message.key.columns": named}

    def typed_table(self, name: str, first: tuple[str, list[Any]], second: tuple[str, list[Any]]) -> TableId:
        """Create a table with a key of two types."""
        columns = f"V INTEGER, K {first[0]} NOT NULL, N {second[0]} NOT NULL, PRIMARY KEY (K, N)"
        table = self.pipeline.create(f"CREATE TABLE {self.pipeline.schema}.{name} ({columns})", name)
        rows = [(v, key, n) for v, (key, n) in enumerate(itertools.product(first[1], second[1]))]
        self.pipeline.many(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        return table

    def change(self) -> None:
        """Change keys and values of every table."""
        for table in self.typed:
            self.commit(f"UPDATE {table} SET V = -V WHERE V < 6", f"DELETE FROM {table} WHERE V IN (-4, 7)")
        moves = ("ID = ID + 1", "ID = -ID WHERE ID > 15", "V = 'w' WHERE ID < 5", "ID = 99, V = NULL WHERE ID = 7")
        for move in moves:
            self.commit(f"UPDATE {self.images} SET {move}")
        for table in self.nullable:
            for statements in COMMITS.values():
                self.commit(*(statement.format(t=table) for statement in statements))
        self.commit(f"DELETE FROM {self.shared} WHERE V = 'b'")
        self.pipeline.captured()

    def commit(self, *statements: str) -> None:
        """Commit one transaction."""
        for statement in statements:
            self.pipeline.execute(statement)
        self.pipeline.writer.commit()


def test_keys_of_each_kind_and_their_changes_reach_the_target(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    tables = KeyedTables(pipeline)
    pipeline.captured()
    first = pipeline.tick()
    assert first is not None
    assert [line.table for line in first.failed] == [tables.shared]
    assert "its key (ID) is not unique: 1 keys" in first.failed[0].error
    for table, names in zip(tables.nullable, (("b", "A"), ("A", "b")), strict=True):
        at = ["VAb".index(name) for name in names]
        assert reads(pipeline, table) == Counter(tuple(row[place] for place in at) for row in ROWS)
    for table in (*tables.typed, *tables.nullable):
        assert pipeline.changes(table).select("__ordinal").distinct().count() > 1, "several chunks"

    tables.change()
    pipeline.passed()
    for table in (*tables.typed, tables.images, *tables.nullable, tables.shared):
        assert pipeline.rows(table) == pipeline.source_rows(table) == rebuilt(pipeline, table)
    check_log(pipeline, tables.images)
    found = pipeline.changes(tables.images).where("op IN ('c', 'u', 'd')").select("op").collect()
    assert Counter(row["op"] for row in found) == {"d": 26, "c": 26, "u": 9}, "a changed key is a d and a c"


@pytest.mark.long
def test_null_keys_are_snapshotted_while_a_writer_works(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 7, "snapshot.group.chunks": 1})
    table = pipeline.create(f"CREATE TABLE {pipeline.schema}.U (V VARCHAR(9) NOT NULL, A INTEGER, B VARCHAR(9))", "U")
    pipeline.execute(f"CREATE UNIQUE INDEX {pipeline.schema}.UX ON {table} (A, B)")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?, ?)", [("v", *key) for key in POOL[::2]])
    pipeline.captured()
    pipeline.passed()
    asked = ask(table, "again")

    def write(read: int) -> None:
        # Of a key beyond the pool: the driver, which is this process, must not wait for the writer's lock.
        pipeline.many(f"INSERT INTO {table} VALUES (?, ?, ?)", [("behind", 100 + read, None)])

    # Even if a read is short and the writer slow, something is written before the read's watermark.
    with in_turn(pipeline, moves(table, random.Random(3), 800), pause_s=0.1), after_each("stage_rows", write):
        result = pipeline.passed(asked)
    assert [(one.status, (one.chunks or 0) > 1) for one in result.snapshots] == [("completed", True)]
    assert events_beside(pipeline, table, asked.id) > 0, "changes after a read did not come with the snapshot"
    write(0)
    pipeline.captured()
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table) == rebuilt(pipeline, table)
    check_log(pipeline, table)


@pytest.mark.long
def test_rows_that_share_a_key_are_refused_until_they_do_not(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    joined, named, orders = (TableId(pipeline.schema, name) for name in ("JOINED", "NAMED", "ORDERS"))
    pipeline.create(f"CREATE TABLE {joined} (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(9))", "JOINED")
    pipeline.create(f"CREATE TABLE {named} (ID INTEGER NOT NULL, V VARCHAR(9))", "NAMED")
    pipeline.execute(f"CREATE TABLE {orders} (ID INTEGER NOT NULL, T INTEGER)")
    pipeline.many(f"INSERT INTO {joined} VALUES (?, ?)", [(1, "a"), (2, "b")])
    pipeline.many(f"INSERT INTO {named} VALUES (?, ?)", [(1, "a"), (1, "b"), (2, "c")])
    pipeline.many(f"INSERT INTO {orders} VALUES (?, ?)", [(1, 1), (2, 1), (3, 2)])
    own = f"snapshot.select.statement.overrides.{joined}"
    pipeline.properties = {
        "snapshot.select.statement.overrides": str(joined),
        own: f"SELECT T.* FROM {joined} T JOIN {orders} O ON O.T = T.ID",
        "message.key.columns": rf"{pipeline.schema}\.NAMED:ID",
    }
    pipeline.captured()
    for _ in range(2):
        result = pipeline.tick()
        assert result is not None
        errors = {line.table: line.error for line in result.failed}
        assert all("its key (ID) is not unique: 1 keys" in errors[table] for table in (joined, named)), errors
        pipeline.captured()

    pipeline.properties = {**pipeline.properties, own: f"SELECT * FROM {joined}"}
    pipeline.execute(f"DELETE FROM {named} WHERE V = 'b'")
    pipeline.writer.commit()
    pipeline.captured()
    pipeline.passed()
    for table in (joined, named):
        assert pipeline.rows(table) == pipeline.source_rows(table) == rebuilt(pipeline, table)
