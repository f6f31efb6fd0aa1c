"""Whether the source still has the history that was applied: the newest applied commit is looked up in it.

One commit tells it for all tables: a source that was restored to before it has it no more. One that was restored to
behind it has everything that was applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_provider_db2cdc.cdc.capture.gap import CommitTrace
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.source.catalog import read_pruned_upto
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql import asn


@dataclass(frozen=True)
class AppliedCommit:
    """A table's newest applied commit, and its time at the source."""

    capture: CaptureRegistration
    commit: Lsn
    at_ms: int

    def selects(self, asn_schema: str) -> tuple[str, ...]:
        """Return selects of what is left of it, to be asked with other counts."""
        at = datetime.fromtimestamp(self.at_ms // 1000, UTC).replace(microsecond=self.at_ms % 1000 * 1000, tzinfo=None)
        return asn.traces(asn_schema, self.capture, self.commit, at)


def applied_of(capture: CaptureRegistration, offset: Offset | None) -> AppliedCommit | None:
    """Return a table's newest applied commit, None where nothing is known of it, or it is known to be of another time.

    Of a capture that was replaced since nothing need be left.
    """
    if offset is None or offset.applied is None or offset.restart or offset.source_restored:
        return None
    return AppliedCommit(capture, *offset.applied) if offset.capture == capture.identity.digest else None


def newest(applied: Iterable[AppliedCommit | None], fence: Lsn) -> AppliedCommit | None:
    """Return the newest of several tables' commits; those of another width than the fence are not comparable."""
    found = [one for one in applied if one is not None and len(one.commit.raw) == len(fence.raw)]
    return max(found, key=lambda one: one.commit, default=None)


def trace_of(rows: Iterable[tuple[int, int]]) -> CommitTrace:
    """Return what the rows of `selects` say, which may come among others."""
    found: Counter[int] = Counter()
    for place, number in rows:
        found[place] += int(number)
    changes, units, same_time, older = (found[place] for place in asn.TRACES)
    return CommitTrace(changes, units, same_time, older > 0)


def as_found(
    source: Source,
    asn_schema: str,
    captures: Iterable[CaptureRegistration],
    offsets: Mapping[TableId, Offset],
    fence: Lsn,
) -> Mapping[TableId, Offset]:
    """Return the offsets as a plan would keep them now: `restored`, where the source has another history."""
    applied = newest((applied_of(capture, offsets.get(capture.table)) for capture in captures), fence)
    if applied is None or not is_restored(source, asn_schema, applied):
        return offsets
    return {table: replace(offset, source_restored=True) for table, offset in offsets.items()}


def is_restored(source: Source, asn_schema: str, applied: AppliedCommit) -> bool:
    """Look the commit up, in two statements, and return whether the source has another history."""
    trace = trace_of(source.rows(asn.count_changes([], *applied.selects(asn_schema))))
    floors = read_pruned_upto(source, asn_schema)
    return trace.is_foreign(applied.commit, floors.get(applied.capture.table))
