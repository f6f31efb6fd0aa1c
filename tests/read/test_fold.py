"""Events of random histories fold into the rows that the source holds."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.history import HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.event.change_event import events_of
from airflow_provider_db2cdc.cdc.event.fold import placed
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.read import fold, last_events

pytestmark = pytest.mark.spark
HISTORIES = 120
ORDER = "__batch bigint, __commit_lsn string, __intent_lsn string, __ordinal int"
ROW = "struct<SEED: int, ID: int, A: int, B: string>"
KEYED = f"{ORDER}, op string, key struct<SEED: int, ID: int>, before {ROW}, after {ROW}"
KEYLESS = f"{ORDER}, op string, key string, before {ROW}, after {ROW}"
Line = tuple[Any, ...]


def keyed_log(seed: int, batch_of: dict[Any, int]) -> tuple[list[Line], list[Line]]:
    """Return the log of a history whose initial rows were read, and the rows that its source holds at the end."""
    drawn = random_history(seed, HistoryOptions(composite=False, transactions=8))
    initial = [(seed, *row) for row in drawn.initial["T0"]]
    lines: list[Line] = [(0, str(drawn.start), "f", 2, "r", row[:2], None, row) for row in initial]
    events = placed(events_of(drawn.changes["T0"]), {row[1:2] for row in initial})
    for entry in events:
        event = entry.event
        batch = batch_of.setdefault((seed, event.commit), len(batch_of) + 1)
        place = (batch, str(event.commit), str(entry.intent))
        images = [None if image is None else (seed, *image) for image in (event.before, event.after)]  # type: ignore[misc]
        key = (seed, *event.key)  # type: ignore[misc]
        lines.append((*place, entry.ordinal, event.op, key, *images))
        if event.op == "d":
            lines.append((*place, entry.ordinal + 1, None, key, None, None))
    return lines, [(seed, *row) for row in drawn.state("T0", drawn.positions[-1]).values()]


def test_events_of_a_table_with_a_key_fold_into_the_sources_rows(spark: SparkSession) -> None:
    lines: list[Line] = []
    rows: list[Line] = []
    batches: dict[Any, int] = {}
    for seed in range(HISTORIES):
        log, state = keyed_log(seed, batches)
        lines += log
        rows += state
    random.Random(1).shuffle(lines)
    changes = spark.createDataFrame(lines, KEYED).coalesce(1).localCheckpoint()
    assert Counter(map(tuple, fold(changes).collect())) == Counter(rows)
    last = last_events(changes).collect()
    assert len(last) == len({line[5] for line in lines})
    assert {row["op"] for row in last} == {"c", "u", "d", "r"}
    assert all((row["op"] == "d") == (row["after"] is None) for row in last)
    middle = max(batches.values()) // 2
    halves = last_events(changes.where(f"__batch <= {middle}")), last_events(changes.where(f"__batch > {middle}"))
    merged = {row["key"]: row["after"] for half in halves for row in half.collect()}
    assert Counter(tuple(row) for row in merged.values() if row) == Counter(rows), "a consumer that merges ranges"


def test_events_of_a_table_without_a_key_fold_into_its_copies(spark: SparkSession) -> None:
    rng = random.Random(5)
    lines: list[Line] = []
    counts: Counter[Line] = Counter()
    for seed in range(HISTORIES):
        for batch in range(6):
            images = [(seed, id_, None, "x") for id_ in range(3)]
            read = {images[id_]: rng.randrange(1, 4) for id_ in rng.sample(range(3), 1)} if batch in (0, 3) else {}
            deltas: Counter[Line] = Counter()
            for at in range(5):
                image, op = rng.choice(images), rng.choice("cd")
                if image not in read:
                    before, after = (image, None) if op == "d" else (None, image)
                    lines.append((batch, "1", str(at), 0, op, None, before, after))
                    deltas[image] += 1 if op == "c" else -1
            for image, delta in deltas.items():
                counts[image] = max(0, counts[image] + delta)
            for image, copies in read.items():
                lines += [(batch, "1", "f", 2, "r", None, None, image)] * copies
                counts[image] = copies
    changes = spark.createDataFrame(lines, KEYLESS).coalesce(1)
    assert Counter(map(tuple, fold(changes).collect())) == +counts
    with pytest.raises(ConfigurationError, match="without a key"):
        last_events(changes)


def test_no_events_fold_into_no_rows(spark: SparkSession) -> None:
    for ddl in (KEYED, KEYLESS):
        nothing: DataFrame = spark.createDataFrame([], ddl)
        assert fold(nothing).columns == ["SEED", "ID", "A", "B"]
        assert fold(nothing).isEmpty()
