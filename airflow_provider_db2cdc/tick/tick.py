"""A tick under way: batches of changes and of snapshots, table by table, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, GapError, RegistrationError
from airflow_provider_db2cdc.spark.apply.batch import advanced, apply_batch, begins, check_readable, max_rows
from airflow_provider_db2cdc.spark.apply.foreign_changes import (
    apply_guarded,
    check_exists,
    check_idle,
    is_check_due,
    refill_if_changed,
)
from airflow_provider_db2cdc.spark.apply.merge import StateDiff, diff_state
from airflow_provider_db2cdc.spark.delta.ownership import Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.jdbc.change_count import is_uncounted, with_row_counts
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.sql.asn import global_row
from airflow_provider_db2cdc.tick.log import applied_reporter, describe, log_progress, log_stack, now_ms
from airflow_provider_db2cdc.tick.table_positions import TablePositions

T = TypeVar("T")


@dataclass
class Tick:
    """A tick under way: where each table stands, and which failed."""

    spark: SparkSession
    spec: JobSpec
    place: Place
    batch_log: BatchLog
    source: JdbcSource
    history: BatchHistory
    prepared: set[TableId] = field(default_factory=set)
    abandoned: dict[TableId, tuple[int, ...]] = field(default_factory=dict)
    state_diffs: dict[TableId, StateDiff] = field(default_factory=dict)
    published_ranges: list[tuple[ChunkRange, AppliedBatch]] = field(default_factory=list)
    starts: dict[TableId, Lsn] = field(default_factory=dict)
    errors: dict[TableId, str] = field(default_factory=dict)
    capture_interrupted: set[TableId] = field(default_factory=set)
    seconds: dict[TableId, float] = field(default_factory=dict)
    capture_stalled: bool = False

    def __post_init__(self) -> None:
        self.tasks: Mapping[TableId, TableTask] = {task.table: task for task in self.spec.tables}
        self.positions = TablePositions(self.spec, self.history, self._captured)
        self.batch = self.history.newest_batch
        self.sessions = TableSessions(self.spark, self.place.owner.mark)
        self.errors.update({refusal.table: refusal.error for refusal in self.spec.rejected if refusal.is_replicated})

    def recover_pending(self) -> None:
        """Finish, as they were planned, the batches that a tick before this one did not."""
        pending = [planned for planned in self.history.pending if self._is_to_redo(planned)]
        for planned in self.history.pending:
            if planned not in pending:
                self._leave(planned)
        for number in sorted({planned.batch for planned in pending}):
            log_progress(f"batch={number} redo: it was planned but not finished")
            self._redo({planned.table: planned for planned in pending if planned.batch == number})

    def pull(self) -> None:
        """Pull each known table's changes up to the frontier, as one batch."""
        is_new = self.positions.is_new
        found = self.each([task for task in self.open_tasks() if not is_new(task)], self.positions.pull_after)
        batches = [
            self.plan_batch(task, after, task.upto)
            for task in self.open_tasks()
            if not is_new(task) and (after := found.get(task.table)) is not None and after < task.upto
        ]
        self.plan_and_apply(self._counted(batches))

    def advance_idle_tables(self) -> None:
        """Bring the tables that stand at the plan's fence to where snapshots have brought the foremost one."""
        last, is_new = self.positions.last, self.positions.is_new
        pulled = last if self.spec.settings.streaming else self.positions.applied
        known = [task.table for task in self.open_tasks() if task.table in pulled and not is_new(task)]
        stands = {table: last[table].upto for table in known}
        front = max(stands.values(), default=self.spec.capture_position.lsn)
        batches = [
            self.plan_batch(self.tasks[table], stand, front)
            for table, stand in stands.items()
            if self.spec.capture_position.lsn <= stand < front
        ]
        self.plan_and_apply(self._counted(batches))

    def write_manifest(self, unfinished: Collection[TableId]) -> None:
        """Write the manifest when every table stands at one commit, and none is `unfinished`: still being filled."""
        last = self.positions.last
        stands = {last[table].upto for table in self.tasks if table in last}
        if self.errors or unfinished or not self.positions.applied or len(stands) != 1:
            return
        self.batch_log.write_manifest(self.batch, stands.pop(), [last[table] for table in self.tasks], now_ms())

    def open_tasks(self) -> list[TableTask]:
        """Return the tables that have not failed."""
        return [task for task in self.spec.tables if task.table not in self.errors]

    def may_have_rows(self, table: TableId) -> bool:
        """Whether the state may hold rows of a table: also those of a batch that was not finished."""
        return table in self.positions.last or any(planned.table == table for planned in self.history.pending)

    def _is_to_redo(self, planned: PlannedBatch) -> bool:
        """Whether a pending batch is to be finished: a restart leaves what was planned before it, and only that."""
        task = self.tasks.get(planned.table)
        return task is not None and (not task.restart or planned.plan_id == self.spec.plan_id)

    def _leave(self, planned: PlannedBatch) -> None:
        """Never finish a batch; whoever is still about to do it, be it a run that hangs, is not to write it either."""
        self.abandoned[planned.table] = (*self.abandoned.get(planned.table, ()), planned.batch)

    def _redo(self, batches: Mapping[TableId, PlannedBatch]) -> None:
        def check(task: TableTask) -> bool:
            try:
                replica = Replica(self.sessions.session(task.table, task.rows), self.place, task.schema)
                planned = batches[task.table]
                check_readable(replica, task, planned, self.positions.capture_lsn(planned.after))
            except GapError as error:
                self.positions.schedule_resnapshot(task, error)
                self._leave(batches[task.table])
                return False
            return True

        readable = self.each([task for task in self.open_tasks() if task.table in batches], check)
        self._apply([batches[table] for table, is_readable in readable.items() if is_readable])

    def plan_batch(self, task: TableTask, after: Lsn, upto: Lsn, chunk_range: ChunkRange | None = None) -> PlannedBatch:
        """Return the table's part of the next batch; with its change rows, if it is just what the plan has counted."""
        at = (self.spec.planned_at_ms, task.capture.identity)
        has_offset = task.stored_lsn is not None
        is_planned = not task.restart and (after, upto) == (task.stored_lsn, task.upto)
        rows = task.rows if is_planned else None
        own = (self.batch + 1, self.spec.run_id, self.spec.plan_id)
        return PlannedBatch(*own, task.table, after, upto, *at, chunk_range, has_offset, rows)

    def plan_and_apply(self, batches: Sequence[PlannedBatch]) -> None:
        """Do one batch; tables whose part fails are out for the rest of the tick, and redone by the next."""
        if batches:
            self.batch_log.plan(batches)
            self.batch = batches[0].batch
            self._apply(batches)

    def _apply(self, batches: Sequence[PlannedBatch]) -> None:
        by_table = {planned.table: planned for planned in batches}
        tell = applied_reporter(sum(not self._stands(planned) for planned in batches))
        applied = self.each(
            [self.tasks[table] for table in by_table], lambda task: self._commit(by_table[task.table], tell)
        )
        if not applied:
            return
        self.batch_log.commit(list(applied.values()), now_ms())
        for table, commit in applied.items():
            self.starts.setdefault(table, by_table[table].after)
            self.positions.advance(commit, by_table[table].plan_id == self.spec.plan_id)
            if commit.chunk_range is not None:
                self.published_ranges.append((commit.chunk_range, commit))

    def _stands(self, planned: PlannedBatch) -> bool:
        """Whether a batch brings nothing of a table, so that just its offset moves."""
        return planned.rows == 0 and planned.table in self.positions.last and planned.chunk_range is None

    def _commit(self, planned: PlannedBatch, tell: Callable[[TableId], None]) -> AppliedBatch:
        task = self.tasks[planned.table]
        last = self.positions.last.get(planned.table)
        if last is not None and self._stands(planned):
            if is_check_due(planned.table, planned.batch):
                last = check_idle(Replica(self.sessions.session(planned.table, 0), self.place, task.schema), last)
            return advanced(planned, last)
        is_begun, compared = self.positions.is_new(task) or begins(planned), self.state_diffs.pop(planned.table, None)
        self.prepare(task, is_begun)
        read = 0 if planned.chunk_range is None else max_rows(planned.chunk_range, 0 if last is None else last.rows)
        changes = task.rows if planned.rows is None else planned.rows
        is_redone = planned in self.history.pending
        replica = Replica(self.sessions.session(planned.table, changes + read), self.place, task.schema, is_redone)
        apply = partial(apply_batch, replica, self.spec, self.source, task, planned, last, is_begun, compared)
        commit = apply_guarded(replica, None if is_begun else last, apply)
        tell(planned.table)
        return commit

    def prepare(self, task: TableTask, is_begun: bool) -> None:
        """Make a table's own tables ready, once a tick; `is_begun` says that it begins, or its beginning is redone."""
        if task.table not in self.prepared:
            replica = Replica(self.sessions.session(task.table, 0), self.place, task.schema)
            last = self.positions.last.get(task.table)
            if last is not None and not is_begun:
                check_exists(replica)
            replica.prepare(is_begun)
            if last is not None and is_begun:
                refill_if_changed(replica, last, self.batch_log, self.batch + 1)
            if (left := self.abandoned.get(task.table)) is not None:
                replica.fence_writers(max(left))
            self.prepared.add(task.table)

    def diff_state(self, task: TableTask, chunk_range: ChunkRange) -> None:
        """Compare a slice that covers a range with the state, for the batch that will publish it."""
        last = None if self.positions.is_new(task) else self.positions.last.get(task.table)
        rows = max_rows(chunk_range, 0 if last is None else last.rows)
        self.state_diffs[task.table] = diff_state(
            Replica(self.sessions.session(task.table, rows), self.place, task.schema), chunk_range, last
        )

    def each(
        self, tasks: Iterable[TableTask], step: Callable[[TableTask], T], at_once: int | None = None
    ) -> dict[TableId, T]:
        """Do a step for several tables, so many side by side; one whose step fails is out for the rest of the tick."""

        def attempt(task: TableTask) -> tuple[TableId, T] | None:
            started = time.monotonic()
            try:
                return task.table, step(task)
            except ConcurrentRunError:
                raise
            except Exception as error:
                self.fail(task.table, error)
                return None
            finally:
                taken = time.monotonic() - started
                self.seconds[task.table] = self.seconds.get(task.table, 0.0) + taken

        with ThreadPoolExecutor(at_once or max(1, self.spec.settings.parallel_tables)) as pool:
            return dict(pair for pair in pool.map(attempt, tasks) if pair is not None)

    def fail(self, table: TableId, error: Exception) -> None:
        """Leave a table out for the rest of the tick, and report it with this error.

        That its registration was not active is told by it: set active again it will look as it did before.
        """
        if isinstance(error, RegistrationError):
            self.capture_interrupted.add(table)
        self.errors[table] = describe(error)
        log_progress(f"table={table} failed: {self.errors[table]}")
        log_stack(error)

    def _counted(self, batches: Sequence[PlannedBatch]) -> Sequence[PlannedBatch]:
        if not any(is_uncounted(planned, self.tasks[planned.table]) for planned in batches):
            return batches
        with driver_connection(self.spark, self.source) as connection:
            return with_row_counts(self.spec, batches, connection, self.fail)

    def _captured(self) -> Lsn | None:
        """Ask the source how far capture is now."""
        with driver_connection(self.spark, self.source) as connection:
            synchpoint = connection.text_rows(global_row(self.spec.source.asn_schema).text)[0][0]
        return Lsn.parse(synchpoint) if synchpoint else None
