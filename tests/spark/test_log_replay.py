"""Rows that the change log has and the state does not, compared with a plain reader of the log."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.apply.foreign_changes import refill
from airflow_provider_db2cdc.spark.apply.log_replay import lost_rows
from airflow_provider_db2cdc.spark.delta.log_horizon import trim_log
from airflow_provider_db2cdc.spark.delta.ownership import Owner, Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import append, literal_frame, load
from airflow_provider_db2cdc.spark.events.envelope import log_ddl

pytestmark = pytest.mark.spark
COLUMNS = (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4))
Event = tuple[int, str, str, int, str, Any, Any]


def target(spark: SparkSession, folder: Path, *key: str) -> Replica:
    made = Replica(
        spark, Place(Layout(str(folder)), Owner("test", "ledger")), TableSchema(TableId("S", "T"), COLUMNS, key)
    )
    made.prepare()
    return made


def log(target: Replica, events: list[Event]) -> None:
    """Append events (batch, commit, intent, ordinal, op, before, after); an image is (ID, A)."""
    flat = [(*event[:5], *(event[5] or (None, None)), *(event[6] or (None, None))) for event in events]
    at = "__batch bigint, __commit_lsn string, __intent_lsn string, __ordinal int, op string"
    ddl = f"{at}, b0 int, b1 int, a0 int, a1 int"
    rows = target.spark.createDataFrame(flat, ddl)
    image = "CASE WHEN {0}0 IS NOT NULL THEN named_struct('ID', {0}0, 'A', {0}1) END AS {1}"
    key = "named_struct('ID', coalesce(a0, b0)) AS key" if target.schema.key else "cast(NULL AS string) AS key"
    rows = rows.selectExpr("__batch", "__commit_lsn", "__intent_lsn", "__ordinal", "op",
                           image.format("b", "before"), image.format("a", "after"), key)  # fmt: skip
    rest = target.spark.createDataFrame([], log_ddl(target.schema)).drop(*rows.columns)
    append(rows.join(rest, how="left"), target.layout.changes(target.table))


def test_the_last_event_of_a_key_decides(spark: SparkSession, tmp_path: Path) -> None:
    one, rng = target(spark, tmp_path, "ID"), random.Random(3)
    events: list[Event] = []
    held: dict[int, tuple[int, int] | None] = {}
    for at in range(120):
        id_ = rng.randrange(20)
        # The source was restored after batch 2: LSNs begin again.
        batch, commit = at // 30, f"{at % 60:04}"
        op = rng.choice("curd") if held.get(id_) else "c"
        image = (id_, at)
        events.append((batch, commit, "1", 0, op, held.get(id_) if op in "ud" else None, None if op == "d" else image))
        held[id_] = None if op == "d" else image
    log(one, events)
    alive = {image for image in held.values() if image is not None}
    assert {(row["ID"], row["A"]) for row in lost_rows(one).collect()} == alive
    kept = sorted(alive)[::2]
    frame = literal_frame(spark, [(*image, "0") for image in kept], "ID int, A int, __commit_lsn string")
    one.append_rows(frame, 9)
    one.refill(lost_rows(one), 10)
    assert {tuple(row["row"]) for row in one.rows().collect()} == alive
    assert lost_rows(one).isEmpty()


def test_copies_are_counted_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    one, rng = target(spark, tmp_path), random.Random(5)
    events: list[Event] = []
    counts: Counter[tuple[int, int]] = Counter()
    for batch in range(8):
        deltas: Counter[tuple[int, int]] = Counter()
        read = {(at, 0): rng.randrange(1, 4) for at in rng.sample(range(6), 2)} if batch in (0, 3, 6) else {}
        for at in range(10):
            image = (rng.randrange(6), 0)
            if image not in read:
                op = rng.choice("cd")
                events.append((batch, f"{batch}", f"{at:02}", 0, op, *((None, image) if op == "c" else (image, None))))
                deltas[image] += 1 if op == "c" else -1
        for image, delta in deltas.items():
            counts[image] = max(0, counts[image] + delta)
        for image, count in read.items():
            events += [(batch, f"{batch}", "99", 2, "r", None, image)] * count
            counts[image] = count
    log(one, events)
    first = next(image for image, count in counts.items() if count > 1)
    ddl = "ID int, A int, __copy int, __commit_lsn string"
    one.append_rows(literal_frame(spark, [(*first, 1, "0")], ddl), 1)
    one.refill(lost_rows(one), 10)
    rows = [tuple(row["row"]) for row in one.rows().collect()]
    assert Counter(rows) == +counts
    assert lost_rows(one).isEmpty()


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_doubled_key_keeps_its_newest_row_if_its_events_are_trimmed(
    spark: SparkSession, tmp_path: Path, is_trimmed: bool
) -> None:
    """Another writer has doubled the rows 1 and 2. The log has an event of 2, and none of 1 and 3."""
    one = target(spark, tmp_path, "ID")
    log(one, [(5, "5", "1", 0, "c", None, (2, 25))])
    rows = [(1, 10, "1", 1), (1, 14, "4", 4), (1, 12, "2", 2), (2, 25, "5", 5), (2, 26, "6", 6), (3, 30, "1", 1)]
    append(
        literal_frame(spark, rows, "ID int, A int, __commit_lsn string, __batch bigint"), one.layout.state(one.table)
    )
    if is_trimmed:
        trim_log(spark, one.layout, one.table, LogHorizon(5))
    for _ in range(2):
        refill(one, 7)
    kept = {(1, 14, "4", 4)} if is_trimmed else set()
    state = load(spark, one.layout.state(one.table)).select("ID", "A", "__commit_lsn", "__batch").collect()
    assert sorted(tuple(row) for row in state) == sorted({(2, 25, "5", 5), (3, 30, "1", 1)} | kept)
