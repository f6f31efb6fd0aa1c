"""The source's clock as a plan finds it: zones, and the hour that the end of summer time repeats."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.control_tables import ControlTables, lsn
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.source.catalog import timezone_s
from airflow_provider_db2cdc.source.source_clock import read_source_clock, zone_clock

BERLIN = "Europe/Berlin"


def position(local: str, hours: float) -> CapturePosition:
    """Return a position that capture reached at a local time, when the source was so many hours ahead of UTC."""
    return CapturePosition(lsn(999), local, local, 0.0, int(hours * 3600))


@pytest.mark.parametrize(
    ("digits", "seconds"), [(0, 0), (20000, 7200), (-50000, -18_000), (53000, 19_800), (-33000, -12_600)]
)
def test_timezone_is_read_as_hours_minutes_and_seconds(digits: int, seconds: int) -> None:
    assert timezone_s(digits) == seconds


@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"])
def test_clock_of_a_zone_is_that_of_the_zone_at_any_time(zone: str) -> None:
    clock = zone_clock(zone, datetime(2026, 12, 31))
    for hour in range(0, 2 * 365 * 24, 5):
        local = datetime(2025, 1, 2) + timedelta(hours=hour, minutes=17)
        expected = local.replace(tzinfo=ZoneInfo(zone)).astimezone(ZoneInfo("UTC")).replace(tzinfo=None)
        is_skipped = expected.replace(tzinfo=ZoneInfo("UTC")).astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local
        assert is_skipped or clock.utc(local, lsn(1)) == expected, local


@pytest.mark.sandbox
def test_order_of_commits_decides_in_the_repeated_hour(source: CountingSource, control: ControlTables) -> None:
    """A commit of 02:50, then one of 02:10: the clock was set back between them."""
    for number, time in [(1, "02:05"), (2, "02:50"), (3, "02:10"), (4, "02:59"), (5, "03:01")]:
        control.unit(number, f"2026-10-25 {time}:00.000000")
    at = position("2026-10-25T03:05:00.000000", 1)
    clock = read_source_clock(source, control.asn, BERLIN, at, None)
    local = datetime(2026, 10, 25, 2, 50)
    assert [clock.utc(local, lsn(number)).hour for number in (2, 3, 4)] == [0, 1, 1]
    without_zone = SourceClock(3600, (), at.synchtime, (3600,))
    assert read_source_clock(source, control.asn, BERLIN, at, without_zone).changes == clock.changes
    statements = source.statements
    control.run(f"DELETE FROM {control.asn}.IBMSNAP_UOW")
    assert read_source_clock(source, control.asn, BERLIN, at, clock).changes == clock.changes
    assert source.statements == statements, "what is known is not searched again"


@pytest.mark.sandbox
def test_repeated_hour_is_searched_until_capture_has_passed_it(source: CountingSource, control: ControlTables) -> None:
    control.unit(1, "2026-10-25 02:50:00.000000")
    within = read_source_clock(source, control.asn, BERLIN, position("2026-10-25T02:55:00.000000", 2), None)
    assert within.changes[-1].offset_s == 7200, "the clock is not set back yet"
    control.unit(2, "2026-10-25 02:10:00.000000")
    early = read_source_clock(source, control.asn, BERLIN, position("2026-10-25T02:05:00.000000", 1), within)
    assert early.changes[-1].first_commit == lsn(2)
    control.run(f"DELETE FROM {control.asn}.IBMSNAP_UOW WHERE IBMSNAP_LOGMARKER < TIMESTAMP('2026-10-25 02:30:00')")
    early = read_source_clock(source, control.asn, BERLIN, position("2026-10-25T02:05:00.000000", 1), within)
    assert early.changes[-1].first_commit is None
    control.unit(3, "2026-10-25 02:20:00.000000")
    late = read_source_clock(source, control.asn, BERLIN, position("2026-10-25T03:05:00.000000", 1), early)
    assert late.changes[-1].first_commit == lsn(3)


@pytest.mark.sandbox
def test_another_zone_with_the_same_repeated_hour_has_its_own_offset(
    source: CountingSource, control: ControlTables
) -> None:
    """New York and Chicago repeat the same hour of their local time."""
    for number, time in [(1, "01:50"), (2, "01:10")]:
        control.unit(number, f"2026-11-01 {time}:00.000000")
    at = position("2026-11-01T02:05:00.000000", -5)
    wrong = read_source_clock(source, control.asn, "America/New_York", at, None)
    clock = read_source_clock(source, control.asn, "America/Chicago", at, wrong)
    assert clock.changes[-1].first_commit == lsn(2), "what is known of the hour is kept"
    assert clock.utc(datetime(2026, 11, 1, 12), lsn(3)) == datetime(2026, 11, 1, 18)


@pytest.mark.sandbox
def test_repeated_hour_without_a_sign_is_searched_once(source: CountingSource, control: ControlTables) -> None:
    at = position("2026-10-25T03:05:00.000000", 1)
    clock = read_source_clock(source, control.asn, BERLIN, at, None)
    assert {change.first_commit for change in clock.changes} == {None}
    statements = source.statements
    read_source_clock(source, control.asn, BERLIN, position("2026-10-25T04:00:00.000000", 1), clock)
    assert source.statements == statements


class NoSource:
    """A source that must not be asked."""


def planned(zone: str, local: str, hours: float, last: SourceClock | None = None) -> SourceClock:
    source: Any = NoSource()
    return read_source_clock(source, "ASN", zone, position(local, hours), last)


def test_without_a_zone_the_reported_offset_counts_and_a_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    summer = planned("", "2026-10-24T12:00:00.000000", 2)
    assert summer.utc(datetime(2026, 10, 24, 12), lsn(1)) == datetime(2026, 10, 24, 10)
    assert caplog.messages == []
    winter = planned("", "2026-10-26T12:00:00.000000", 1, summer)
    [message] = caplog.messages
    assert "went from UTC+02:00 to UTC+01:00" in message
    assert "database.time.zone" in message
    assert datetime(2026, 10, 24, 12) in winter.local_times(datetime(2026, 10, 24, 10)), "an older commit is found"


def test_zone_that_the_source_contradicts_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        planned("Asia/Kolkata", "2026-10-24T12:00:00.000000", 5.5)
        assert caplog.messages == []
        planned("Asia/Kolkata", "2026-10-24T12:00:00.000000", 0)
    assert "database.time.zone is Asia/Kolkata (UTC+05:30 now), but Db2 reports UTC+00:00" in caplog.text
