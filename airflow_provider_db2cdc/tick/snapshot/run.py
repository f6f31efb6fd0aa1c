"""One snapshot's share of a tick: which of its tables can be worked on, and which fail."""

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
    """What the thread that reads and the one that publishes have in common.

    `planned_clock` is the source's clock when the tick was planned; empty for a snapshot that was not to be worked on
    then. `tables` are those with which it is the snapshot's turn. One that another snapshot lets go of meanwhile still
    waits: nothing has brought it to the low mark. `publishing` is set while a group is published: what is read beside
    leaves some of Spark to that.
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
        return self.queue.running(self.id, self.tables & self.tick.tasks.keys() - {*list(self.tick.errors)})

    def table_snapshot(self, table: TableId) -> TableSnapshot:
        """Return a table's part."""
        return self.queue.table_snapshot(self.id, table)

    def update_table(self, table: TableId, step: Callable[[TableSnapshot], TableSnapshot]) -> None:
        """Replace a table's part by what the step makes of it, unless it has come to its end meanwhile."""
        self.queue.update_table(self.id, table, step)

    def is_open(self, table: TableId) -> bool:
        """Whether the snapshot still goes on with the table."""
        snapshot = self.running()
        part = snapshot.table_snapshot(table) if snapshot is not None else None
        return part is not None and part.is_open

    def may_publish(self, tables: Collection[TableId]) -> bool:
        """Whether these tables may be read, or published, by themselves; the log says so where they may not."""
        if may_publish(self.queue.snapshot(self.id), tables):
            return True
        log_progress(f"snapshot={self.id} waits until all its tables can be read: they come to stand at one mark")
        return False

    def each(
        self, tasks: Sequence[TableTask], step: Callable[[TableTask], T], at_once: int | None = None
    ) -> dict[TableId, T]:
        """Do a step for several tables; the parts of those for which it fails are left out of the tick."""
        found = self.tick.each(tasks, step, at_once)
        for task in tasks:
            if task.table not in found:
                self.fail(task.table)
        return found

    def fail(self, table: TableId) -> None:
        """Leave a table's part out of the tick."""
        self.queue.fail(self.id, table, self.tick.errors.get(table, ""))
