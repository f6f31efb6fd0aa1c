"""Set by set, the pairing is cdc/event.py's rule."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.frames import SEEDED, change_frame, effects_in, events_in, log_frame, seeded
from support.history import HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.effect import net_effects as plain_effects
from airflow_provider_db2cdc.cdc.event import KeyChangeDetection, RowChange, events_of
from airflow_provider_db2cdc.spark.changes import paired
from airflow_provider_db2cdc.spark.effects import count_batch, net_effects

pytestmark = pytest.mark.spark
HISTORIES = 150


def many_changes(update_as: Any) -> list[RowChange]:
    options = HistoryOptions(composite=False, update_as=update_as, transactions=10)
    return [
        change for seed in range(1, HISTORIES) for change in seeded(seed, random_history(seed, options).changes["T0"])
    ]


@pytest.mark.parametrize("detection", ["adjacent", "none"])
@pytest.mark.parametrize("update_as", ["DI", "U"])
def test_pairing_is_the_plain_rule(spark: SparkSession, update_as: str, detection: KeyChangeDetection) -> None:
    changes = many_changes(update_as)

    frame = paired(change_frame(spark, changes), SEEDED, detection, before_images=False)

    assert Counter(events_in(frame.collect())) == Counter(events_of(changes, detection))


def test_pairing_shuffles_nothing(spark: SparkSession) -> None:
    frame = paired(change_frame(spark, many_changes("DI")), SEEDED, "adjacent", before_images=False)

    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()


def test_updates_with_before_images_pair_like_deletes_and_inserts(spark: SparkSession) -> None:
    lsn = "aa" * 16
    row = (bytearray.fromhex(lsn), bytearray.fromhex(lsn), "U", 1, 2, 3, "new", 1, 2, 3, "old")
    moved = (bytearray.fromhex(lsn), bytearray.fromhex("bb" * 16), "U", 1, 9, 3, "x", 1, 8, 3, "x")
    ddl = "CC binary, CI binary, CO string, C0 int, C1 int, C2 int, C3 string, B0 int, B1 int, B2 int, B3 string"
    frame = paired(spark.createDataFrame([row, moved], ddl).coalesce(1), SEEDED, "adjacent", before_images=True)

    update, delete, create = events_in(frame.orderBy("intent", F.col("op").desc()).collect())

    assert (update.op, update.before, update.after) == ("u", (1, 2, 3, "old"), (1, 2, 3, "new"))
    assert (delete.op, delete.key, delete.newkey) == ("d", (1, 8), (1, 9))
    assert (create.op, create.key, create.oldkey) == ("c", (1, 9), (1, 8))


@pytest.mark.parametrize("update_as", ["DI", "U"])
def test_net_effects_are_the_plain_rule(spark: SparkSession, update_as: str) -> None:
    changes = many_changes(update_as)
    events = paired(change_frame(spark, changes), SEEDED, "adjacent", before_images=False)
    batch = log_frame(events)
    counts = count_batch(batch)

    found = effects_in(net_effects(batch, SEEDED, counts).collect())

    wanted = plain_effects(events_of(changes))
    assert {key: image for key, (_, image) in found.items()} == {key: e.image for key, e in wanted.items()}
    assert {key: commit for key, (commit, _) in found.items()} == {key: e.commit for key, e in wanted.items()}
    ops = Counter(event.op for event in events_of(changes))
    assert (counts.creates, counts.updates, counts.deletes) == (ops["c"], ops["u"], ops["d"])
    assert counts.hot_keys > HISTORIES
