"""The events that Spark makes of change rows are those of `cdc.event.change_event`."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.frames import SEEDED, SEEDED_TEXT, change_frame, effects_in, events_in, log_frame, read_frame, seeded
from support.history import HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import net_effects as plain_effects
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.events.envelope import row_struct
from airflow_provider_db2cdc.spark.events.net_effect import count_batch, net_effects
from airflow_provider_db2cdc.spark.events.pairing import BARE_UPDATE, Pairing, paired
from airflow_provider_db2cdc.spark.events.state_rows import effect_rows

pytestmark = pytest.mark.spark
HISTORIES = 150
WITH_BEFORE_IMAGES = (
    "CC binary, CI binary, CO string, C0 int, C1 int, C2 int, C3 string, B0 int, B1 int, B2 int, B3 string"
)


def many_changes(update_as: Any, keys: Any = "numbers") -> list[RowChange]:
    options = HistoryOptions(composite=False, update_as=update_as, transactions=10, keys=keys)
    return [
        change for seed in range(1, HISTORIES) for change in seeded(seed, random_history(seed, options).changes["T0"])
    ]


@pytest.mark.parametrize("detection", ["adjacent", "none"])
@pytest.mark.parametrize(("update_as", "keys"), [("DI", "numbers"), ("U", "numbers"), ("DI", "blanks")])
def test_pairing_is_the_plain_rule(
    spark: SparkSession, update_as: str, keys: str, detection: KeyChangeDetection
) -> None:
    changes, schema = many_changes(update_as, keys), SEEDED_TEXT if keys == "blanks" else SEEDED
    frame = change_frame(spark, changes, text=keys == "blanks")

    frame = paired(frame, schema, Pairing(detection, before_images=False, bare_updates=True))

    assert Counter(events_in(frame.collect())) == Counter(events_of(changes, detection))


def test_a_time_is_formatted_from_its_digits_even_24_00_00(spark: SparkSession) -> None:
    schema = TableSchema(TableId("S", "T"), (Column("T", "TIME", 3),), ())
    numbers = spark.sql("SELECT * FROM VALUES (240000), (133005), (5), (0), (null) AS t(C0)")
    texts = [row[0]["T"] for row in numbers.select(row_struct(schema, "C")).collect()]
    assert texts == ["24:00:00", "13:30:05", "00:00:05", "00:00:00", None]


def test_pairing_shuffles_nothing(spark: SparkSession) -> None:
    frame = paired(
        change_frame(spark, many_changes("DI")), SEEDED, Pairing("adjacent", before_images=False, bare_updates=True)
    )

    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()


def test_updates_with_before_images_pair_like_deletes_and_inserts(spark: SparkSession) -> None:
    lsn = "aa" * 16
    row = (bytearray.fromhex(lsn), bytearray.fromhex(lsn), "U", 1, 2, 3, "new", 1, 2, 3, "old")
    moved = (bytearray.fromhex(lsn), bytearray.fromhex("bb" * 16), "U", 1, 9, 3, "x", 1, 8, 3, "x")
    rows = read_frame(spark, [row, moved], WITH_BEFORE_IMAGES)
    frame = paired(rows, SEEDED, Pairing("adjacent", before_images=True, bare_updates=False))

    update, delete, create = events_in(frame.orderBy("intent", F.col("op").desc()).collect())

    assert (update.op, update.before, update.after) == ("u", (1, 2, 3, "old"), (1, 2, 3, "new"))
    assert (delete.op, delete.key, delete.newkey) == ("d", (1, 8), (1, 9))
    assert (create.op, create.key, create.oldkey) == ("c", (1, 9), (1, 8))


def test_deletion_and_insertion_do_not_pair_if_updates_are_one_row(spark: SparkSession) -> None:
    commit, nulls = bytearray.fromhex("aa" * 16), (None, None, None, None)
    places = [bytearray.fromhex(f"{at:02x}" * 16) for at in range(1, 4)]
    rows = [
        (commit, places[0], "D", 1, 2, 3, "old", *nulls),
        (commit, places[1], "I", 1, 2, 3, "new", *nulls),
        (commit, places[2], "U", 1, 2, 4, "newer", 1, 2, 3, "new"),
    ]
    frame = read_frame(spark, rows, WITH_BEFORE_IMAGES)

    def ops(one_row: bool) -> list[str]:
        found = paired(frame, SEEDED, Pairing("adjacent", before_images=True, bare_updates=False, one_row=one_row))
        return [event.op for event in events_in(found.orderBy("intent").collect())]

    assert (ops(True), ops(False)) == (["d", "c", "u"], ["u", "u"])
    halves: list[tuple[int, Literal["D", "I"], int]] = [(1, "D", 2), (2, "I", 2), (3, "D", 2), (3, "I", 2)]
    changes = [RowChange(1, intent, op, key, f"{intent}{op}") for intent, op, key in halves]
    assert [[event.op for event in events_of(changes, one_row=one_row)] for one_row in (True, False)] == [
        ["d", "c", "u"],
        ["u", "u"],
    ]


def test_an_update_without_before_images_has_no_before(spark: SparkSession) -> None:
    lsn = bytearray.fromhex("aa" * 16)
    rows = read_frame(spark, [(lsn, lsn, "U", 1, 2, 3, "new", None, None, None, None)], WITH_BEFORE_IMAGES)

    [update] = events_in(paired(rows, SEEDED, Pairing("adjacent", before_images=True, bare_updates=True)).collect())

    assert (update.op, update.before, update.after) == ("u", None, (1, 2, 3, "new"))


@pytest.mark.parametrize("before_images", [True, False])
def test_a_bare_update_is_an_error_unless_it_is_accepted(spark: SparkSession, before_images: bool) -> None:
    lsn = bytearray.fromhex("aa" * 16)
    rows = read_frame(spark, [(lsn, lsn, "U", 1, 2, 3, "new", None, None, None, None)], WITH_BEFORE_IMAGES)
    events = paired(rows, SEEDED, Pairing("adjacent", before_images, bare_updates=False))

    with pytest.raises(PySparkException, match=BARE_UPDATE):
        events.collect()


@pytest.mark.parametrize(("update_as", "keys"), [("DI", "numbers"), ("U", "numbers"), ("DI", "blanks")])
def test_net_effects_are_the_plain_rule(spark: SparkSession, update_as: str, keys: str) -> None:
    changes, schema = many_changes(update_as, keys), SEEDED_TEXT if keys == "blanks" else SEEDED
    frame = change_frame(spark, changes, text=keys == "blanks")
    events = paired(frame, schema, Pairing("adjacent", before_images=False, bare_updates=True))
    batch = log_frame(events)
    counts = count_batch(batch)

    found = effects_in(net_effects(batch, schema, counts).collect())

    wanted = plain_effects(events_of(changes))
    assert {key: image for key, (_, image) in found.items()} == {key: e.image for key, e in wanted.items()}
    assert {key: commit for key, (commit, _) in found.items()} == {key: e.commit for key, e in wanted.items()}
    ops = Counter(event.op for event in events_of(changes))
    assert (counts.creates, counts.updates, counts.deletes) == (ops["c"], ops["u"], ops["d"])
    assert counts.hot_keys > HISTORIES


def test_the_sign_of_a_zero_value_is_preserved_over_several_events(spark: SparkSession) -> None:
    schema = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("X", "DOUBLE", 8)), ("ID",))
    rows = [
        (bytearray([commit] * 16), bytearray([intent] * 16), op, 1, value)
        for commit, intent, op, value in ((1, 1, "I", 0.0), (2, 2, "D", 0.0), (2, 3, "I", -0.0))
    ]
    frame = read_frame(spark, rows, "CC binary, CI binary, CO string, C0 int, C1 double")
    batch = log_frame(paired(frame, schema, Pairing("adjacent", before_images=False, bare_updates=False)))

    [row] = net_effects(batch, schema, count_batch(batch)).collect()

    assert str(row["row"]["X"]) == "-0.0"


def test_the_sign_of_a_zero_key_is_preserved_over_several_events(spark: SparkSession) -> None:
    schema = TableSchema(TableId("S", "T"), (Column("X", "DOUBLE", 8, 0, False), Column("A", "INTEGER", 4)), ("X",))
    rows = [
        (bytearray([at] * 16), bytearray([at] * 16), op, -0.0, value)
        for at, op, value in ((1, "I", 1), (2, "D", 1), (3, "I", 2))
    ]
    frame = read_frame(spark, rows, "CC binary, CI binary, CO string, C0 double, C1 int")
    batch = log_frame(paired(frame, schema, Pairing("adjacent", before_images=False, bare_updates=False)))

    [row] = effect_rows(net_effects(batch, schema, count_batch(batch)), schema).collect()

    assert (str(row["X"]), row["A"], row["__present"]) == ("-0.0", 2, True)
