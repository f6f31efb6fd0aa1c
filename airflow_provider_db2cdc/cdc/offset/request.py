"""Requests of an operator to restart tables or to restore their offsets. The next tick finds them in the offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from airflow_provider_db2cdc.cdc.lsn import WIDTHS, Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset, OffsetStore
from airflow_provider_db2cdc.cdc.signal.action import OffsetAction
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

NEXT = {
    "restart": "the next tick snapshots it again and replaces its state",
    "restore": "the next tick takes its offset from the target and continues there",
}


class RepairableOffsets(OffsetStore, Protocol):
    """A store in which an operator can replace offsets."""

    @property
    def where(self) -> str:
        """The name of the store in messages."""

    def reset(self, offset: Offset) -> None:
        """Store `offset` even if it moves back, or if the kept text is damaged."""


def with_request(action: OffsetAction, offset: Offset, revision: str) -> Offset:
    """Return an offset with a request, in place of an earlier one. A tick that was planned before does not consume it.

    What the offset records of lost changes stays. A restore does not hide it.
    """
    return replace(offset, restart=action == "restart", restore=action == "restore", revision=revision)


def nothing_failed(action: OffsetAction) -> str:
    """Return a sentence that an action on all failed tables found none."""
    waiting = " in a way that a restore corrects (its offset is missing, ahead or damaged)"
    return f"no table failed in the last tick{waiting if action == 'restore' else ''}"


def find_failed(action: OffsetAction, offsets: OffsetStore) -> list[TableId]:
    """Return the tables that an action on all failed tables means.

    A restart means each table that failed in the last tick. A restore only means those whose offset an operator has to
    correct. Both mean each table whose offset cannot be read.
    """
    summary = offsets.summary()
    failed = {failure.table for failure in summary.failures if action == "restart" or failure.waits_for_operator}
    return sorted(failed | {table for table in summary.tables if _is_damaged(offsets, table)})


def keep_requests(
    action: OffsetAction, tables: Iterable[TableId], offsets: RepairableOffsets, revision: str
) -> list[str]:
    """Keep a request in the offset of each table, and return a line for each table.

    An offset that has the `revision` already has the request, or a tick has consumed it since. It stays unchanged.

    :raises ConfigurationError: when a table has no offset, and the pipeline's last tick had no such table. Nothing is
        kept then.
    """
    known = offsets.summary().tables
    kept = {table: _read(offsets, table) for table in tables}
    for table, offset in kept.items():
        if offset is None and table not in known:
            raise _unknown(table, offsets.where)
    width = _width(offsets, known)
    for table, offset in kept.items():
        if offset is None or offset.revision != revision:
            # A request needs no position. But an LSN is only comparable with LSNs of the same length.
            offsets.reset(with_request(action, offset or Offset(table, Lsn(bytes(width)), 0), revision))
    return [_line(action, table, offset) for table, offset in kept.items()]


def _line(action: OffsetAction, table: TableId, offset: Offset | None) -> str:
    position = "" if action == "restart" else f" (now it is {offset.lsn if offset and offset.has_position else 'lost'})"
    return f"{table}: {NEXT[action]}{position}"


def _width(offsets: OffsetStore, tables: Sequence[TableId]) -> int:
    read = [_read(offsets, table) for table in tables]
    return max((len(offset.lsn.raw) for offset in read if offset is not None), default=max(WIDTHS))


def _read(offsets: OffsetStore, table: TableId) -> Offset | None:
    """Return a table's offset, or None. A damaged text counts as none, because the request replaces it."""
    return None if _is_damaged(offsets, table) else offsets.get(table)


def _is_damaged(offsets: OffsetStore, table: TableId) -> bool:
    try:
        offsets.get(table)
    except OffsetError:
        return True
    return False


def _unknown(table: TableId, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"{table} has no offset in {where}, and the pipeline's last tick had no such table",
        "Check the name. A new table starts with a snapshot anyway. If Airflow runs the pipeline, add --airflow.",
    )
