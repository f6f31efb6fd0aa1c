"""The order of the change log is the one of `cdc.event.fold`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.frames import SEEDED, change_frame, log_frame, read_frame, seeded
from support.history import HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.event.change_event import RowChange, events_of
from airflow_provider_db2cdc.cdc.event.fold import EVENT, MOVED, Placed, placed
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.spark.apply.fold import safe_to_fold
from airflow_provider_db2cdc.spark.delta.ownership import Owner, Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.envelope import TOMBSTONE
from airflow_provider_db2cdc.spark.events.net_effect import count_batch
from airflow_provider_db2cdc.spark.events.pairing import Pairing, paired

pytestmark = pytest.mark.spark
HISTORIES = 150
Line = tuple[Any, ...]


def target_of(spark: SparkSession, folder: Path, schema: TableSchema) -> Replica:
    return Replica(spark, Place(Layout(str(folder)), Owner("test", "ledger")), schema)


def log_of(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """Return change rows as rows of the log with their tombstones, in the source's order."""
    own = log_frame(paired(frame, schema, Pairing("adjacent", before_images=False, bare_updates=True)))
    events = own.withColumn("__ordinal", F.lit(EVENT))
    blank = {name: F.lit(None).cast(events.schema[name].dataType) for name in ("op", "before", "after", "source")}
    stones = events.where("op = 'd'").withColumns({**blank, "__ordinal": F.lit(TOMBSTONE)})
    return events.unionByName(stones).localCheckpoint()


def lines_in(log: DataFrame) -> Counter[Line]:
    """Return the rows of a log: place, op, key and images."""
    rows = log.select("__commit_lsn", "__intent_lsn", "__ordinal", "op", "key", "before", "after").collect()
    return Counter((*row[:4], *(value and tuple(value) for value in row[4:])) for row in rows)


def lines_of(log: Iterable[Placed]) -> Iterator[Line]:
    for one in log:
        event, at = one.event, (str(one.event.commit), str(one.intent))
        yield (*at, one.ordinal, event.op, event.key, event.before, event.after)
        if event.op == "d":
            yield (*at, one.ordinal + TOMBSTONE, None, event.key, None, None)


@pytest.mark.parametrize("update_as", ["DI", "U"])
def test_order_is_the_plain_rule(spark: SparkSession, tmp_path: Path, update_as: Any) -> None:
    rng = random.Random(7)
    changes: list[RowChange] = []
    state: list[tuple[Any, ...]] = []
    for seed in range(1, HISTORIES):
        options = HistoryOptions(
            composite=False, update_as=update_as, transactions=10, new_first_rate=(0, 0.3)[seed % 2]
        )
        drawn = random_history(seed, options)
        low = rng.choice(drawn.positions[:4])
        span = LsnRange(low, drawn.positions[-1])
        changes += seeded(seed, [row for row in drawn.changes["T0"] if row.commit in span])
        state += [(seed, *row) for row in drawn.state("T0", low).values()]
    target = target_of(spark, tmp_path, SEEDED)
    target.prepare()
    filled = spark.createDataFrame(state, "SEED int, ID int, A int, B string").withColumn("__commit_lsn", F.lit(""))
    target.append_rows(filled, 1)
    log = log_of(change_frame(spark, changes), SEEDED)

    found = safe_to_fold(target, log, count_batch(log))

    assert found.columns == log.columns
    plain = placed(events_of(changes), {row[:2] for row in state})
    assert lines_in(found) == Counter(lines_of(plain))
    if update_as == "DI":
        assert sum(one.ordinal == MOVED for one in plain) > HISTORIES
        assert lines_in(safe_to_fold(empty(spark, tmp_path), log, count_batch(log))) != lines_in(found)


def empty(spark: SparkSession, folder: Path) -> Replica:
    """Return a target that holds nothing."""
    made = target_of(spark, folder / "empty", SEEDED)
    made.prepare()
    return made


KEYED = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("X", "DOUBLE", 8)), ("ID",))


def commit_of(spark: SparkSession, *rows: tuple[str, int, float]) -> DataFrame:
    made = [(bytearray([1] * 16), bytearray([at] * 16), *row) for at, row in enumerate(rows)]
    return read_frame(spark, made, "CC binary, CI binary, CO string, C0 int, C1 double")


def described(log: DataFrame) -> list[str]:
    rows = log.where("op IS NOT NULL").orderBy("__commit_lsn", "__intent_lsn", "__ordinal").collect()
    return [f"{row['op']}{row['key'][0]} {(row['after'] or row['before'])['X']}" for row in rows]


@pytest.mark.parametrize(("old", "new", "is_known"), [(0.0, -0.0, True), (-0.0, 0.0, True), (0.0, 0.0, False)])
def test_images_differ_by_the_sign_of_a_zero(
    spark: SparkSession, tmp_path: Path, old: float, new: float, is_known: bool
) -> None:
    log = log_of(commit_of(spark, ("I", 1, new), ("D", 1, old)), KEYED)
    target = target_of(spark, tmp_path, KEYED)
    target.prepare()

    found = described(safe_to_fold(target, log, count_batch(log)))

    assert found == ([f"d1 {old}", f"c1 {new}"] if is_known else [f"c1 {new}", f"d1 {old}"])


def test_an_image_that_is_no_number_is_equal_to_itself(spark: SparkSession, tmp_path: Path) -> None:
    nan = float("nan")
    log = log_of(commit_of(spark, ("I", 1, nan), ("D", 1, nan), ("I", 2, nan), ("D", 2, nan)), KEYED)
    target = target_of(spark, tmp_path, KEYED)
    target.prepare()
    target.append_rows(spark.createDataFrame([(1, nan, "")], "ID int, X double, __commit_lsn string"), 1)

    assert described(safe_to_fold(target, log, count_batch(log))) == ["d1 nan", "c1 nan", "c2 nan", "d2 nan"]


def test_the_state_is_not_read_if_no_key_was_created_and_deleted(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(commit_of(spark, ("I", 1, 1.0), ("D", 2, 1.0), ("I", 2, 2.0), ("D", 3, 1.0)), KEYED)
    asked: list[ReachedFailpoint] = []
    with failpoint_action("commit_effects", before=asked.append):
        assert safe_to_fold(target_of(spark, tmp_path, KEYED), log, count_batch(log)) is log
    assert asked == []


def test_the_state_is_read_only_for_keys_that_the_events_do_not_decide(spark: SparkSession, tmp_path: Path) -> None:
    """There is no state: to read it would fail."""
    rows = (("D", 1, 1.0), ("I", 2, 1.0), ("D", 2, 2.0), ("I", 3, 2.0))
    log = log_of(commit_of(spark, *rows), KEYED)

    found = described(safe_to_fold(target_of(spark, tmp_path, KEYED), log, count_batch(log)))

    assert found == ["d1 1.0", "d2 2.0", "c2 1.0", "c3 2.0"]
