"""How far the target holds each table, before and during a tick, and which tables begin again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, find_recorded_gap, gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.offset.offset import nothing_to_restore, reconcile
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError, OffsetError
from airflow_provider_db2cdc.tick.log import log_progress


@dataclass(frozen=True)
class TablePosition:
    """How far the target holds a table: every change up to `upto`, by batches up to `batch`."""

    upto: Lsn
    batch: int


class TablePositions:
    """The last applied batch of each table, and the batches that this tick applied.

    `applied_after` has the position after which a table's first batch in this tick begins. `captured` asks the source
    for its capture position. `offset_recovered` are the tables whose missing offset is taken from the target.
    `waiting_for_operator` are the tables whose offset an operator has to correct. The tick's report does not move the
    offset of these.
    """

    def __init__(self, spec: JobSpec, history: BatchHistory, captured: Callable[[], Lsn | None]) -> None:
        self.spec = spec
        self.history = history
        self.last: dict[TableId, AppliedBatch] = dict(history.last)
        self.applied: dict[TableId, list[AppliedBatch]] = {}
        self.applied_after: dict[TableId, Lsn] = {}
        self._captured = captured
        self._recovering: set[TableId] = set()
        self._starts: dict[TableId, Lsn] = {}
        self._moved: set[TableId] = set()
        self.offset_recovered: set[TableId] = set()
        self.waiting_for_operator: set[TableId] = set()

    def position(self, task: TableTask) -> TablePosition:
        """Return how far the target holds a table, or after which position a new table begins."""
        if self.is_new(task):
            return TablePosition(
                self._starts.get(task.table, self.spec.capture_position.lsn), self.history.newest_batch
            )
        last = self.last[task.table]
        return TablePosition(last.upto, last.batch)

    def start_at(self, table: TableId, low: Lsn) -> None:
        """Have a table, if it is new, begin after the later of `low` and the plan's capture position."""
        self._starts[table] = max(low, self.spec.capture_position.lsn)

    def is_new(self, task: TableTask) -> bool:
        """Return whether the table begins with a snapshot.

        It does if nothing is known of it, if it recovers from a loss, or if an operator asked for a restart. A restart
        has begun with the first applied batch of its plan. So a retry continues after what the first try applied.
        """
        if task.table in self._moved:
            return False
        is_restart = task.action == "restart" and not self._is_moved(task.table)
        is_unknown = task.table not in self.last and task.stored_lsn is None and task.action != "restore"
        return is_restart or task.table in self._recovering or is_unknown

    def is_recovering(self, table: TableId) -> bool:
        """Return whether the table begins again because changes or its offset were lost, as the mode says."""
        return table in self._recovering

    def is_healed_by_snapshot(self, table: TableId) -> bool:
        """Return whether the snapshot that repairs a loss of the table publishes only what differs from the state."""
        return self.is_recovering(table) and self.spec.settings.gap_repair == "heal" and table in self.last

    def is_reinitialized(self, task: TableTask) -> bool:
        """Return whether this plan has begun the table again.

        A plan does nothing else with a table that is to be restarted or that misses changes. So one applied batch
        shows it.
        """
        return (task.action == "restart" or task.misses_changes) and self._is_moved(task.table)

    def unreported(self, task: TableTask) -> list[tuple[PlannedBatch, AppliedBatch]]:
        """Return the batches that are applied but that no tick has reported.

        They are the batches after the one that the table's offset names. If the offset names none, they are those that
        a first try of this plan applied. A repair reports for itself.
        """
        applied, batch, plan = self.history.applied.get(task.table, ()), task.batch, self.spec.plan_id
        return [
            (planned, applied_batch)
            for planned, applied_batch in applied
            if planned.repair is None and (planned.batch > batch if batch else planned.plan_id == plan)
        ]

    def is_rewound(self, task: TableTask) -> bool:
        """Return whether this plan has begun the table again at a position before its stored offset.

        Its source was restored then.
        """
        upto = self.last[task.table].upto if self._is_moved(task.table) else None
        return upto is not None and task.stored_lsn is not None and upto < task.stored_lsn

    def pull_after(self, task: TableTask) -> Lsn | None:
        """Return the position after which a known table's changes are to be pulled.

        It is None if the table begins again, or if its offset is restored and the mode does not pull its changes.

        :raises OffsetError: the table's stored offset contradicts what the target proves.
        :raises GapError: changes after it are lost, and the mode does not have a snapshot repair that.
        """
        last = self.last.get(task.table)
        recovers = self.spec.settings.recover_offsets or task.action == "restore"
        stored = task.table in self.history.tables_with_offset and not recovers
        try:
            after = self._reconciled(task, last, stored)
        except OffsetError as error:
            # The gap is reported first. An operator who puts the offset back or resets it removes with it the only
            # note that changes are missing.
            gap = self._gap(task, last) if task.misses_changes and last is not None else None
            self.schedule_resnapshot(task, gap_error(task.table, gap) if gap else error)
            return None
        if after is None or last is None:
            return None
        if task.stored_lsn is None and task.action != "restart":
            log_progress(f"table={task.table} its offset is taken from the target: {after}")
            self.offset_recovered.add(task.table)
        if self._is_restored_unpulled(task):
            return None
        if self._is_idle(task):
            return after
        gap = self._gap(task, last)
        if gap:
            self.schedule_resnapshot(task, gap_error(task.table, gap))
            return None
        return after

    def check_window(self, task: TableTask) -> None:
        """Check that no change is lost which a snapshot has to pull and no tick has pulled so far.

        :raises GapError: such a change may be lost.
        """
        gap = self._gap(task, self.last[task.table]) if self._is_idle(task) else None
        if gap:
            raise gap_error(task.table, gap)

    def _is_idle(self, task: TableTask) -> bool:
        """Return whether no tick has changes of the table to pull. Then lost changes only matter to a snapshot.

        A table that only this tick does not pull, because its interval ends before, is not idle.
        """
        if self.spec.settings.streaming and self.spec.settings.end_at == "interval":
            return False
        last = None if self.is_new(task) or task.table in self.applied else self.last[task.table]
        if last is None or last.upto >= self.spec.capture_position.lsn:
            return False
        return task.stored_lsn == task.upto == last.upto or self._is_restored_unpulled(task)

    def _is_restored_unpulled(self, task: TableTask) -> bool:
        """Return whether only the offset of the table is restored. Its plan does not know where the table stands."""
        return task.action == "restore" and not self.spec.settings.streaming

    def _gap(self, task: TableTask, last: AppliedBatch) -> str | None:
        now = CapturePoint(self.capture_lsn(last.upto), task.capture.identity, task.capture.pruned_upto)
        recorded = find_recorded_gap(task.table, last.upto, task.capture_interrupted, task.source_restored)
        # What the plan says was missed is repaired once a batch of this plan is applied.
        is_repaired = self._is_moved(task.table)
        return (None if is_repaired else recorded) or find_gap(CapturePoint(last.upto, last.capture), now)

    def _is_moved(self, table: TableId) -> bool:
        """Return whether a batch of this plan was applied to the table, by this run or by a first try."""
        newest = self.history.newest(table)
        return table in self._moved or (newest is not None and newest.plan_id == self.spec.plan_id)

    def _reconciled(self, task: TableTask, last: AppliedBatch | None, stored: bool) -> Lsn | None:
        proven = last.upto if last else None
        if task.action == "restore" and proven is None:
            raise nothing_to_restore(task.table)
        # The offset store does not know yet what a first try of this plan has applied.
        return proven if self._is_moved(task.table) else reconcile(task.table, task.stored_lsn, proven, stored)

    def schedule_resnapshot(self, task: TableTask, error: GapError | OffsetError) -> None:
        """Have a snapshot repair a loss if the mode says so, else raise the error.

        An offset error that is raised has the table wait for an operator.
        """
        if not self.spec.settings.snapshot_on_gap:
            if isinstance(error, OffsetError):
                self.waiting_for_operator.add(task.table)
            raise error
        self._recovering.add(task.table)
        repair = "healed" if self.is_healed_by_snapshot(task.table) else "snapshotted again"
        log_progress(f"table={task.table} is {repair}: {error.problem}")

    def capture_lsn(self, after: Lsn) -> Lsn:
        """Return the planned capture position, or the current one if a first try of the plan went beyond it."""
        planned = self.spec.capture_position.lsn
        return planned if after <= planned else self._captured() or planned

    def advance(self, planned: PlannedBatch, applied_batch: AppliedBatch) -> None:
        """Move a table to its next applied batch, which this plan or an earlier one planned."""
        # In this order: the thread that reads ahead takes a table for new until its last applied batch is known.
        self.last[applied_batch.table] = applied_batch
        if planned.repair is not None:
            return
        self.applied.setdefault(applied_batch.table, []).append(applied_batch)
        self.applied_after.setdefault(planned.table, planned.after)
        if planned.plan_id == self.spec.plan_id:
            self._moved.add(applied_batch.table)
