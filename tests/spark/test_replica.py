"""Windows and missing rows are found by the batches that wrote rows, not by the LSNs of the rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.crash import killed

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.apply.log_replay import rows_to_delete
from airflow_provider_db2cdc.spark.apply.state_diff import diff_with_state, missing_from_state
from airflow_provider_db2cdc.spark.delta.ownership import Owner, Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import literal_frame, load
from airflow_provider_db2cdc.spark.events.envelope import log_ddl
from airflow_provider_db2cdc.spark.events.row_multiset import COPY
from airflow_provider_db2cdc.spark.events.state_rows import key_bounds, key_range
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.sql.chunk import key_literal

pytestmark = pytest.mark.spark
SCHEMA = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))
LATE, EARLY = (f"{time}:00000001:{'0' * 16}" for time in ("00000099", "00000011"))


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Replica:
    """A table whose source was restored to an older state after batch 2: LSNs begin again."""
    made = Replica(spark, Place(Layout(str(tmp_path)), Owner("test", "ledger")), SCHEMA)
    made.prepare()
    return made


def fill(target: Replica, batch: int, rows: Iterable[tuple[int, str]]) -> None:
    frame = literal_frame(target.spark, [(id_, 0, lsn) for id_, lsn in rows], "ID int, A int, __commit_lsn string")
    target.append_rows(frame, batch)


def log(target: Replica, batch: int, id_: int, lsn: str, op: str = "u") -> None:
    own = f"'{op}' AS op, named_struct('ID', {id_}) AS key"
    rows = target.spark.sql(f"SELECT {batch}L AS __batch, '{lsn}' AS __commit_lsn, {own}")
    empty = target.spark.createDataFrame([], log_ddl(SCHEMA)).drop(*rows.columns)
    target.append_changes(rows.join(empty, how="left"), batch, f"{op}{id_}")


def test_no_step_takes_an_abandoned_batch_for_done(target: Replica) -> None:
    """Also if the abandoning run died: the batch is marked as abandoned before any of its writes is prevented."""
    fill(target, 3, [(1, LATE)])
    with killed("append_rows", "before"):
        target.fence_writers(3)
    effects = literal_frame(
        target.spark, [(1, 0, EARLY, True)], "ID int, A int, __commit_lsn string, __present boolean"
    )
    steps: list[Callable[[int], object]] = [
        lambda batch: fill(target, batch, [(2, LATE)]),
        lambda batch: target.merge(effects, batch, "", None),
        lambda batch: log(target, batch, 2, LATE),
    ]
    with pytest.raises(TargetError, match="given up batch 3"):
        steps[0](3)
    target.fence_writers(3)
    log(target, 4, 2, LATE)
    for step in steps[:2]:
        with pytest.raises(TargetError, match="given up batch 3"):
            step(3)
        step(5)
    assert {row["ID"] for row in target.rows().select("row.*").collect()} == {1, 2}


def test_missing_rows_are_those_that_no_later_batch_wrote_or_read(target: Replica) -> None:
    fill(target, 1, [(1, LATE), (2, LATE), (4, LATE)])
    fill(target, 3, [(3, EARLY)])
    for batch, id_, op in ((2, 2, "r"), (3, 1, "d"), (3, 4, "r")):
        log(target, batch, id_, EARLY, op)
    assert sorted(row["row"]["ID"] for row in rows_to_delete(target, 2).collect()) == [1, 2]
    assert sorted(row["row"]["ID"] for row in rows_to_delete(target, 1).collect()) == [1]
    assert sorted(row["row"]["ID"] for row in rows_to_delete(target, 3).collect()) == [1, 2, 3, 4]


def test_rows_that_equal_the_state_are_not_missing(spark: SparkSession, tmp_path: Path) -> None:
    columns = (Column("A b", "VARCHAR", 4), Column("X", "DOUBLE", 8), Column("K", "INTEGER", 4))
    made = Replica(
        spark, Place(Layout(str(tmp_path)), Owner("test", "ledger")), TableSchema(TableId("S", "N"), columns, ("K",))
    )
    made.prepare()
    ddl = "`A b` string, X double, K int, __commit_lsn string"
    none = literal_frame(spark, [(None, None, None, EARLY)], ddl)
    assert missing_from_state(made, none, "").count() == 1
    held = [("a", 1.0, 1), (None, None, None), ("c", 0.0, 3), ("d", float("nan"), 4), ("e", 2.0, 5)]
    made.append_rows(literal_frame(spark, [(*row, LATE) for row in held], ddl), 1)
    rows = [("a", 1.0, 1), (None, None, None), ("c", -0.0, 3), ("d", float("nan"), 4), ("E", 2.0, 5), ("f", 2.0, 6)]
    read = literal_frame(spark, [(*row, EARLY) for row in rows], ddl)
    assert [row["K"] for row in missing_from_state(made, read, "").orderBy("K").collect()] == [3, 5, 6]
    assert missing_from_state(made, read, "t.K < 3").where("K <= 2 OR K IS NULL").count() == 1, (
        "bounds narrow what is looked at"
    )


def test_a_difference_has_the_superfluous_and_the_missing_rows(target: Replica) -> None:
    fill(target, 1, [(1, LATE), (2, LATE), (3, LATE), (6, LATE)])
    fill(target, 3, [(4, EARLY)])
    rows = literal_frame(
        target.spark, [(2, 0, EARLY, True), (3, 9, EARLY, True), (5, 0, EARLY, True)],
        "ID int, A int, __commit_lsn string, __present boolean",
    )  # fmt: skip

    def found(within: str, low_batch: int) -> list[tuple[int, int, bool]]:
        differing = diff_with_state(target, rows, within, low_batch).select("ID", "A", "__present").collect()
        return sorted(tuple(row) for row in differing)

    assert found("t.ID <= 5", 2) == [(1, 0, False), (3, 9, True), (5, 0, True)]
    assert found("t.ID <= 5", 3) == [(1, 0, False), (3, 9, True), (4, 0, False), (5, 0, True)]
    assert found("", 0) == [(3, 9, True), (5, 0, True)]
    none = diff_with_state(target, rows.where("false"), "t.ID > 3", 2)
    assert [(row["ID"], row["__present"]) for row in none.collect()] == [(6, False)]


def test_a_key_range_has_exactly_the_rows_of_its_chunks(spark: SparkSession) -> None:
    kinds = (("a b", "INTEGER", 4, 0), ("D", "DECIMAL", 31, 30), ("B", "BIGINT", 8, 0))
    columns = tuple(Column(*kind, nullable=False) for kind in kinds)
    rng = random.Random(3)

    def keys(count: int) -> list[tuple[int, Decimal, int]]:
        numbers = (
            (-1, 0, 3),
            (Decimal("1.00000000000000000001E-7"), Decimal("1.00000000000000000002E-7"), Decimal("0.5")),
            (-(2**63), 0, 2**63 - 1),
        )
        return [(rng.choice(numbers[0]), rng.choice(numbers[1]), rng.choice(numbers[2])) for _ in range(count)]

    held = sorted({*keys(60)})
    frame = spark.createDataFrame(held, "`a b` int, D decimal(31,30), B bigint").alias("t").localCheckpoint()
    for width in (1, 2, 3):
        schema = TableSchema(TableId("S", "K"), columns, tuple(column.name for column in columns[:width]))
        for _ in range(12):
            low, high = (key[:width] if rng.random() < 0.8 else () for key in sorted(keys(2)))
            ends = (
                [key_literal(column, str(value)) for column, value in zip(columns, key, strict=False)]
                for key in (low, high)
            )
            found = frame.where(key_range(schema, *ends)).collect()
            wanted = [key for key in held if (not low or key[:width] > low) and (not high or key[:width] <= high)]
            assert sorted(map(tuple, found)) == wanted, (low, high)


@pytest.mark.parametrize("name", ["IT'S", "A\\B", 'Q"Q', "A`B", "NEW\nLINE", "a`: b"])
def test_keys_and_columns_may_have_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    place = Place(Layout(str(tmp_path)), Owner("test", "ledger"))
    columns = (Column(name, "INTEGER", 4, 0, False), Column("B", "INTEGER", 4))
    made = Replica(spark, place, TableSchema(TableId("S", "N"), columns, (name,)))
    made.prepare()
    ddl = f"{quoted(name)} int, B int, __commit_lsn string"
    made.append_rows(literal_frame(spark, [(1, 1, EARLY), (2, 2, EARLY)], ddl), 1)
    effects = literal_frame(spark, [(2, 5, LATE, True), (3, 3, LATE, True)], f"{ddl}, __present boolean")
    effects = effects.localCheckpoint()
    made.merge(effects, 2, key_bounds(effects, made.schema).bounds, None)
    assert sorted(tuple(row["row"]) for row in made.rows().collect()) == [(1, 1), (2, 5), (3, 3)]
    newest = made.newest_version()
    state = made.layout.state(made.table)
    counts = [load(spark, state, version).count() for version in (newest - 1, newest)]
    assert counts == [2, 3], "another run may be at a later one"


@pytest.mark.parametrize("name", ["key", "source", "headers", "transaction", "op"])
def test_a_new_column_may_have_the_name_of_a_change_log_column(target: Replica, name: str) -> None:
    columns = (*SCHEMA.columns, Column(name, "INTEGER", 4))
    replace(target, schema=replace(SCHEMA, columns=columns)).prepare()
    assert name in load(target.spark, target.layout.state(target.table)).columns


PADDED = [
    (Column("K", "CHARACTER", 5), Column("K", "CHARACTER", 10)),
    (Column("K", "GRAPHIC", 5), Column("K", "GRAPHIC", 10)),
    (Column("K", "BINARY", 5), Column("K", "BINARY", 10)),
    (Column("K", "CHARACTER", 5, bit_data=True), Column("K", "CHARACTER", 10, bit_data=True)),
    (Column("K", "VARCHAR", 10), Column("K", "CHARACTER", 10)),
    (Column("K", "TIMESTAMP", 11, 7), Column("K", "TIMESTAMP", 13, 9)),
]


@pytest.mark.parametrize(("old", "new"), PADDED, ids=lambda column: f"{column.type}({column.length})")
def test_a_padded_new_key_type_stops_the_table_until_a_restart(
    spark: SparkSession, tmp_path: Path, old: Column, new: Column
) -> None:
    place = Place(Layout(str(tmp_path)), Owner("test", "ledger"))

    def of(*columns: Column) -> Replica:
        return Replica(spark, place, TableSchema(TableId("S", "T"), columns, ("K",)))

    token = Column("TOKEN'", "VARCHAR", 9)
    of(old).prepare()
    of(old, token).prepare()
    of(old, replace(token, length=20)).prepare()
    for _ in range(2):
        with pytest.raises(TargetError, match=r"S\.T: .* type of K from .* to .* run `db2cdc offset restart S\.T"):
            of(new, token).prepare()
    of(new, token).prepare(is_begun=True)
    of(new, token).prepare()
    with pytest.raises(TargetError, match="type of K from"):
        of(old, token).prepare()


def test_a_table_without_a_key_changes_columns_only_in_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    def bare(*names: str) -> Replica:
        columns = tuple(Column(name, "INTEGER", 4) for name in names)
        return Replica(spark, place, TableSchema(TableId("S", "BARE"), columns, ()))

    place = Place(Layout(str(tmp_path)), Owner("test", "ledger"))
    bare("A", "B").prepare()
    for anew, names in ((False, "ABC"), (False, "A"), (True, "A"), (True, "AC")):
        with pytest.raises(TargetError, match=r"S\.BARE: it has no key.*db2cdc offset restart S\.BARE"):
            bare(*names).prepare(anew)
    bare("A", "C", "B").prepare(is_begun=True)
    bare("A", "C", "B").prepare()
    assert load(spark, place.layout.state(TableId("S", "BARE"))).columns[:4] == ["A", "C", "B", COPY]


def test_files_of_a_small_state_are_rewritten_and_other_files_marked(target: Replica) -> None:
    folder = Path(target.layout.state(target.table).name)

    def marks_behind_delete(batch: int, id_: int, held: int | None) -> int:
        ddl = "ID int, A int, __commit_lsn string, __present boolean"
        grown, _ = target.merge(literal_frame(target.spark, [(id_, 0, LATE, False)], ddl), batch, "", held)
        assert grown == -1
        return len(list(folder.rglob("deletion_vector*.bin")))

    fill(target, 1, [(id_, EARLY) for id_ in (1, 2, 3, 4)])
    small, large, unknown = 4, 20_001, None
    marks = [marks_behind_delete(id_ + 1, id_, held) for id_, held in enumerate((small, large, unknown), 1)]
    assert marks == [0, 1, 2]
    assert [row["row"]["ID"] for row in target.rows().collect()] == [4]


def test_a_window_is_the_batches_since_the_read_began(target: Replica) -> None:
    for batch, lsn in ((1, LATE), (2, LATE), (3, EARLY), (4, EARLY)):
        log(target, batch, batch, lsn)
    assert sorted(row["key"]["ID"] for row in target.window(1, 3).collect()) == [2, 3]
    assert target.window(3, 3).isEmpty()
