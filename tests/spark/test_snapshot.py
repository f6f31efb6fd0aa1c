"""Set by set, what survives of a torn read is cdc/window.py's rule."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.frames import SEEDED, change_frame, log_frame, seeded
from support.history import History, HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.effect import net_effects as plain_effects
from airflow_provider_db2cdc.cdc.event import RowChange, events_of
from airflow_provider_db2cdc.cdc.window import surviving as plain_surviving
from airflow_provider_db2cdc.spark.changes import paired
from airflow_provider_db2cdc.spark.effects import count_batch
from airflow_provider_db2cdc.spark.snapshot import surviving

pytestmark = pytest.mark.spark
HISTORIES = 150
Staged = list[tuple[tuple[Any, ...], tuple[Any, ...]]]


def torn_read(seed: int, history: History, rng: random.Random) -> tuple[Staged, list[RowChange]]:
    """Return rows that were looked at at moments between two commits, and the changes between these.

    A scan meets a row twice only where it moved meanwhile.
    """
    low, high = sorted(rng.sample(range(len(history.positions)), 2))
    moments = [history.state("T0", at) for at in history.positions[low : high + 1]]
    span = {*history.positions[low + 1 : high + 1]}
    changes = [change for change in history.changes["T0"] if change.commit in span]
    moved = {change.key for change in changes}
    keys = sorted({key for state in moments for key in state})
    looks = [key for key in keys for _ in range(rng.choice((1, 2)) if key in moved else 1)]
    seen = ((key, rng.choice(moments).get(key)) for key in looks)
    staged = [((seed, *key), (seed, *image)) for key, image in seen if image is not None]
    return staged, seeded(seed, changes)


def test_surviving_rows_are_the_plain_rule(spark: SparkSession) -> None:
    rng = random.Random(5)
    options = HistoryOptions(composite=False, transactions=12, width=5)
    reads = [torn_read(seed, random_history(seed, options), rng) for seed in range(1, HISTORIES)]
    staged = [row for rows, _ in reads for row in rows]
    changes = [change for _, some in reads for change in some]
    events = paired(change_frame(spark, changes), SEEDED, "adjacent", before_images=False)
    window = log_frame(events)
    rows = spark.createDataFrame(
        [(image, 0) for _, image in staged], "row struct<SEED: int, ID: int, A: int, B: string>, chunk int"
    )

    found = surviving(rows, SEEDED, window, count_batch(window)).collect()

    effects = plain_effects(events_of(changes))
    wanted = plain_surviving(staged, effects)
    assert sorted(tuple(row["row"]) for row in found) == sorted(wanted.values())
    touched = {event.key for event in events_of(changes)}
    assert touched & wanted.keys(), "no key's events cancelled out"
    assert {key for key, _ in staged} & effects.keys(), "no staged row had to give way"
