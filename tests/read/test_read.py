"""Changes and states of a target, read by ranges and by manifest rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.job_samples import lsn
from support.lake import START, Lake, Line

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, TargetError
from airflow_provider_db2cdc.read import (
    BatchRange,
    ChangeRange,
    LsnRange,
    TimeRange,
    asset_event_range,
    fold,
    last_batch,
    read_changes,
    read_state,
)
from airflow_provider_db2cdc.spark.delta.table_io import append, current_version, literal_frame, load

pytestmark = pytest.mark.spark
ORDERS, ODD = TableId("SALES", "ORDERS"), TableId("a.b", "c d")

WHOLE = BatchRange()
EVENTS: list[Line] = [
    (1, 10, "r", 1, None),
    (1, 10, "r", None, None),
    (2, 20, "c", 2, 60),
    (2, 25, "d", None, 120),
    (3, 30, "d", 2, 180),
    # The source was restored: its LSNs begin again.
    (4, 20, "c", 3, 240),
    (5, 40, "c", 4, 300),
]
"""Batch 5 is not applied."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A target with one table, whose last batch is not applied."""
    made = Lake(spark, tmp_path_factory.mktemp("read"))
    made.log(ORDERS, EVENTS)
    for batch in range(1, 5):
        made.apply(ORDERS, batch)
    made.apply(TableId("SALES", "OTHER"), 9)
    return made


def read(lake: Lake, within: ChangeRange = WHOLE, tombstones: bool = True) -> list[str]:
    """Return op and key of each event."""
    rows = read_changes(lake.spark, lake.target, "SALES.ORDERS", within, tombstones).collect()
    return [f"{row['op'] or 't'}{row['key'][0] or ''}" for row in rows]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


WITHIN: list[tuple[ChangeRange, str]] = [
    (BatchRange(), "r1 r c2 d t d2 t2 c3"),
    (BatchRange(1, 3), "c2 d t d2 t2"),
    (BatchRange(2), "d2 t2 c3"),
    (BatchRange(4), ""),
    (LsnRange(lsn(20), lsn(25)), "d t"),
    (LsnRange(str(lsn(10)), str(lsn(20))), "c2 c3"),
    (LsnRange(upto=lsn(10)), "r1 r"),
    (LsnRange(after=lsn(25)), "d2 t2"),
    (TimeRange(at(60), at(180)), "d t d2 t2"),
    (TimeRange(at(59.9), at(60)), "c2"),
    (TimeRange(after=at(180)), "c3"),
    (TimeRange(upto=at(60)), "c2"),
]


@pytest.mark.parametrize(("within", "events"), WITHIN, ids=lambda value: str(value)[:40])
def test_a_range_has_its_events_in_the_order_of_the_log(lake: Lake, within: ChangeRange, events: str) -> None:
    found = read(lake, within)
    assert (
        found[:1] + found[1:] == events.split()
        or sorted(found[:2]) + found[2:] == sorted(events.split()[:2]) + (events.split()[2:])
    ), "r events of one chunk have no order"
    assert read(lake, within, tombstones=False) == [event for event in found if not event.startswith("t")]


def test_an_lsn_range_has_no_commits_whose_lsns_have_another_length(spark: SparkSession, tmp_path: Path) -> None:
    """Their texts would be in the range. Db2's LSNs had 10 bytes before its compatibility level was raised."""
    lake, early = Lake(spark, tmp_path), str(Lsn(bytes.fromhex("000000000000150F048F")))
    lake.log(ORDERS, [(1, 1, "c", 1, 60)])
    name = lake.place.layout.changes(ORDERS)
    shorter = load(spark, name).withColumns({"__commit_lsn": F.lit(early), "__batch": F.lit(2).cast("bigint")})
    append(shorter.localCheckpoint(), name)
    lake.log(ORDERS, [(3, 30, "c", 3, 180)])
    for batch in (1, 2, 3):
        lake.apply(ORDERS, batch)

    def batches(within: LsnRange) -> list[int]:
        return [row["__batch"] for row in read_changes(spark, lake.target, ORDERS, within).collect()]

    assert batches(LsnRange(after=lsn(20))) == [3]
    assert batches(LsnRange(upto=lsn(40))) == [1, 3]
    assert batches(LsnRange(upto=early)) == [2]
    assert batches(LsnRange()) == [1, 2, 3]


def test_ranges_of_asset_events_have_each_event_once(lake: Lake) -> None:
    log_id = current_version(lake.spark, Layout(lake.target).changes(ORDERS)).id
    extras = [{"from_batch": low, "to_batch": high, "log_id": log_id} for low, high in ((0, 1), (1, 3), (3, 4))]
    pieces = [read(lake, asset_event_range(extra)) for extra in extras]
    assert sorted(event for piece in pieces for event in piece) == sorted(read(lake))
    assert sorted(read(lake, asset_event_range(*extras))) == sorted(read(lake))
    with pytest.raises(TargetError, match=r"SALES\.ORDERS: the range belongs to a change log .* no longer has"):
        read(lake, BatchRange(0, 1, "another"))


def test_only_applied_batches_are_read(lake: Lake) -> None:
    assert last_batch(lake.spark, lake.target, "SALES.ORDERS") == 4
    for within in (BatchRange(4, 5), BatchRange(5)):
        with pytest.raises(ConfigurationError, match=r"SALES\.ORDERS: the range ends with batch 5.* is 4"):
            read(lake, within)


