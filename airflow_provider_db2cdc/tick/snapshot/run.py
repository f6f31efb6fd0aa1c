"""One snapshot in a tick: which of its tables can be worked on, and which fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, may_publish
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.snapshot.shared_queue import LockedSnapshotQueue
from airflow_provider_db2cdc.tick.tick import Tick

T = TypeVar("T")


@dataclass(frozen=True)
class SnapshotRun:
    """What the reading thread and the publishing thread of a snapshot have in common.

    `planned_clock` is the source's clock when the tick was planned. It is empty for a snapshot that was not running
    then. `tables` are those whose turn belongs to the snapshot. A table that another snapshot releases during the run
    still waits, because nothing has moved it to the low watermark. `publishing` is set while a group
    is published. Reads at that time leave some of Spark's slots to it.
    """

    tick: Tick
    queue: LockedSnapshotQueue
    id: str
    planned_clock: str
    tables: frozenset[TableId]
    publishing: Event = field(default_factory=Event)

    @property
    def kind(self) -> SnapshotKind:
        """What kind of snapshot it is."""
        return self.queue.snapshot(self.id).kind

    def running(self) -> Snapshot | None:
        """Return the snapshot with the tables that this tick can work on, None while it is not running."""
        return self.queue.running(self.id, self.tables & self.tick.tasks.keys() - self.tick.failures.errors.keys())

    def table_snapshot(self, table: TableId) -> TableSnapshot:
        """Return the snapshot of one table."""
        return self.queue.table_snapshot(self.id, table)

    def update_table(self, table: TableId, step: Callable[[TableSnapshot], TableSnapshot]) -> None:
        """Replace a table snapshot by the result of `step`, unless it has ended meanwhile."""
        self.queue.update_table(self.id, table, step)

    def is_open(self, table: TableId) -> bool:
        """Return whether the snapshot is running and still has work on the table."""
        snapshot = self.running()
        table_snapshot = snapshot.table_snapshot(table) if snapshot is not None else None
        return table_snapshot is not None and table_snapshot.is_open

    def may_publish(self, tables: Collection[TableId]) -> bool:
        """Return whether these tables may be read or published without the others. If not, the log says so."""
        if may_publish(self.queue.snapshot(self.id), tables):
            return True
        log_progress(f"snapshot={self.id} waits until all its tables can be read: they come to stand at one mark")
        return False

    def each(
        self, tasks: Sequence[TableTask], step: Callable[[TableTask], T], at_once: int | None = None
    ) -> dict[TableId, T]:
        """Do a step for several tables. A table whose step fails is left out for the rest of the tick."""
        results = self.tick.each(tasks, step, at_once)
        for task in tasks:
            if task.table not in results:
                self.fail(task.table)
        return results

    def fail(self, table: TableId) -> None:
        """Leave a table snapshot out for the rest of the tick, for the reason that the tick has for its table."""
        self.queue.fail(self.id, table, self.tick.failures.errors.get(table, ""))
