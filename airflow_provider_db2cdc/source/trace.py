"""Checks whether the source still has the history that was applied.

The newest applied commit is looked up in the source, and one commit decides for all tables. A source that was restored
to a time before that commit no longer has it. A source that was restored to a later time has everything that was
applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_provider_db2cdc.cdc.capture.gap import CommitTrace
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.source.catalog import read_pruned_upto
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql import asn


@dataclass(frozen=True)
class AppliedCommit:
    """A table's newest applied commit. `at_ms` is its time in UTC, in milliseconds since the epoch.

    `local_times` are the times that the source's clock may have shown then.
    """

    capture: CaptureRegistration
    commit: Lsn
    at_ms: int
    local_times: tuple[datetime, ...] = ()

    def selects(self, asn_schema: str) -> tuple[str, ...]:
        """Return selects that find what is left of the commit. They can join other counts in one statement."""
        return asn.traces(asn_schema, self.capture, self.commit, self.local_times)


def applied_of(capture: CaptureRegistration, offset: Offset | None) -> AppliedCommit | None:
    """Return a table's newest applied commit, or None if it is unknown or its history is known to be over.

    It is also None if the registration was replaced since. The source may then have nothing left of the commit.
    """
    if offset is None or offset.applied is None or offset.restart or offset.source_restored:
        return None
    return AppliedCommit(capture, *offset.applied) if offset.capture == capture.identity.digest else None


def newest(applied: Iterable[AppliedCommit | None], position: Lsn, clock: SourceClock) -> AppliedCommit | None:
    """Return the newest of several tables' commits, with the times that the source's clock may have shown.

    Commits of another length than the capture position are excluded, because they cannot be compared.
    """
    comparable = [commit for commit in applied if commit is not None and len(commit.commit.raw) == len(position.raw)]
    latest = max(comparable, key=lambda commit: commit.commit, default=None)
    if latest is None:
        return None
    seconds, milliseconds = divmod(latest.at_ms, 1000)
    utc = datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1000, tzinfo=None)
    return replace(latest, local_times=tuple(clock.local_times(utc)))


def trace_of(rows: Iterable[tuple[int, int]]) -> CommitTrace:
    """Return the trace of a commit from the rows of `selects`. Other rows are ignored."""
    sums: Counter[int] = Counter()
    for place, number in rows:
        sums[place] += int(number)
    changes, units, same_time, older = (sums[place] for place in asn.TRACES)
    return CommitTrace(changes, units, same_time, older > 0)


def as_found(
    source: Source, asn_schema: str, offsets: Mapping[TableId, Offset], applied: AppliedCommit | None
) -> Mapping[TableId, Offset]:
    """Return the offsets as a plan would store them now: with `source_restored` if the source has another history.

    `applied` is the newest commit that was applied from it.
    """
    if applied is None or not is_restored(source, asn_schema, applied):
        return offsets
    return {table: replace(offset, source_restored=True) for table, offset in offsets.items()}


def is_restored(source: Source, asn_schema: str, applied: AppliedCommit) -> bool:
    """Return whether the source has another history. The commit is looked up in two statements."""
    trace = trace_of(source.rows(asn.count_changes([], *applied.selects(asn_schema))))
    floors = read_pruned_upto(source, asn_schema)
    return trace.is_foreign(applied.commit, floors.get(applied.capture.table))
