"""Commit times in Spark: the same as those of the pure rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.spark.events.commit_time import utc_us

SUMMER = ClockChange("2026-03-29T02:00:00.000000", "2026-03-29T02:00:00.000000", 7200)
WINTER = ClockChange("2026-10-25T02:00:00.000000", "2026-10-25T03:00:00.000000", 3600)
CLOCKS = (
    SourceClock(-16_200),
    SourceClock(3600, (SUMMER, WINTER)),
    SourceClock(3600, (SUMMER, ClockChange(WINTER.begin, WINTER.end, 3600, Lsn((50).to_bytes(16, "big"))))),
)


def test_times_of_commits_are_those_of_the_pure_rule(spark: SparkSession) -> None:
    rng = Random(1)
    ends = [datetime.fromisoformat(text) for change in (SUMMER, WINTER) for text in (change.begin, change.end)]
    times = [*ends, *(rng.choice(ends) + timedelta(minutes=rng.uniform(-90, 90)) for _ in range(200))]
    in_repeated_hour = [(Lsn(number.to_bytes(16, "big")), datetime(2026, 10, 25, 2, 30)) for number in (49, 50, 51)]
    commits = in_repeated_hour + [(Lsn(rng.randrange(100).to_bytes(16, "big")), time) for time in times]
    rows = [(str(lsn), time.isoformat(sep=" ", timespec="microseconds")) for lsn, time in commits]
    frame = spark.createDataFrame(rows, "commit string, text string").selectExpr("commit", "timestamp(text) AS local")
    found = frame.select(*(utc_us(clock) for clock in CLOCKS)).collect()
    for (lsn, time), row in zip(commits, found, strict=True):
        expected = [clock.utc(time, lsn).replace(tzinfo=UTC) for clock in CLOCKS]
        assert [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us) for us in row] == expected, (lsn, time)
