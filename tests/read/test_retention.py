"""Ranges and moments that retention has deleted are refused, and all others are read as before."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.job_samples import lsn
from support.lake import CAPTURE, START, Lake, Line

from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, TargetError
from airflow_provider_db2cdc.read import BatchRange, ChangeRange, LsnRange, TimeRange, read_changes, read_state
from airflow_provider_db2cdc.spark.delta.log_horizon import trim_log
from airflow_provider_db2cdc.spark.delta.table_io import literal_frame

pytestmark = pytest.mark.spark
ORDERS, LATE = TableId("SALES", "ORDERS"), TableId("SALES", "LATE")
EVENTS: list[Line] = [(batch, 10 * batch, "c", batch, 60 * batch) for batch in (1, 2, 3, 4)]
HORIZON = LogHorizon(3, lsn(20))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def planned(batch: int, table: TableId, time: datetime) -> PlannedBatch:
    """Return a batch that was planned at a time."""
    span = (lsn(10 * batch - 10), lsn(10 * batch))
    at_ms = int(time.timestamp() * 1000)
    return PlannedBatch(batch, "run", f"plan-{batch}", table, *span, at_ms, CAPTURE, has_offset=True)


@pytest.fixture(scope="module")
def trimmed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, list[DataFrame]]:
    """A target of two tables with the same events, and reads of both that began before the logs were trimmed.

    One table planned batch 3 after 130 s, the other after 190 s.
    """
    made = Lake(spark, tmp_path_factory.mktemp("kept"))
    planned_s = {ORDERS: 130, LATE: 190}
    for table in planned_s:
        made.log(table, EVENTS)
    for batch in (1, 2, 3, 4):
        made.batch_log.plan([planned(batch, table, at(after_s + batch - 3)) for table, after_s in planned_s.items()])
        for table in planned_s:
            made.apply(table, batch)
    frames = [read_changes(spark, made.target, table) for table in planned_s]
    for table in planned_s:
        assert trim_log(spark, made.place.layout, table, HORIZON) == 2
    return made, frames


@pytest.fixture
def lake(trimmed: tuple[Lake, list[DataFrame]]) -> Lake:
    return trimmed[0]


def read(lake: Lake, within: ChangeRange, table: TableId = ORDERS) -> list[int]:
    """Return the keys of the events in a range."""
    return [row["key"][0] for row in read_changes(lake.spark, lake.target, table, within).collect()]


def test_a_log_that_is_read_stays_whole(trimmed: tuple[Lake, list[DataFrame]]) -> None:
    _, frames = trimmed
    assert [[row["key"][0] for row in frame.collect()] for frame in frames] == [[1, 2, 3, 4]] * 2


@pytest.mark.parametrize(
    ("within", "keys"),
    [
        (BatchRange(2), [3, 4]),
        (BatchRange(2, 3), [3]),
        (LsnRange(lsn(20)), [3, 4]),
        (LsnRange(lsn(25), lsn(30)), [3]),
        (TimeRange(at(180)), [4]),
        (TimeRange(at(181)), [4]),
    ],
    ids=str,
)
def test_ranges_after_the_horizon_are_read(lake: Lake, within: ChangeRange, keys: list[int]) -> None:
    assert read(lake, within) == keys


@pytest.mark.parametrize(
    ("within", "begin"),
    [
        (BatchRange(), "batches after 2"),
        (BatchRange(1), "batches after 2"),
        (LsnRange(), f"commits after {lsn(20)}"),
        (LsnRange(upto=lsn(30)), f"commits after {lsn(20)}"),
        (LsnRange(lsn(19)), f"commits after {lsn(20)}"),
        (TimeRange(), "commits after 2026-01-01T00:03:00"),
        (TimeRange(at(179.9)), "commits after 2026-01-01T00:03:00"),
    ],
    ids=str,
)
def test_ranges_before_the_horizon_are_refused(lake: Lake, within: ChangeRange, begin: str) -> None:
    message = rf"^SALES\.ORDERS: the change log is complete only for {begin}.*`BatchRange\(2\)` or later"
    with pytest.raises(TargetError, match=message):
        read(lake, within)


def test_a_range_of_a_restored_source_needs_each_history(spark: SparkSession, tmp_path: Path) -> None:
    """The source is restored after batch 2, with LSN 90. Its LSNs begin again in batch 3."""
    lake = Lake(spark, tmp_path)
    lake.log(ORDERS, [(1, 10, "c", 1, 60), (2, 90, "c", 2, 120), (3, 30, "c", 3, 240), (4, 60, "c", 4, 300)])
    lake.apply(ORDERS, 4)
    trim_log(spark, lake.place.layout, ORDERS, LogHorizon(4, lsn(30), lsn(90)))
    with pytest.raises(TargetError, match=f"complete only for commits after {lsn(90)}"):
        read(lake, LsnRange(lsn(50)))
    assert read(lake, LsnRange(lsn(90))) == []


def test_times_begin_with_the_plan_of_the_first_batch(lake: Lake) -> None:
    """An `r` event of a deleted batch may be as late as its plan, and so later than the first commit of the log."""
    assert read(lake, TimeRange(at(190)), LATE) == [4]
    with pytest.raises(TargetError, match=r"^SALES\.LATE: .* commits after 2026-01-01T00:03:10"):
        read(lake, TimeRange(at(189.9)), LATE)


def test_a_moment_before_the_oldest_manifest_row_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    rows = literal_frame(spark, [(1, 0, "x")], "ID int, A int, __commit_lsn string")
    version = lake.replica(ORDERS).append_rows(rows, 3) or 0
    with pytest.raises(ConfigurationError, match=r"has no row\. A row is written once"):
        read_state(spark, lake.target)
    lake.batch_log.write_manifest(3, lsn(30), [lake.apply(ORDERS, 3, version)], 0)
    for moment in (lsn(29), START):
        with pytest.raises(ConfigurationError, match=rf"Read a moment from 2026-01-01T00:00:03.* \(LSN {lsn(30)}\) on"):
            read_state(spark, lake.target, moment)