def test_a_wrong_table_or_target_is_named(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=r"SALES\.NONE: the target .* has no applied batch"):
        read_changes(lake.spark, lake.target, "SALES.NONE")
    with pytest.raises(ConfigurationError, match="no pipeline's target at"):
        last_batch(lake.spark, f"{lake.target}/none", ORDERS)
    with pytest.raises(ConfigurationError, match="no pipeline's target at"):
        read_state(lake.spark, f"{lake.target}/none")
    with pytest.raises(ConfigurationError, match=r"manifest of .* has no row\. "):
        read_state(lake.spark, lake.target)


@pytest.fixture(scope="module")
def states(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A target of two tables. Batch n adds the row n to each, and has a manifest row. Its frontier is LSN 10 * n."""
    made = Lake(spark, tmp_path_factory.mktemp("states"))
    replicas = [made.replica(table) for table in (ORDERS, ODD)]
    for batch in (1, 2, 3):
        rows = literal_frame(spark, [(batch, 0, "x")], "ID int, A int, __commit_lsn string")
        versions = [replica.append_rows(rows, batch) for replica in replicas]
        commits = [
            made.apply(replica.table, batch, version or 0) for replica, version in zip(replicas, versions, strict=True)
        ]
        made.batch_log.write_manifest(batch, lsn(10 * batch), commits, 0)
    # Another version, which no manifest row names.
    replicas[0].append_rows(literal_frame(spark, [(9, 0, "x")], "ID int, A int, __commit_lsn string"), 9)
    return made


@pytest.mark.parametrize(
    ("moment", "rows"),
    [
        (None, 3),
        (START + timedelta(seconds=3), 3),
        (START + timedelta(seconds=2.9), 2),
        (START + timedelta(seconds=1), 1),
        (lsn(30), 3),
        (lsn(29), 2),
        (lsn(99), 3),
    ],
)
def test_all_tables_are_read_as_of_one_manifest_row(states: Lake, moment: Any, rows: int) -> None:
    found = read_state(states.spark, states.target, moment)
    assert {*found} == {"SALES.ORDERS", '"a.b"."c d"'}
    ids = {name: sorted(row["ID"] for row in frame.collect()) for name, frame in found.items()}
    assert [*ids.values()] == [[*range(1, rows + 1)]] * 2


def test_a_state_is_limited_to_tables_that_the_manifest_has(states: Lake) -> None:
    assert [*read_state(states.spark, states.target, tables=["SALES.ORDERS"])] == ["SALES.ORDERS"]
    with pytest.raises(ConfigurationError, match=r'no table SALES\.NONE at batch 3. It has "a\.b"\."c d", SALES'):
        read_state(states.spark, states.target, tables=["SALES.NONE"])


def test_a_moment_has_nothing_of_a_later_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """The tables are as of different times: the snapshot of one of them has read rows at 20 s."""
    lake = Lake(spark, tmp_path)
    orders, odd = (lake.replica(table) for table in (ORDERS, ODD))
    rows = literal_frame(spark, [(1, 0, "x")], "ID int, A int, __commit_lsn string")
    first = [lake.apply(table, 1, 0) for table in (ORDERS, ODD)]
    lake.batch_log.write_manifest(1, lsn(1), first, 0)
    read = replace(lake.apply(ORDERS, 2, orders.append_rows(rows, 2) or 0), as_of_ms=first[0].as_of_ms + 19_000)
    changed = lake.apply(ODD, 2, odd.append_rows(rows, 2) or 0)
    lake.batch_log.write_manifest(2, lsn(2), [read, changed], 0)
    counts = [read_state(spark, lake.target, START + timedelta(seconds=at)) for at in (19, 20)]
    assert [[frame.count() for frame in found.values()] for found in counts] == [[0, 0], [1, 1]]


@pytest.mark.parametrize("moment", [START, lsn(9)])
def test_a_moment_before_the_manifest_is_refused(states: Lake, moment: Any) -> None:
    with pytest.raises(ConfigurationError, match="has no row at or before"):
        read_state(states.spark, states.target, moment)
    with pytest.raises(ConfigurationError, match="no time zone"):
        read_state(states.spark, states.target, datetime(2026, 1, 1))


def test_a_manifest_row_whose_files_are_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    replica = lake.replica(ORDERS)
    rows = literal_frame(spark, [(id_, 0, "x") for id_ in range(3)], "ID int, A int, __commit_lsn string")
    first = replica.append_rows(rows, 1) or 0
    lake.batch_log.write_manifest(1, lsn(1), [lake.apply(ORDERS, 1, first)], 0)
    gone = rows.where("ID = 1").selectExpr("*", "false AS __present")
    _, second = replica.merge(gone, 2, "", None)
    lake.batch_log.write_manifest(2, lsn(2), [lake.apply(ORDERS, 2, second or 0)], 0)
    name = f"delta.`{replica.layout.state(ORDERS).name}`"
    spark.sql(f"REORG TABLE {name} APPLY (PURGE)")
    assert read_state(spark, lake.target, lsn(1))["SALES.ORDERS"].count() == 3
    vacuum(spark, name)
    for moment in (lsn(1), lsn(2), None):
        with pytest.raises(TargetError, match=r"SALES\.ORDERS: version \d of .* cannot be read any more"):
            read_state(spark, lake.target, moment)


def vacuum(spark: SparkSession, name: str) -> None:
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    try:
        spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    finally:
        spark.conf.unset(check)


def test_folded_changes_are_the_state(lake: Lake) -> None:
    rows = fold(read_changes(lake.spark, lake.target, ORDERS)).collect()
    assert sorted(tuple(row) for row in rows) == [(1, 7), (3, 7)]
