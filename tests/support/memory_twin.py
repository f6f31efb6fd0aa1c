"""What the contract of the target port needs of an implementation, and the implementation in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.ports import Tables
from support.memory_maintenance import log_horizon, trim_log
from support.memory_source import MemorySource, Row, lsn, number
from support.memory_tables import MemoryTables
from support.memory_target import MemoryTarget

Logged = tuple[int, str, Row]
"""An event of the change log: its batch, its operation, and the row after it, or before it if it deletes."""


class Twin(Protocol):
    """One table of a source with a key (ID) and a value (A), or without a key, and its change log and state."""

    def open(self) -> Tables:
        """Return the target's tables as another run has them."""

    def commit(self, values: Mapping[int, int | None], is_captured: bool = True) -> None:
        """Set the values of keys in one commit of the source. None deletes a key's row.

        Without `is_captured` the change tables do not show it.
        """

    def captured(self) -> Lsn:
        """Have everything captured, and return the capture position."""

    def task(self, upto: Lsn) -> TableTask:
        """Return the table as a plan finds it now."""

    def count(self, span: LsnRange) -> int:
        """Return how many change rows the source has in a range."""

    def prune(self) -> None:
        """Delete all change rows of the source."""

    def recreate_changes(self) -> None:
        """Register the table again, with a new change table."""

    def gain(self) -> None:
        """Add the column B to the source."""

    def record(self, applied: AppliedBatch) -> None:
        """Record a batch as applied, as a run does after `apply`."""

    def plan(self, planned: Sequence[PlannedBatch]) -> None:
        """Record batches as planned, as a run does before `apply`."""

    def change_state(self, row: Row | None, lost: int | None = None, is_own: bool = False) -> None:
        """Add a row to the state, and delete that of a key, as another writer does. There may be such a row already.

        Without a key, the first copy of a value is deleted. With `is_own` the commits are the pipeline's.
        """

    def lose(self, op: str, row: Row) -> None:
        """Delete events of the change log, by a commit of the pipeline."""

    def double(self, op: str, row: Row) -> None:
        """Append events of the change log once more, by a commit of the pipeline."""

    def forget(self, key: int) -> None:
        """Delete the change rows of the newest change of a key."""

    def time_ms(self, commit: Lsn) -> int:
        """Return the time of the newest event in the change log up to a commit, in UTC milliseconds."""

    def trim(self, horizon: LogHorizon) -> int:
        """Delete the events of batches before the horizon, as maintenance does, and return how many there were."""

    def horizon(self) -> LogHorizon:
        """Return the horizon of the change log."""

    def drop(self) -> None:
        """Remove the change log and the state."""

    def rows(self) -> Counter[Row]:
        """Return how often the state has each row."""

    def at_source(self) -> Counter[Row]:
        """Return how often the source has each row."""

    def events(self) -> list[Logged]:
        """Return the events of the change log, ordered by batch, operation and row."""


@dataclass
class MemoryTwin:
    """A table in memory."""

    is_keyed: bool = True
    target: MemoryTarget = field(default_factory=MemoryTarget)

    def __post_init__(self) -> None:
        self.table = TableId("S", "T")
        self.source = MemorySource([self.table], () if self.is_keyed else (self.table,))

    def open(self) -> Tables:
        """Return the tables."""
        return MemoryTables(self.target, self.source)

    def commit(self, values: Mapping[int, int | None], is_captured: bool = True) -> None:
        """Commit values."""
        changes = list(self.source.changes[self.table])
        self.source.commit({(self.table, key): value for key, value in values.items()})
        if not is_captured:
            self.source.changes[self.table] = changes

    def captured(self) -> Lsn:
        """Capture each commit."""
        self.source.capture()
        return lsn(self.source.captured)

    def task(self, upto: Lsn) -> TableTask:
        """Return the table's task."""
        source, table = self.source, self.table
        return TableTask(source.schema(table), source.registration(table), None, upto, 0)

    def count(self, span: LsnRange) -> int:
        """Count change rows."""
        return len(self.source.captured_changes(self.table, span))

    def prune(self) -> None:
        """Prune up to the newest commit."""
        self.source.prune(self.source.captured)

    def recreate_changes(self) -> None:
        """Give the change table another creation time, and no rows."""
        self.source.created[self.table] = "2026-02-02"
        self.source.changes[self.table] = []

    def gain(self) -> None:
        """Add a column."""
        self.source.gain(self.table)

    def record(self, applied: AppliedBatch) -> None:
        """Append to the applied batches."""
        self.target.applied.append(applied)

    def plan(self, planned: Sequence[PlannedBatch]) -> None:
        """Append to the planned batches."""
        self.target.planned += planned

    def change_state(self, row: Row | None, lost: int | None = None, is_own: bool = False) -> None:
        """Write a version, which is not the pipeline's."""
        key = None if lost is None else self._key((lost,))
        gone = {key: None} if key in self.target.state[self.table] else {}
        added = {} if row is None else {self._key(row): (row, 0)}
        self.target.put_rows(self.table, {**added, **gone}, is_own)

    def lose(self, op: str, row: Row) -> None:
        """Remove from the list."""
        log = self.target.log[self.table]
        log[:] = [logged for logged in log if not _is_event(logged[2], op, row)]

    def double(self, op: str, row: Row) -> None:
        """Put copies next to the events."""
        log = self.target.log[self.table]
        log[:] = [copy for logged in log for copy in [logged] * (1 + _is_event(logged[2], op, row))]

    def forget(self, key: int) -> None:
        """Remove from the list."""
        changes = self.source.changes[self.table]
        newest = max(change.commit for change in changes if change.key == (key,))
        changes[:] = [change for change in changes if (change.key, change.commit) != ((key,), newest)]

    def time_ms(self, commit: Lsn) -> int:
        """Return the commit's number."""
        return number(commit)

    def trim(self, horizon: LogHorizon) -> int:
        """Trim the list."""
        return trim_log(self.target, self.table, horizon)

    def horizon(self) -> LogHorizon:
        """Return what the last trim left."""
        return log_horizon(self.target, self.table)

    def drop(self) -> None:
        """Forget the tables."""
        del self.target.log[self.table], self.target.state[self.table]

    def rows(self) -> Counter[Row]:
        """Count rows of the state."""
        return Counter(row for row, _ in self.target.state[self.table].values())

    def at_source(self) -> Counter[Row]:
        """Count rows of the source."""
        return self.source.images(self.table)

    def events(self) -> list[Logged]:
        """Return the log."""
        log = self.target.log[self.table]
        return sorted((batch, event.op, event.after or event.before or ()) for batch, _, event in log)  # type: ignore[misc]

    def _key(self, row: Row) -> Hashable:
        return row[:1] if self.is_keyed else (row, 1)


def _is_event(event: Event, op: str, row: Row) -> bool:
    return (event.op, event.before if op == "d" else event.after) == (op, row)
