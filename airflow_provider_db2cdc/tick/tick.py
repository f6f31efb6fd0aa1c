"""A tick under way: its batches of changes and of snapshots, and the result for each table."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import (
    AppliedBatch,
    BatchHistory,
    PlannedBatch,
    advanced,
    begins,
    is_uncounted,
)
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, GapError, RegistrationError
from airflow_provider_db2cdc.tick.log import applied_reporter, describe, log_progress, log_stack, now_ms
from airflow_provider_db2cdc.tick.ports import BatchLog, Source, StateDiff, TableBatch, Tables
from airflow_provider_db2cdc.tick.table_positions import TablePositions

T = TypeVar("T")


@dataclass
class Tick:
    """A tick under way: how far each table is, and which tables failed."""

    spec: JobSpec
    batch_log: BatchLog
    source: Source
    target: Tables
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
        self.positions = TablePositions(self.spec, self.history, self._capture_lsn)
        self.batch = self.history.newest_batch
        self.errors.update(
            {rejected.table: rejected.error for rejected in self.spec.rejected if rejected.is_replicated}
        )

    def recover_pending(self) -> None:
        """Finish the pending batches of earlier ticks as they were planned. Abandon those that are not to be redone."""
        pending = [planned for planned in self.history.pending if self._is_to_redo(planned)]
        for planned in self.history.pending:
            if planned not in pending:
                self._abandon(planned)
        for number in sorted({planned.batch for planned in pending}):
            log_progress(f"batch={number} redo: it was planned but not finished")
            self._redo({planned.table: planned for planned in pending if planned.batch == number})

    def pull(self) -> None:
        """Pull each known table's changes up to the frontier, as one batch."""
        is_new = self.positions.is_new
        starts = self.each([task for task in self.open_tasks() if not is_new(task)], self.positions.pull_after)
        batches = [
            self.plan_batch(task, after, task.upto)
            for task in self.open_tasks()
            if not is_new(task) and (after := starts.get(task.table)) is not None and after < task.upto
        ]
        self.plan_and_apply(self._counted(batches))

    def advance_idle_tables(self) -> None:
        """Move each idle table from the plan's capture position, or after it, to that of the most advanced table."""
        last, is_new = self.positions.last, self.positions.is_new
        pulled = last if self.spec.settings.streaming else self.positions.applied
        known = [task.table for task in self.open_tasks() if task.table in pulled and not is_new(task)]
        upto_by_table = {table: last[table].upto for table in known}
        greatest = max(upto_by_table.values(), default=self.spec.capture_position.lsn)
        batches = [
            self.plan_batch(self.tasks[table], upto, greatest)
            for table, upto in upto_by_table.items()
            if self.spec.capture_position.lsn <= upto < greatest
        ]
        self.plan_and_apply(self._counted(batches))

    def write_manifest(self, unfinished: Collection[TableId]) -> None:
        """Write the manifest if all tables are at one commit and none is `unfinished`, which is still being filled.

        After an error, or if the tick has applied nothing, it is not written.
        """
        last = self.positions.last
        frontiers = {last[table].upto for table in self.tasks if table in last}
        if self.errors or unfinished or not self.positions.applied or len(frontiers) != 1:
            return
        self.batch_log.write_manifest(self.batch, frontiers.pop(), [last[table] for table in self.tasks], now_ms())

    def open_tasks(self) -> list[TableTask]:
        """Return the tasks of the tables that have not failed."""
        return [task for task in self.spec.tables if task.table not in self.errors]

    def may_have_rows(self, table: TableId) -> bool:
        """Return whether the state may hold rows of a table, also those of a batch that was not finished."""
        return table in self.positions.last or any(planned.table == table for planned in self.history.pending)

    def _is_to_redo(self, planned: PlannedBatch) -> bool:
        """Return whether a pending batch is to be finished.

        It is not if the tick has no task for its table. Nor is it if the table is restarted and another plan planned
        the batch.
        """
        task = self.tasks.get(planned.table)
        return task is not None and (task.action != "restart" or planned.plan_id == self.spec.plan_id)

    def _abandon(self, planned: PlannedBatch) -> None:
        """Give up a batch for good.

        `Tables.prepare` closes it to its writers. So a run that hangs in it cannot write it later either.
        """
        self.abandoned[planned.table] = (*self.abandoned.get(planned.table, ()), planned.batch)

    def _redo(self, batches: Mapping[TableId, PlannedBatch]) -> None:
        def check(task: TableTask) -> bool:
            try:
                planned = batches[task.table]
                self.target.check_readable(task, planned, self.positions.capture_lsn(planned.after))
            except GapError as error:
                self.positions.schedule_resnapshot(task, error)
                self._abandon(batches[task.table])
                return False
            return True

        readable = self.each([task for task in self.open_tasks() if task.table in batches], check)
        self._apply([batches[table] for table, is_readable in readable.items() if is_readable])

    def plan_batch(self, task: TableTask, after: Lsn, upto: Lsn, chunk_range: ChunkRange | None = None) -> PlannedBatch:
        """Return the table's part of the next batch. If its range is the plan's, it has the plan's count of rows."""
        origin = (self.spec.planned_at_ms, task.capture.identity)
        has_offset = task.stored_lsn is not None
        is_planned = task.action != "restart" and (after, upto) == (task.stored_lsn, task.upto)
        rows = task.rows if is_planned else None
        ids = (self.batch + 1, self.spec.run_id, self.spec.plan_id)
        return PlannedBatch(*ids, task.table, after, upto, *origin, chunk_range, has_offset, rows)

    def plan_and_apply(self, batches: Sequence[PlannedBatch]) -> None:
        """Plan and apply one batch. The plan is written first, so that each batch number only ever means one range.

        A table that fails is out for the rest of the tick. The next tick redoes its part.
        """
        if batches:
            self.batch_log.plan(batches)
            self.batch = batches[0].batch
            self._apply(batches)

    def _apply(self, batches: Sequence[PlannedBatch]) -> None:
        by_table = {planned.table: planned for planned in batches}
        report = applied_reporter(sum(not self._is_unmoved(planned) for planned in batches))
        applied = self.each(
            [self.tasks[table] for table in by_table], lambda task: self._apply_table(by_table[task.table], report)
        )
        if not applied:
            return
        self.batch_log.commit(list(applied.values()), now_ms())
        for table, applied_batch in applied.items():
            self.starts.setdefault(table, by_table[table].after)
            self.positions.advance(applied_batch, by_table[table].plan_id == self.spec.plan_id)
            if applied_batch.chunk_range is not None:
                self.published_ranges.append((applied_batch.chunk_range, applied_batch))

    def _is_unmoved(self, planned: PlannedBatch) -> bool:
        """Return whether a batch brings no rows of a known table, so that only its offset moves."""
        return planned.rows == 0 and planned.table in self.positions.last and planned.chunk_range is None

    def _apply_table(self, planned: PlannedBatch, report: Callable[[TableId], None]) -> AppliedBatch:
        task = self.tasks[planned.table]
        last = self.positions.last.get(planned.table)
        if last is not None and self._is_unmoved(planned):
            return advanced(planned, self.target.check_idle(task, last, planned.batch))
        is_begun = self.positions.is_new(task) or begins(planned)
        self.prepare(task, is_begun)
        diff, is_redone = self.state_diffs.pop(planned.table, None), planned in self.history.pending
        applied = self.target.apply(TableBatch(task, planned, last, is_begun, is_redone, diff))
        report(planned.table)
        return applied

    def prepare(self, task: TableTask, is_begun: bool) -> None:
        """Make the change log and the state of a table ready, once a tick.

        `is_begun` says that the table begins, or that its first batch is redone.
        """
        if task.table not in self.prepared:
            last, abandoned = self.positions.last.get(task.table), self.abandoned.get(task.table, ())
            self.target.prepare(task, last, is_begun, abandoned, self.batch + 1)
            self.prepared.add(task.table)

    def diff_state(self, task: TableTask, chunk_range: ChunkRange) -> None:
        """Compare a chunk range that covers its key range with the state, for the batch that will publish it."""
        last = None if self.positions.is_new(task) else self.positions.last.get(task.table)
        self.state_diffs[task.table] = self.target.diff(task, chunk_range, last)

    def each(
        self, tasks: Iterable[TableTask], step: Callable[[TableTask], T], at_once: int | None = None
    ) -> dict[TableId, T]:
        """Do a step for several tables, `at_once` in parallel, and return the result for each.

        By default `parallel_tables` of them run in parallel. A table whose step fails has no result, and is out for the
        rest of the tick.

        :raises ConcurrentRunError: a step found that another run does this work.
        """

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
            return dict(result for result in pool.map(attempt, tasks) if result is not None)

    def fail(self, table: TableId, error: Exception) -> None:
        """Leave a table out for the rest of the tick, and report it with this error.

        The result also says that a registration was not active. Once active again it looks as if it always was.
        """
        if isinstance(error, RegistrationError):
            self.capture_interrupted.add(table)
        self.errors[table] = describe(error)
        log_progress(f"table={table} failed: {self.errors[table]}")
        log_stack(error)

    def _counted(self, batches: Sequence[PlannedBatch]) -> Sequence[PlannedBatch]:
        if not any(is_uncounted(planned, self.tasks[planned.table].upto) for planned in batches):
            return batches
        with self.source.connect() as reader:
            return reader.with_row_counts(batches, self.fail)

    def _capture_lsn(self) -> Lsn | None:
        with self.source.connect() as reader:
            return reader.capture_lsn()
