"""A tick under way: its batches of changes and of snapshots, and the result for each table."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import (
    AppliedBatch,
    PlannedBatch,
    advanced,
    begins,
    is_uncounted,
)
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, KeyedChunks
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.tick.context import RunContext
from airflow_provider_db2cdc.tick.failures import TableFailures
from airflow_provider_db2cdc.tick.log import applied_reporter, now_ms
from airflow_provider_db2cdc.tick.ports import StateDiff, TableBatch
from airflow_provider_db2cdc.tick.table_positions import TablePositions

T = TypeVar("T")


class Tick:
    """A tick under way: how far each table is, which tables failed, and the number of the newest batch.

    `healed` are the tables that a heal compares as a whole. Changes of their state by another writer are accepted.
    """

    def __init__(self, context: RunContext) -> None:
        self.context = context
        rejected = {rejected.table: rejected.error for rejected in self.spec.rejected if rejected.is_replicated}
        self.failures = TableFailures(rejected)
        self.positions = TablePositions(self.spec, context.history, context.capture_lsn)
        self.batch = context.history.newest_batch
        self.abandoned: dict[TableId, tuple[PlannedBatch, ...]] = {}
        self.seconds: dict[TableId, float] = {}
        self.capture_stalled = False
        self.healed: frozenset[TableId] = frozenset()
        self._prepared: dict[TableId, tuple[bool, tuple[PlannedBatch, ...]]] = {}
        self._state_diffs: dict[TableId, StateDiff] = {}
        self._seconds_lock = Lock()

    @property
    def spec(self) -> JobSpec:
        """The plan."""
        return self.context.spec

    @property
    def tasks(self) -> Mapping[TableId, TableTask]:
        """The plan's task for each table."""
        return self.context.tasks

    @property
    def published_ranges(self) -> list[tuple[ChunkRange, AppliedBatch]]:
        """The chunk ranges that this tick has published, with their batches."""
        applied = [batch for batches in self.positions.applied.values() for batch in batches]
        return [(batch.chunk_range, batch) for batch in applied if batch.chunk_range is not None]

    def pull(self) -> None:
        """Pull each known table's changes up to the frontier, as one batch."""
        is_new = self.positions.is_new
        starts = self.each([task for task in self.open_tasks() if not is_new(task)], self.positions.pull_after)
        batches = [
            self.plan_batch(task, after, upto)
            for task in self.open_tasks()
            if not is_new(task)
            and (after := starts.get(task.table)) is not None
            and after < (upto := self._pull_end(task, after))
        ]
        self.plan_and_apply(self._counted(batches))

    def _pull_end(self, task: TableTask, after: Lsn) -> Lsn:
        """Return where a pull after a position ends. If the run's interval has no commit after it, that is no later."""
        if self.spec.settings.end_at == "fence":
            return task.upto
        return min(task.upto, self.spec.interval_end or after)

    def advance_idle_tables(self) -> None:
        """Move each idle table from the plan's capture position, or after it, to that of the most advanced table.

        A tick that ends at its data interval moves none, because the commits between belong to later intervals.
        """
        if self.spec.settings.end_at == "interval":
            return
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

        A state that another writer has changed is not finished before it is healed.

        After an error, or if the tick has applied nothing, it is not written.
        """
        last = self.positions.last
        frontiers = {last[table].upto for table in self.tasks if table in last}
        unfinished = {*unfinished, *(table for table in last if last[table].foreign_since is not None)}
        if self.failures.errors or unfinished or not self.positions.applied or len(frontiers) != 1:
            return
        self.context.batch_log.write_manifest(
            self.batch, frontiers.pop(), [last[table] for table in self.tasks], now_ms()
        )

    def open_tasks(self) -> list[TableTask]:
        """Return the tasks of the tables that have not failed."""
        errors = self.failures.errors
        return [task for task in self.spec.tables if task.table not in errors]

    def may_have_rows(self, table: TableId) -> bool:
        """Return whether the state may hold rows of a table, also those of a batch that was not finished."""
        return table in self.positions.last or any(planned.table == table for planned in self.context.history.pending)

    def abandon(self, planned: PlannedBatch) -> None:
        """Give up a batch for good.

        `Tables.prepare` closes it to its writers. So a run that hangs in it cannot write it later either.
        """
        self.abandoned[planned.table] = (*self.abandoned.get(planned.table, ()), planned)

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

        A table that fails is excluded for the rest of the tick. The next tick redoes its part.
        """
        if batches:
            self.context.batch_log.plan(batches)
            self.batch = batches[0].batch
            self.apply(batches)

    def apply(self, batches: Sequence[PlannedBatch]) -> None:
        """Apply planned batches of one number, and record those that succeeded."""
        by_table = {planned.table: planned for planned in batches}
        report = applied_reporter(sum(not self._is_unmoved(planned) for planned in batches))
        applied = self.each(
            [self.tasks[table] for table in by_table], lambda task: self._apply_table(by_table[task.table], report)
        )
        if not applied:
            return
        self.context.batch_log.commit(list(applied.values()), now_ms())
        for table, applied_batch in applied.items():
            self.positions.advance(by_table[table], applied_batch)

    def _is_unmoved(self, planned: PlannedBatch) -> bool:
        """Return whether a batch brings no rows of a known table, so that only its offset moves."""
        is_plain = planned.chunk_range is None and planned.repair is None
        return planned.rows == 0 and planned.table in self.positions.last and is_plain

    def _apply_table(self, planned: PlannedBatch, report: Callable[[TableId], None]) -> AppliedBatch:
        task = self.tasks[planned.table]
        last = self.positions.last.get(planned.table)
        is_healed = task.table in self.healed
        if last is not None and self._is_unmoved(planned):
            idle = last if is_healed else self.context.target.check_idle(task, last, planned.batch)
            return advanced(planned, idle)
        is_begun = self.positions.is_new(task) or begins(planned)
        self.prepare(task, is_begun)
        diff, is_redone = self._state_diffs.pop(planned.table, None), planned in self.context.history.pending
        applied = self.context.target.apply(TableBatch(task, planned, last, is_begun, is_redone, diff, is_healed))
        report(planned.table)
        return applied

    def prepare(self, task: TableTask, is_begun: bool) -> None:
        """Make the change log and the state of a table ready: once a tick, and again if the table begins since then.

        `is_begun` says that the table begins, or that its first batch is redone.
        """
        known = self._prepared.get(task.table)
        needed = (is_begun or (known is not None and known[0]), self.abandoned.get(task.table, ()))
        if needed != known:
            self.context.target.prepare(task, self.positions.last.get(task.table), *needed, self.batch + 1)
            self._prepared[task.table] = needed

    def diff_state(self, task: TableTask, chunk_range: KeyedChunks) -> None:
        """Compare a chunk range that deletes by range with the state, for the batch that will publish it."""
        last = None if self.positions.is_new(task) else self.positions.last.get(task.table)
        self._state_diffs[task.table] = self.context.target.diff(task, chunk_range, last)

    def each(
        self, tasks: Iterable[TableTask], step: Callable[[TableTask], T], at_once: int | None = None
    ) -> dict[TableId, T]:
        """Do a step for several tables, `at_once` in parallel, and return the result for each.

        By default `parallel_tables` of them run in parallel. A table whose step fails has no result, and is
        excluded for the rest of the tick.

        :raises ConcurrentRunError: a step found that another run does this work.
        """

        def attempt(task: TableTask) -> tuple[TableId, T] | None:
            started = time.monotonic()
            try:
                return task.table, step(task)
            except ConcurrentRunError:
                raise
            except Exception as error:
                self.failures.add(task.table, error)
                return None
            finally:
                with self._seconds_lock:
                    self.seconds[task.table] = self.seconds.get(task.table, 0.0) + time.monotonic() - started

        with ThreadPoolExecutor(at_once or max(1, self.spec.settings.parallel_tables)) as pool:
            return dict(result for result in pool.map(attempt, tasks) if result is not None)

    def _counted(self, batches: Sequence[PlannedBatch]) -> Sequence[PlannedBatch]:
        if not any(is_uncounted(planned, self.tasks[planned.table].upto) for planned in batches):
            return batches
        with self.context.source.connect() as reader:
            return reader.with_row_counts(batches, self.failures.add)
