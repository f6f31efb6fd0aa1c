"""The source's clock as a plan finds it: by its time zone, or by what Db2 reports of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pendulum

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock, second_pass_limits
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql.units_of_work import first_commits, second_pass

log = logging.getLogger(__name__)

PROPERTY = "database.time.zone"
YEARS = 1
"""How far back the changes of a zone are followed. Control tables keep commits for days."""
STEP = timedelta(days=7)
"""No zone changes its offset twice within it."""
HOUR_S = 3600


def read_source_clock(
    source: Source, asn_schema: str, zone: str, position: CapturePosition, last: SourceClock | None
) -> SourceClock:
    """Return the clock by which the commit times of a plan become UTC. `last` is the previous plan's, if any.

    With a `zone` its changes are those of the zone. The source is only asked for the commits of an hour that was
    repeated since the last plan. Without a zone, Db2's CURRENT TIMEZONE counts for all commits. A change is logged.
    """
    clock = zone_clock(zone, position.source_utc) if zone else SourceClock(position.timezone_s)
    if last is not None and clock.newest_offset_s != last.newest_offset_s:
        _log_change(clock, last, zone)
    if zone and clock.newest_offset_s != position.timezone_s:
        _log_other_zone(clock, zone, position)
    changes = tuple(_with_commit(source, asn_schema, change, position, last) for change in clock.changes)
    own = {clock.offset_s, *(change.offset_s for change in changes)}
    # Without a zone, and with a lost summary, an applied commit may be of the other half of the year.
    guessed = set() if zone else {clock.offset_s - HOUR_S, clock.offset_s + HOUR_S}
    used = own | guessed | {*(last.offsets_s if last else ())}
    return replace(clock, changes=changes, searched_upto=position.synchtime, offsets_s=tuple(sorted(used)))


def zone_clock(zone: str, now: datetime) -> SourceClock:
    """Return the clock of an IANA time zone, with its changes since the last year began, until `now` (in UTC)."""
    begin = datetime(now.year - YEARS, 1, 1)
    return SourceClock(_offset_s(zone, begin), tuple(_changes(zone, begin, now)))


def _changes(zone: str, begin: datetime, end: datetime) -> Iterator[ClockChange]:
    moment, before_s = begin, _offset_s(zone, begin)
    while moment < end:
        following = min(moment + STEP, end)
        after_s = _offset_s(zone, following)
        if before_s != after_s:
            last, first = (_change_within(zone, moment, following) + timedelta(seconds=s) for s in (before_s, after_s))
            yield ClockChange(_iso(min(first, last)), _iso(last), after_s)
        moment, before_s = following, after_s


def _change_within(zone: str, before: datetime, after: datetime) -> datetime:
    """Return the first second, in UTC, at which the zone has the offset that it has `after`."""
    offset_s = _offset_s(zone, after)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before).total_seconds() // 2)
        before, after = (before, middle) if _offset_s(zone, middle) == offset_s else (middle, after)
    return after


def _offset_s(zone: str, moment: datetime) -> int:
    return pendulum.instance(moment, tz="UTC").in_timezone(zone).offset or 0


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _with_commit(
    source: Source, asn_schema: str, change: ClockChange, position: CapturePosition, last: SourceClock | None
) -> ClockChange:
    """Return a clock change with its first commit, if the clock was set back and a commit shows it.

    What an earlier plan has found is kept, because the source prunes its log of commits.
    """
    known = None if last is None else next((same for same in last.changes if same.begin == change.begin), None)
    # A plan under another zone, or without one, has not searched this hour.
    is_searched = known is not None and last is not None and last.searched_upto >= change.end
    if known is not None and (known.first_commit is not None or is_searched):
        # Another zone may repeat the same hour, with another offset.
        return replace(change, first_commit=known.first_commit)
    if position.synchtime < change.begin or not change.is_set_back:
        return change
    minutes = [(int(minute), Lsn(bytes(commit))) for minute, commit in source.rows(first_commits(asn_schema, change))]
    limits = second_pass_limits(minutes)
    if not limits:
        return change
    [[commit]] = source.rows(second_pass(asn_schema, change, limits))
    return change if commit is None else replace(change, first_commit=Lsn(bytes(commit)))


def _log_change(clock: SourceClock, last: SourceClock, zone: str) -> None:
    before, after = (_utc_name(offset_s) for offset_s in (last.newest_offset_s, clock.newest_offset_s))
    remedy = "" if zone else f" Commits from before the change get the new offset. To avoid that, set {PROPERTY}."
    log.warning("the source's clock went from %s to %s since the last plan.%s", before, after, remedy)


def _log_other_zone(clock: SourceClock, zone: str, position: CapturePosition) -> None:
    log.warning(
        "%s is %s (%s now), but Db2 reports %s. If Db2 is right, the times of commits are wrong: correct the property, "
        "or remove it.",
        PROPERTY,
        zone,
        _utc_name(clock.newest_offset_s),
        _utc_name(position.timezone_s),
    )


def _utc_name(offset_s: int) -> str:
    hours, minutes = divmod(abs(offset_s) // 60, 60)
    return f"UTC{'-' if offset_s < 0 else '+'}{hours:02d}:{minutes:02d}"
