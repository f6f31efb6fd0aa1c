"""The agenda of one tick, shared by the thread that reads and the one that publishes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import MAX_FAILURES, TableSnapshot, with_failure
from airflow_provider_db2cdc.cdc.table import TableId

T = TypeVar("T")


class LockedSnapshotQueue:
    """An agenda that is replaced whole, by one thread at a time.

    `failed_tables` are the tables that failed in this tick.
    """

    def __init__(self, queue: SnapshotQueue) -> None:
        self.queue = queue
        self.failed_tables: set[TableId] = set()
        self._lock = threading.Lock()

    def update(self, step: Callable[[SnapshotQueue], tuple[SnapshotQueue, T]]) -> T:
        """Replace the agenda by the step's, and return what else the step returns."""
        with self._lock:
            self.queue, found = step(self.queue)
            return found

    def update_table(self, id_: str, table: TableId, step: Callable[[TableSnapshot], TableSnapshot]) -> None:
        """Replace a snapshot's part by what the step makes of it, unless it has come to its end meanwhile."""

        def turned(queue: SnapshotQueue) -> tuple[SnapshotQueue, None]:
            snapshot = _find(queue, id_)
            part = snapshot.table_snapshot(table)
            if part is None or not part.is_open:
                return queue, None
            return queue.with_snapshot(snapshot.with_table(step(part))), None

        self.update(turned)

    def fail(self, id_: str, table: TableId, reason: str) -> None:
        """Leave a table out for the rest of the tick; its part is tried again by the next, but not for ever.

        Both threads may meet the same failure: it counts once a tick.
        """
        with self._lock:
            is_known = table in self.failed_tables
            self.failed_tables.add(table)
        if is_known:
            return
        # A table that was begun and given up would be half filled for good.
        tries = None if self.snapshot(id_).kind == "initial" else MAX_FAILURES
        self.update_table(id_, table, lambda part: with_failure(part, reason, tries))

    def snapshot(self, id_: str) -> Snapshot:
        """Return the snapshot of that id."""
        return _find(self.queue, id_)

    def table_snapshot(self, id_: str, table: TableId) -> TableSnapshot:
        """Return a snapshot's part."""
        part = self.snapshot(id_).table_snapshot(table)
        assert part is not None
        return part

    def running(self, id_: str, usable: Collection[TableId]) -> Snapshot | None:
        """Return a running snapshot with the tables alone that this tick can work on, None when it is not running."""
        snapshot = self.snapshot(id_)
        if snapshot.status != "running":
            return None
        return replace(
            snapshot,
            tables=tuple(p for p in snapshot.tables if p.table in usable and p.table not in self.failed_tables),
        )


def _find(queue: SnapshotQueue, id_: str) -> Snapshot:
    return next(snapshot for snapshot in queue.snapshots if snapshot.id == id_)
