"""The source's clock: local times of commits become UTC, also when summer time begins and ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock, second_pass_limits
from airflow_provider_db2cdc.cdc.lsn import Lsn

BERLIN = ZoneInfo("Europe/Berlin")
SUMMER = ClockChange("2026-03-29T02:00:00.000000", "2026-03-29T02:00:00.000000", 7200)
WINTER = ClockChange("2026-10-25T02:00:00.000000", "2026-10-25T03:00:00.000000", 3600)
CLOCK = SourceClock(3600, (SUMMER, WINTER))


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2026-01-01 12:00", "2026-01-01 11:00"),
        ("2026-03-29 01:59:59", "2026-03-29 00:59:59"),
        ("2026-03-29 03:00", "2026-03-29 01:00"),
        ("2026-10-25 01:59:59", "2026-10-24 23:59:59"),
        ("2026-10-25 03:00", "2026-10-25 02:00"),
        ("2026-12-31 23:00", "2026-12-31 22:00"),
    ],
)
def test_local_time_becomes_utc_by_the_offset_of_its_day(local: str, utc: str) -> None:
    assert CLOCK.utc(datetime.fromisoformat(local), lsn(1)) == datetime.fromisoformat(utc)


def test_order_of_commits_decides_in_the_repeated_hour() -> None:
    clock = SourceClock(3600, (SUMMER, replace(WINTER, first_commit=lsn(5))))
    local = datetime(2026, 10, 25, 2, 30)
    assert clock.utc(local, lsn(4)) == datetime(2026, 10, 25, 0, 30)
    assert clock.utc(local, lsn(5)) == datetime(2026, 10, 25, 1, 30)


def test_repeated_hour_counts_as_summer_time_if_no_commit_shows_the_change() -> None:
    assert CLOCK.utc(datetime(2026, 10, 25, 2, 30), lsn(9)) == datetime(2026, 10, 25, 0, 30)


@pytest.mark.parametrize("seed", range(50))
def test_first_commit_of_the_second_pass_is_found_in_any_history(seed: int) -> None:
    """A commit after one of a later minute is in the second pass. The first such commit is found."""
    rng = Random(seed)
    begin = datetime(2026, 10, 24, 23, 30, tzinfo=ZoneInfo("UTC"))
    moments = sorted(begin + timedelta(seconds=rng.uniform(0, 3 * 3600)) for _ in range(rng.randrange(1, 80)))
    commits = {lsn(number): moment.astimezone(BERLIN).replace(tzinfo=None) for number, moment in enumerate(moments, 1)}
    window = {commit: local for commit, local in commits.items() if local.hour == 2}
    minutes = {local.minute: min(c for c, t in window.items() if t.minute == local.minute) for local in window.values()}
    limits = second_pass_limits(list(minutes.items()))
    found = [commit for commit, local in window.items() if local.minute in limits and commit > limits[local.minute]]
    expected = [
        commit
        for commit, local in window.items()
        if any(earlier < commit and time.minute > local.minute + 1 for earlier, time in window.items())
    ]
    assert found == expected
    clock = SourceClock(3600, (SUMMER, replace(WINTER, first_commit=min(found, default=None))))
    if found:
        known = [c for c in commits if c not in window or c >= found[0] or c < min(window)]
        for commit in known:
            assert clock.utc(commits[commit], commit) == moments[int.from_bytes(commit.raw, "big") - 1].replace(
                tzinfo=None
            )


@pytest.mark.parametrize("seed", range(50))
def test_commits_that_swap_places_within_a_minute_show_no_change(seed: int) -> None:
    """Commit times are only roughly in the order of commits."""
    rng = Random(seed)
    seconds = sorted(rng.uniform(0, 3600) for _ in range(60))
    minutes: dict[int, Lsn] = {}
    last: dict[int, Lsn] = {}
    for number, second in enumerate(seconds, 1):
        minute = int(min(3599.0, max(0.0, second - rng.uniform(0, 59)))) // 60
        minutes.setdefault(minute, lsn(number))
        last[minute] = lsn(number)
    limits = second_pass_limits(list(minutes.items()))
    assert [minute for minute, limit in limits.items() if last[minute] > limit] == []
