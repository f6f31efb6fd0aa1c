"""Where the target holds each table, as a tick finds it and moves it on; and which tables begin anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.gap import find_gap
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.ledger import Commit, History
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset import reconcile
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError, OffsetError
from airflow_provider_db2cdc.spark.batch import gap_error
from airflow_provider_db2cdc.spark.progress import say


@dataclass(frozen=True)
class Stand:
    """How far the target holds a table: every change up to a position, by batches up to this one."""

    upto: Lsn
    batch: int


class Standing:
    """The last commit of each table, and those that this tick made; `captured` asks the source how far capture is."""

    def __init__(self, spec: JobSpec, history: History, captured: Callable[[], Lsn | None]) -> None:
        self.spec = spec
        self.history = history
        self.last: dict[TableId, Commit] = dict(history.last)
        self.done: dict[TableId, list[Commit]] = {}
        self._captured = captured
        self._anew: set[TableId] = set()

    def of(self, task: TableTask) -> Stand:
        """Return how far the target holds a table; a new table's snapshot begins at the plan's fence."""
        if self.is_new(task):
            return Stand(self.spec.fence.lsn, self.history.batch)
        last = self.last[task.table]
        return Stand(last.upto, last.batch)

    def is_new(self, task: TableTask) -> bool:
        """Whether the table begins with a snapshot: nothing is known of it, or a person asked for a restart."""
        anew = task.restart or task.table in self._anew
        return (anew and task.table not in self.done) or (task.table not in self.last and task.believed is None)

    def after(self, task: TableTask) -> Lsn | None:
        """Return the position behind which a known table's changes are to be pulled; None where it begins anew.

        :raises OffsetError: what is believed of the table and what the target proves do not go together.
        :raises GapError: changes behind it are lost, and the mode has no snapshot mend that.
        """
        last = self.last.get(task.table)
        stored = task.table in self.history.stored and not self.spec.settings.recover_offsets
        if task.believed is None and stored and self.spec.settings.snapshot_on_gap:
            self.begin_anew(task, OffsetError(f"{task.table}: its offset is missing"))
            return None
        after = reconcile(task.table, task.believed, last.upto if last else None, stored)
        if after is None or last is None:
            return None
        if task.believed is None:
            say(f"table={task.table} has no offset; it is taken from the target: {after}")
        gap = find_gap(after, last.capture, task.capture.identity, task.capture.floor, self.fence(after))
        if gap:
            self.begin_anew(task, gap_error(task.table, gap))
            return None
        return after

    def begin_anew(self, task: TableTask, error: GapError | OffsetError) -> None:
        """Let a snapshot mend what was lost where the mode says so, else raise the error."""
        if not self.spec.settings.snapshot_on_gap:
            raise error
        say(f"table={task.table} is snapshotted anew: {error.problem}")
        self._anew.add(task.table)

    def fence(self, after: Lsn) -> Lsn:
        """Return how far capture stands: as planned, or as it does now where a first try of the plan went beyond it."""
        planned = self.spec.fence.lsn
        return planned if after <= planned else self._captured() or planned

    def move(self, commit: Commit) -> None:
        """Take a table to its next commit."""
        # In this order: whoever reads ahead takes a table for new until its last commit is known.
        self.last[commit.table] = commit
        self.done.setdefault(commit.table, []).append(commit)
