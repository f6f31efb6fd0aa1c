"""Announcements: the ranges that a table's asset events have, without a hole between them.

Airflow emits the events of a task only if the task succeeds. The offsets move before that. So an announcement is kept
in the offset, and the next commit asks Airflow whether the event exists. If it does not, the next event also has the
range of the lost one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_db2cdc.cdc.job import TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.errors import OffsetError


@dataclass(frozen=True)
class Announcement:
    """The range of a table's newest asset event: the change log's batches after `from_batch`, up to `to_batch`.

    `log_id` is the Delta id of the change log. Another change log counts its batches from 1 again. The LSNs and the
    commit time are for people: a restored source uses its LSNs again. `rows` is the number of events in the range. It
    is less if a run died without an offset, and more if the offset was older than the last event.

    `is_confirmed`: Airflow has the event.
    """

    log_id: str
    from_batch: int
    to_batch: int
    from_lsn: Lsn | None
    to_lsn: Lsn
    rows: int
    commit_ts_ms: int | None = None
    is_confirmed: bool = False

    @property
    def extra(self) -> dict[str, str | int | None]:
        """The extra of the asset event."""
        return {
            "from_batch": self.from_batch,
            "to_batch": self.to_batch,
            "from_lsn": None if self.from_lsn is None else str(self.from_lsn),
            "to_lsn": str(self.to_lsn),
            "rows": self.rows,
            "commit_ts_ms": self.commit_ts_ms,
            "log_id": self.log_id,
        }


def in_event(extra: Mapping[str, Any] | None) -> Announcement | None:
    """Return the announcement that an asset event's extra has, None if it has none."""
    found = extra or {}
    try:
        start = found["from_lsn"] and Lsn.parse(found["from_lsn"])
        batches = int(found["from_batch"]), int(found["to_batch"])
        end = Lsn.parse(found["to_lsn"])
        return Announcement(found["log_id"], *batches, start, end, int(found["rows"]), found["commit_ts_ms"], True)
    except (KeyError, TypeError, ValueError, OffsetError):
        return None


def confirm(last: Announcement | None, newest: Announcement | None) -> Announcement | None:
    """Return a table's last announcement, given the newest one that Airflow has."""
    is_there = newest is not None and (last is None or last.to_batch <= newest.to_batch)
    return newest if is_there else last


def announce(table: TableResult, last: Announcement | None) -> Announcement | None:
    """Return a table's announcement after a result. It is the last one if the result has no events after that.

    A range begins where the last one ends. If Airflow does not have the event of the last one, it begins where that
    one began. Without a last one it begins with the change log.

    Without an offset that names a batch, a tick does not count what runs that died before their commit have applied. So
    a table that has rows is announced the first time, and a recovered or restarted table also without events.
    """
    assert table.lsn is not None
    assert table.batch is not None
    events = count_events(table)
    log_id, to_lsn, newest_ms = table.log_id, table.lsn, table.commit_ts_ms
    if last is None:
        least = max(events, table.rows or 0)
        return Announcement(log_id, 0, table.batch, table.after, to_lsn, least, newest_ms) if least else None
    is_uncounted = table.offset_recovered or table.reinitialized
    if not (events or is_uncounted) or table.batch <= last.to_batch:
        return last
    if last.is_confirmed:
        return Announcement(log_id, last.to_batch, table.batch, last.to_lsn, to_lsn, events, newest_ms)
    newest_ms = last.commit_ts_ms if newest_ms is None else newest_ms
    rows = last.rows + events
    return replace(last, to_batch=table.batch, to_lsn=to_lsn, rows=rows, commit_ts_ms=newest_ms)


def count_events(table: TableResult) -> int:
    """Return how many events a result counts: those of the batches after the table's offset."""
    return table.creates + table.updates + table.deletes + table.reads
