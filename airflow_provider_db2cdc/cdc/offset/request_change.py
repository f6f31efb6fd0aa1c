"""Changes of the requests: what operators ask for, and what plans and sensors find out. The next tick acts on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import Requests, Restart, Restore, TableRequests, revisions_in
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.signal.action import OffsetAction
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

log = logging.getLogger(__name__)

Change = Callable[[PipelineOffsets], Requests]

NEXT = {
    "restart": "the next tick snapshots it again and replaces its state",
    "restore": "the next tick takes its offset from the target and continues there",
}


def nothing_failed(action: OffsetAction) -> str:
    """Return a sentence that an action on all failed tables found none."""
    waiting = " in a way that a restore corrects (its offset is missing, ahead or damaged)"
    return f"no table failed in the last tick{waiting if action == 'restore' else ''}"


def find_failed(action: OffsetAction, offsets: PipelineOffsets) -> list[TableId]:
    """Return the tables that an action on all failed tables means.

    A restart means each table that failed in the last tick. A restore only means those whose offset an operator has to
    correct. Both mean each table whose offset cannot be read.
    """
    summary = offsets.summary()
    failed = {failure.table for failure in summary.failures if action == "restart" or failure.waits_for_operator}
    return sorted(failed | {table for table in summary.tables if offsets.is_damaged(table)})


def find_all(offsets: PipelineOffsets) -> list[TableId]:
    """Return the tables of the last tick, and those with an offset. One may be out of the pipeline for a while."""
    return sorted({*offsets.summary().tables, *offsets.stored.tables})


def with_requests(action: OffsetAction, tables: Iterable[TableId], offsets: PipelineOffsets, revision: str) -> Requests:
    """Return the requests with one for each table, in place of an earlier one.

    What is known of lost changes stays. A restore does not hide it. A table that has the `revision` already has the
    request, or a tick has consumed it since. It stays unchanged.
    """
    request = Restart(revision) if action == "restart" else Restore(revision)
    asked = [table for table in tables if not _has_revision(offsets, table, revision)]
    return offsets.requests.updated({table: replace(offsets.pending(table), request=request) for table in asked})


def describe_requests(
    action: OffsetAction, tables: Iterable[TableId], offsets: PipelineOffsets, where: str
) -> list[str]:
    """Return a line for each table that a request is kept for.

    :raises ConfigurationError: when a table has no offset, and the pipeline's last tick had no such table.
    """
    kept, known = {table: read(offsets, table) for table in tables}, offsets.summary().tables
    for table, offset in kept.items():
        if offset is None and table not in known:
            raise _unknown(table, where)
    return [_line(action, table, offset) for table, offset in kept.items()]


def with_entry(request: TableRequests, table: TableId, offsets: PipelineOffsets) -> Requests:
    """Return the requests with this one of a table. It replaces all that is known of the table."""
    return offsets.requests.updated({table: request})


def read(offsets: PipelineOffsets, table: TableId) -> Offset | None:
    """Return a table's offset, or None. A damaged text counts as none, because a request replaces it."""
    return None if offsets.is_damaged(table) else offsets.get(table)


def _line(action: OffsetAction, table: TableId, offset: Offset | None) -> str:
    position = "" if action == "restart" else f" (now it is {offset.lsn if offset and offset.has_position else 'lost'})"
    return f"{table}: {NEXT[action]}{position}"


def _has_revision(offsets: PipelineOffsets, table: TableId, revision: str) -> bool:
    try:
        stored = offsets.stored.get(table)
        return revision in offsets.requests.entry(table).revisions | revisions_in(stored.revision if stored else "")
    except OffsetError:
        return False


def _unknown(table: TableId, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"{table} has no offset in {where}, and the pipeline's last tick had no such table",
        "Check the name. A new table starts with a snapshot anyway. If Airflow runs the pipeline, add --airflow.",
    )


def capture_interrupted(tables: Collection[TableId], revision: str) -> Change:
    """Return the change that keeps that registrations were found inactive. Changes of that time are lost.

    A table without an offset gets a finding too. The target may hold it, if its first ticks died before their commits.
    """
    return _found(tables, lambda _, entry: replace(entry, capture_interrupted=revision))


def source_restored(tables: Collection[TableId], revision: str) -> Change:
    """Return the change that keeps that the source has another history than the applied one.

    A table without an offset, or one that starts again anyway, stays as it is.
    """

    def found(offset: Offset | None, entry: TableRequests) -> TableRequests:
        if offset is None or offset.restart or offset.source_restored or not (offset.has_position or offset.restore):
            return entry
        return replace(entry, source_restored=revision)

    return _found(tables, found)


def _found(tables: Collection[TableId], find: Callable[[Offset | None, TableRequests], TableRequests]) -> Change:
    def change(seen: PipelineOffsets) -> Requests:
        entries: dict[TableId, TableRequests] = {}
        for table in tables:
            try:
                entries[table] = find(seen.get(table), seen.pending(table))
            except OffsetError as error:
                log.warning("not kept what was found out about %s: %s", table, error)
        return seen.requests.updated(entries)

    return change
