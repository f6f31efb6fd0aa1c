"""Spark's rule for tables without a key gives what `cdc.event.row_multiset` gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, get_args

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.frames import events_in, read_frame

from airflow_provider_db2cdc.cdc.event import row_multiset as plain
from airflow_provider_db2cdc.cdc.event.change_event import Op, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import count_images
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.events.broadcast import BROADCAST_KEYS
from airflow_provider_db2cdc.spark.events.envelope import row_type
from airflow_provider_db2cdc.spark.events.pairing import Pairing, paired
from airflow_provider_db2cdc.spark.events.row_multiset import (
    copy_effects,
    count_deltas,
    settled,
    staged_copies,
    surplus,
    touched,
)

pytestmark = pytest.mark.spark
SCHEMA = TableSchema(
    TableId("S", "BARE"), (Column("A b", "INTEGER", 4), Column("V", "VARCHAR", 9), Column("X", "DOUBLE", 8)), ()
)
IMAGES: list[Hashable] = [(a, v, x) for a in (None, 1, 2) for v in (None, "", "v") for x in (None, 0.5)]
ROW = row_type(SCHEMA)


def changes(rng: random.Random) -> list[RowChange]:
    """Random changes of a few images. Within a commit, deletions and insertions have any order."""
    return [
        RowChange(_lsn(commit), _lsn(at), rng.choice(("D", "I")), None, rng.choice(IMAGES))
        for commit in range(1, 40)
        for at in range(rng.randint(1, 4))
    ]


def test_events_and_counts_are_the_plain_rule(spark: SparkSession) -> None:
    rng = random.Random(3)
    made = changes(rng)
    held = Counter(rng.choices(IMAGES, k=30))

    events = paired(_change_frame(spark, made), SCHEMA, Pairing("adjacent", before_images=False, bare_updates=True))
    log = _log(events)
    wanted = events_of(made)
    assert Counter(events_in(events.collect())) == Counter(wanted)
    assert {event.op for event in wanted} == set(get_args(Op)) - {"r"}, "an op did not occur"

    deltas = count_deltas(log).localCheckpoint()
    assert {_image(row): row["delta"] for row in deltas.collect()} == count_images(wanted)
    assert {_image(row) for row in touched(log).collect()} == plain.touched(wanted)

    rows = copy_effects(deltas, deltas.count(), _rows(spark, held.elements()), SCHEMA).collect()
    found = {(tuple(row[:3]), row["__copy"], row["__present"]) for row in rows}
    assert found == {
        (image, copy, is_added)
        for image, delta in count_images(wanted).items()
        for is_added, numbers in zip((True, False), plain.renumbered(held[image], delta), strict=True)
        for copy in numbers
    }
    assert len(found) == len(rows)
    last = {image: max(e.commit for e in wanted if image in (e.before, e.after)) for image in count_images(wanted)}
    assert all(Lsn.parse(row["__commit_lsn"]) == last[tuple(row[:3])] for row in rows)


@pytest.mark.parametrize("is_first", [True, False])
def test_rows_that_a_read_settles_are_the_plain_rule(spark: SparkSession, is_first: bool) -> None:
    rng = random.Random(4)
    staged, held = Counter(rng.choices(IMAGES, k=25)), Counter(rng.choices(IMAGES, k=25))
    moved, unknown = set(rng.sample(IMAGES, 4)), None if is_first else set(rng.sample(IMAGES, 12))
    frames = [None if some is None else _images(spark, some) for some in (moved, unknown)]
    assert frames[0] is not None

    read = settled(_rows(spark, staged.elements()).withColumn("chunk", F.lit(0)), frames[0], frames[1])
    right = plain.settled(staged.elements(), moved, unknown)
    assert Counter(_row(row) for row in read.collect()) == right
    numbered = staged_copies(read, SCHEMA, _lsn(7)).collect()
    assert Counter((tuple(row[:3]), row["__copy"]) for row in numbered) == Counter(
        (image, copy) for image, count in right.items() for copy in range(1, count + 1)
    )

    over = plain.surplus(held, staged, moved, unknown)
    state = _rows(spark, held.elements())
    assert over.keys() - staged.keys(), "no image was deleted"
    for whole in (True, False):
        found = Counter(_row(row) for row in surplus(state, read, frames[0], frames[1], whole).collect())
        assert found == (over if whole else {image: count for image, count in over.items() if image in staged})


def test_whole_rows_are_broadcast_only_if_they_are_few(spark: SparkSession) -> None:
    """A driver cannot hold a million of them."""
    made = paired(_change_frame(spark, []), SCHEMA, Pairing("adjacent", before_images=False, bare_updates=True))
    for count, is_sent in ((BROADCAST_KEYS, True), (BROADCAST_KEYS + 1, False)):
        effects = copy_effects(count_deltas(_log(made)), count, _rows(spark, []), SCHEMA)
        assert ("strategy=broadcast" in effects._jdf.queryExecution().analyzed().toString()) is is_sent


def test_the_sign_of_a_zero_is_preserved(spark: SparkSession) -> None:
    image = (1, "v", -0.0)
    made = [RowChange(_lsn(1), _lsn(at), "I", None, image) for at in range(2)]
    log = _log(paired(_change_frame(spark, made), SCHEMA, Pairing("adjacent", before_images=False, bare_updates=True)))
    rows = copy_effects(count_deltas(log), 1, _rows(spark, []), SCHEMA).collect()
    assert [str(row["X"]) for row in rows] == ["-0.0", "-0.0"]
    assert [str(row["X"]) for row in staged_copies(_rows(spark, [image]), SCHEMA, _lsn(1)).collect()] == ["-0.0"]


def _change_frame(spark: SparkSession, made: Iterable[RowChange]) -> DataFrame:
    rows = [(bytearray(c.commit.raw), bytearray(c.intent.raw), c.op, *_tuple(c.image)) for c in made]
    return read_frame(spark, rows, "CC binary, CI binary, CO string, C0 int, C1 string, C2 double")


def _log(events: DataFrame) -> DataFrame:
    return events.select(
        F.col("commit").alias("__commit_lsn"),
        F.col("intent").alias("__intent_lsn"),
        *("op", "before", "after"),
        F.struct(F.lit("false").alias("snapshot")).alias("source"),
    ).localCheckpoint()


def _rows(spark: SparkSession, images: Iterable[Any]) -> DataFrame:
    return spark.createDataFrame([(image,) for image in images], f"row {ROW}")


def _images(spark: SparkSession, images: Iterable[Any]) -> DataFrame:
    return spark.createDataFrame([(image,) for image in images], f"image {ROW}")


def _lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def _image(row: Any) -> tuple[Any, ...]:
    return tuple(row["image"])


def _row(row: Any) -> tuple[Any, ...]:
    return tuple(row["row"])


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value)
