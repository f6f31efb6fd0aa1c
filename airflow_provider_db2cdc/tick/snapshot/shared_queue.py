"""The snapshot queue of one tick, shared by the reading thread and the publishing thread."""

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
    """A snapshot queue that is replaced as a whole, by one thread at a time.

    `failed_tables` are the tables that failed in this tick.
    """

    def __init__(self, queue: SnapshotQueue) -> None:
        self.queue = queue
        self.failed_tables: set[TableId] = set()
        self._lock = threading.Lock()

    def update(self, step: Callable[[SnapshotQueue], tuple[SnapshotQueue, T]]) -> T:
        """Replace the queue by the one that `step` returns, and return the other result of `step`."""
        with self._lock:
            self.queue, result = step(self.queue)
            return result

    def update_table(self, id_: str, table: TableId, step: Callable[[TableSnapshot], TableSnapshot]) -> None:
        """Replace a table snapshot by the result of `step`, unless it has ended meanwhile."""

        def updated(queue: SnapshotQueue) -> tuple[SnapshotQueue, None]:
            snapshot = _find(queue, id_)
            table_snapshot = snapshot.table_snapshot(table)
            if table_snapshot is None or not table_snapshot.is_open:
                return queue, None
            return queue.with_snapshot(snapshot.with_table(step(table_snapshot))), None

        self.update(updated)

    def fail(self, id_: str, table: TableId, reason: str) -> None:
        """Leave a table out for the rest of the tick. The next ticks try it again, up to `MAX_FAILURES` times.

        Both threads may meet the same failure. It counts once per tick.
        """
        with self._lock:
            is_known = table in self.failed_tables
            self.failed_tables.add(table)
        if is_known:
            return
        # An initial snapshot is never given up: its table would stay half filled.
        tries = None if self.snapshot(id_).kind == "initial" else MAX_FAILURES
        self.update_table(id_, table, lambda table_snapshot: with_failure(table_snapshot, reason, tries))

    def snapshot(self, id_: str) -> Snapshot:
        """Return the snapshot with an id."""
        return _find(self.queue, id_)

    def table_snapshot(self, id_: str, table: TableId) -> TableSnapshot:
        """Return a snapshot's table snapshot. The table must be one of the snapshot's."""
        table_snapshot = self.snapshot(id_).table_snapshot(table)
        assert table_snapshot is not None
        return table_snapshot

    def running(self, id_: str, usable: Collection[TableId]) -> Snapshot | None:
        """Return a running snapshot with only the `usable` tables that have not failed in this tick, else None."""
        snapshot = self.snapshot(id_)
        if snapshot.status != "running":
            return None
        return replace(
            snapshot,
            tables=tuple(
                table_snapshot
                for table_snapshot in snapshot.tables
                if table_snapshot.table in usable and table_snapshot.table not in self.failed_tables
            ),
        )


def _find(queue: SnapshotQueue, id_: str) -> Snapshot:
    return next(snapshot for snapshot in queue.snapshots if snapshot.id == id_)
