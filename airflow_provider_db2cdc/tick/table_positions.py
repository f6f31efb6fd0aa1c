"""Where the target holds each table, as a tick finds it and moves it on; and which tables begin anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.capture.gap import find_gap, gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.offset.offset import reconcile
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError, OffsetError
from airflow_provider_db2cdc.tick.log import log_progress


@dataclass(frozen=True)
class TablePosition:
    """How far the target holds a table: every change up to a position, by batches up to this one."""

    upto: Lsn
    batch: int


class TablePositions:
    """The last commit of each table, and those that this tick made; `captured` asks the source how far capture is.

    `offset_recovered` are the tables whose missing offset is taken from the target, `waiting_for_operator` those whose
    offset a person is to put right: what the tick tells of them moves no offset.
    """

    def __init__(self, spec: JobSpec, history: BatchHistory, captured: Callable[[], Lsn | None]) -> None:
        self.spec = spec
        self.history = history
        self.last: dict[TableId, AppliedBatch] = dict(history.last)
        self.applied: dict[TableId, list[AppliedBatch]] = {}
        self._captured = captured
        self._anew: set[TableId] = set()
        self._starts: dict[TableId, Lsn] = {}
        self._moved: set[TableId] = set()
        self.offset_recovered: set[TableId] = set()
        self.waiting_for_operator: set[TableId] = set()

    def position(self, task: TableTask) -> TablePosition:
        """Return how far the target holds a table, and behind what the snapshot of a new one begins."""
        if self.is_new(task):
            return TablePosition(
                self._starts.get(task.table, self.spec.capture_position.lsn), self.history.newest_batch
            )
        last = self.last[task.table]
        return TablePosition(last.upto, last.batch)

    def start_at(self, table: TableId, low: Lsn) -> None:
        """Have a table, if it is new, begin behind that position instead of the plan's fence."""
        self._starts[table] = max(low, self.spec.capture_position.lsn)

    def is_new(self, task: TableTask) -> bool:
        """Whether the table begins with a snapshot: nothing is known of it, or a person asked for a restart.

        A restart has begun with the first batch of its plan: a retry goes on behind what the first try applied.
        """
        if task.table in self._moved:
            return False
        is_restart = task.restart and not self._is_moved(task.table)
        return is_restart or task.table in self._anew or (task.table not in self.last and task.stored_lsn is None)

    def is_recovering(self, table: TableId) -> bool:
        """Whether the table begins anew because changes or its offset were lost, as the mode says."""
        return table in self._anew

    def is_reinitialized(self, task: TableTask) -> bool:
        """Whether this plan has begun the table anew: nothing else is done with one to restart, or that misses some."""
        return (task.restart or task.misses_changes) and self._is_moved(task.table)

    def unreported(self, task: TableTask) -> list[tuple[PlannedBatch, AppliedBatch]]:
        """Return what was applied since the table's offset, or by a first try of this plan, and nobody was told of."""
        applied, batch, plan = self.history.applied.get(task.table, ()), task.batch, self.spec.plan_id
        return [
            (planned, commit)
            for planned, commit in applied
            if (planned.batch > batch if batch else planned.plan_id == plan)
        ]

    def is_rewound(self, task: TableTask) -> bool:
        """Whether this plan has begun anew with a table before where the offset store says it.

        Its source was restored.
        """
        stand = self.last[task.table].upto if self._is_moved(task.table) else None
        return stand is not None and task.stored_lsn is not None and stand < task.stored_lsn

    def pull_after(self, task: TableTask) -> Lsn | None:
        """Return the position behind which a known table's changes are to be pulled; None where it begins anew.

        :raises OffsetError: the stored offset of the table and what the target proves do not go together.
        :raises GapError: changes behind it are lost, and the mode has no snapshot mend that.
        """
        last = self.last.get(task.table)
        stored = task.table in self.history.tables_with_offset and not self.spec.settings.recover_offsets
        try:
            after = self._reconciled(task, last, stored)
        except OffsetError as error:
            # Who put the offset back, or set it anew, would forget with it that changes are missing.
            gap = self._gap(task, last) if task.misses_changes and last is not None else None
            self.schedule_resnapshot(task, gap_error(task.table, gap) if gap else error)
            return None
        if after is None or last is None:
            return None
        if task.stored_lsn is None and not task.restart:
            log_progress(f"table={task.table} has no offset; it is taken from the target: {after}")
            self.offset_recovered.add(task.table)
        if self._is_idle(task):
            return after
        gap = self._gap(task, last)
        if gap:
            self.schedule_resnapshot(task, gap_error(task.table, gap))
            return None
        return after

    def check_window(self, task: TableTask) -> None:
        """Refuse to let a snapshot pull what was not pulled so far where it may have been lost.

        :raises GapError: that is so.
        """
        gap = self._gap(task, self.last[task.table]) if self._is_idle(task) else None
        if gap:
            raise gap_error(task.table, gap)

    def _is_idle(self, task: TableTask) -> bool:
        """Whether nobody pulls the table's changes: what is lost of them is lost to nobody, but for a snapshot."""
        last = None if self.is_new(task) or task.table in self.applied else self.last[task.table]
        return last is not None and task.stored_lsn == task.upto == last.upto < self.spec.capture_position.lsn

    def _gap(self, task: TableTask, last: AppliedBatch) -> str | None:
        now, is_open = task.capture, not self._is_moved(task.table)
        at, fence, missed = (
            last.upto,
            self.capture_lsn(last.upto),
            (task.capture_interrupted and is_open, task.source_restored and is_open),
        )
        return find_gap(task.table, at, last.capture, now.identity, now.pruned_upto, fence, *missed)

    def _is_moved(self, table: TableId) -> bool:
        """Whether a batch of this plan was applied to the table, be it by a first try of it."""
        newest = self.history.newest(table)
        return table in self._moved or (newest is not None and newest.plan_id == self.spec.plan_id)

    def _reconciled(self, task: TableTask, last: AppliedBatch | None, stored: bool) -> Lsn | None:
        proven = last.upto if last else None
        # Of what a first try of this plan has done, the store cannot have heard.
        return proven if self._is_moved(task.table) else reconcile(task.table, task.stored_lsn, proven, stored)

    def schedule_resnapshot(self, task: TableTask, error: GapError | OffsetError) -> None:
        """Let a snapshot mend what was lost where the mode says so, else raise the error."""
        if not self.spec.settings.snapshot_on_gap:
            if isinstance(error, OffsetError):
                self.waiting_for_operator.add(task.table)
            raise error
        log_progress(f"table={task.table} is snapshotted anew: {error.problem}")
        self._anew.add(task.table)

    def capture_lsn(self, after: Lsn) -> Lsn:
        """Return how far capture stands: as planned, or as it does now where a first try of the plan went beyond it."""
        planned = self.spec.capture_position.lsn
        return planned if after <= planned else self._captured() or planned

    def advance(self, commit: AppliedBatch, is_own: bool) -> None:
        """Take a table to its next commit, which is this plan's own, or was left over by another one."""
        # In this order: whoever reads ahead takes a table for new until its last commit is known.
        self.last[commit.table] = commit
        self.applied.setdefault(commit.table, []).append(commit)
        if is_own:
            self._moved.add(commit.table)
