"""One snapshot in one tick: groups of chunks are read, and published once capture has passed their read.

While one group waits for capture, the next one is being read, by a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.event.row_multiset import unsettled
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    TableSnapshot,
    deletion_range,
    with_published,
)
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import sorts_alike
from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.ports import SourceReader
from airflow_provider_db2cdc.tick.snapshot.chunk_group_reader import ChunkGroupReader, StagedGroup
from airflow_provider_db2cdc.tick.snapshot.run import SnapshotRun

POLL_S = 0.5
MAX_READS = 10
"""So often a table without a key is read for one snapshot before it is said to be in trouble."""


@dataclass
class GroupPublisher:
    """The groups of one snapshot, published as the reader has them ready; `connection` is the publishing thread's.

    `write_down` keeps in the target what the book says; it comes before the first batch that publishes a chunk of a
    table, so that a crash never leaves published chunks of a snapshot, or of bounds, that nobody knows; and once a
    table is cut.
    """

    snapshot_run: SnapshotRun
    reader: ChunkGroupReader
    connection: SourceReader
    write_down: Callable[[], None]

    def __post_init__(self) -> None:
        self.tick = self.snapshot_run.tick
        self.watermark = self.connection.watermark

    def run(self, between: Callable[[], None]) -> None:
        """Read and publish one group after the other as far as it goes in this tick; call `between` after each."""
        self._sweep()
        with ThreadPoolExecutor(1) as pool:
            cut = pool.submit(self.reader.find_chunk_bounds)
            self._catch_up()
            cut.result()
            # Else whoever dies within the first read finds the chunks' bounds once more, which may take as long.
            self.write_down()
            ahead = pool.submit(self.reader.next)
            # Behind the last group there may be more to read by now: again, what a table without a key left open.
            while not self._is_over() and (group := ahead.result() or self.reader.next()) is not None:
                group = self.reader.drop_stale(group)
                self.snapshot_run.publishing.set()
                ahead, applied = pool.submit(self.reader.next), len(self.tick.published_ranges)
                self._publish(group)
                if len(self.tick.published_ranges) == applied and not self.tick.capture_stalled:
                    self.reader.has_read = False
                between()
                self.snapshot_run.publishing.clear()

    def _is_over(self) -> bool:
        """Whether capture stands still: behind the tick's time it is not waited for once more."""
        return self.tick.capture_stalled and self.reader.is_late

    @failpoint("catch_up")
    def _catch_up(self) -> None:
        """Bring the tables that nothing is read of yet to where capture is, so that no window begins before that.

        What was captured by now the read has seen. Of a row it may know more than its events there: the value of a
        column that is captured since then, or a change that nobody has captured, because of which it was asked for.
        """
        tasks = self._unread()
        if not tasks:
            return
        low, standing = self._await_low(), self.tick.positions
        for task in tasks:
            standing.start_at(task.table, low)
        batches = [self.tick.plan_batch(task, at, low) for task in tasks if (at := standing.position(task).upto) < low]
        batches = self.connection.with_row_counts(batches, self.tick.fail)
        # A window that reaches back over no change of its table is as good.
        self.tick.plan_and_apply([planned for planned in batches if planned.rows])
        for table in {*list(self.tick.errors)} & {task.table for task in tasks}:
            self.snapshot_run.fail(table)

    def _unread(self) -> list[TableTask]:
        """Return the tables that nothing is read of yet, but for those of which changes are lost."""
        snapshot = self.snapshot_run.running()
        parts = snapshot.open_tables if snapshot is not None else ()
        tasks = [self.tick.tasks[part.table] for part in parts if not part.published_chunks]
        whole = self.snapshot_run.each(tasks, self.tick.positions.check_window)
        return [task for task in tasks if task.table in whole]

    @failpoint("publish_group")
    def _publish(self, group: StagedGroup) -> None:
        """Publish a group once capture has passed its read, then sweep the tables that it ended."""
        tasks = [self.tick.tasks[table] for table in group.chunk_ranges if self.snapshot_run.is_open(table)]
        slices = self._ready(tasks, group)
        tasks = [task for task in tasks if task.table in slices]
        if not tasks or not self.snapshot_run.may_publish([task.table for task in tasks]):
            return
        try:
            high = self._await(group.high_mark)
        except Exception as error:
            for task in tasks:
                self.tick.fail(task.table, error)
                self.snapshot_run.fail(task.table)
            return
        planned_by_table = self.snapshot_run.each(tasks, lambda task: self._entry(task, slices[task.table], high))
        if not planned_by_table or not self.snapshot_run.may_publish(planned_by_table):
            return
        self.write_down()
        batches = self.connection.with_row_counts(list(planned_by_table.values()), self.tick.fail)
        for table in planned_by_table.keys() - {planned.table for planned in batches}:
            self.snapshot_run.fail(table)
        if batches and self.snapshot_run.may_publish([planned.table for planned in batches]):
            self.tick.plan_and_apply(batches)
            for planned in batches:
                self._settle_part(planned.table, planned)
            self._sweep()

    def _ready(self, tasks: Sequence[TableTask], group: StagedGroup) -> dict[TableId, ChunkRange]:
        """Do for a group's slices, while capture goes on, what asks nothing of it; return those that are ready."""

        def get_ready(task: TableTask) -> ChunkRange:
            part, chunk_range = self.snapshot_run.table_snapshot(task.table), group.chunk_ranges[task.table]
            chunk_range = replace(
                chunk_range,
                covers_key_range=part.delete_missing and _tells_gone(task.schema, part),
                abandoned_batches=part.abandoned_batches,
            )
            self.tick.prepare(task, self.tick.positions.is_new(task))
            if chunk_range.deletes_by_range and task.schema.key:
                self.tick.diff_state(task, chunk_range)
            return chunk_range

        return self.snapshot_run.each(tasks, get_ready)

    def _sweep(self) -> None:
        """Delete from the target, as one batch, what the tables that are read to their end no longer have."""
        snapshot = self.snapshot_run.running()
        batches = {}
        for part in self._to_sweep(snapshot):
            if snapshot is not None and part.low_batch is not None:
                task = self.tick.tasks[part.table]
                at = self.tick.positions.position(task).upto
                batches[part.table] = self.tick.plan_batch(
                    task, at, at, deletion_range(part, snapshot.id, snapshot.kind, at)
                )
        self.tick.plan_and_apply(list(batches.values()))
        for table, planned in batches.items():
            self._settle_part(table, planned)

    def _to_sweep(self, snapshot: Snapshot | None) -> list[TableSnapshot]:
        """Return the parts that are read to their end, but for those of tables of which changes are lost."""
        open_parts = snapshot.open_tables if snapshot is not None else ()
        parts = [part for part in open_parts if part.delete_missing and part.published_chunks == part.chunks]
        whole = self.snapshot_run.each(
            [self.tick.tasks[part.table] for part in parts], self.tick.positions.check_window
        )
        return [part for part in parts if part.table in whole]

    @failpoint("settle_table_snapshot")
    def _settle_part(self, table: TableId, planned: PlannedBatch) -> None:
        """Write down what became of a table's part of a batch, even if its next group could not be read meanwhile."""
        commit = self.tick.positions.last.get(table)
        if commit is None or commit.batch != planned.batch or planned.chunk_range is None:
            self.snapshot_run.fail(table)
            return
        chunk_range = commit.chunk_range or planned.chunk_range
        reason = self.tick.errors.get(table, "")
        self.snapshot_run.update_table(
            table, lambda part: replace(with_published(part, chunk_range, commit.reads), reason=reason)
        )
        self.tick.target.delete_staged(self.tick.tasks[table], chunk_range)
        if chunk_range.needs_another_read and len(chunk_range.windows) >= MAX_READS:
            self.tick.fail(table, unsettled(table, len(chunk_range.windows)))
            self.snapshot_run.fail(table)

    @failpoint("plan_chunks")
    def _entry(self, task: TableTask, chunk_range: ChunkRange, high: Lsn) -> PlannedBatch:
        after = self.tick.positions.position(task).upto
        upto = max(high, after)
        part = self.snapshot_run.table_snapshot(task.table)
        self.connection.check_counts(task, part, chunk_range, LsnRange(chunk_range.low_watermark, upto))
        begun = chunk_range.low_batch if part.low_batch is None else part.low_batch
        chunk_range = replace(
            chunk_range, first_low_batch=begun, read_before=part.rows_read, rows_before=part.rows_published
        )
        if not task.schema.key:
            # Of ever more windows the plan would outgrow Spark; what the newest leave open is more, so it is as right.
            windows = (*part.windows[1 - MAX_READS :], (chunk_range.low_batch, self.tick.batch + 1))
            chunk_range = replace(chunk_range, windows=windows, needs_another_read=True)
        return self.tick.plan_batch(task, after, upto, chunk_range)

    @failpoint("await_high_mark")
    def _await(self, closed: str) -> Lsn:
        return self._passed(closed, "the snapshot's read")

    @failpoint("await_low_mark")
    def _await_low(self) -> Lsn:
        return self._passed(
            self.watermark.low_mark(self.snapshot_run.planned_clock), "the moment that the snapshot begins behind"
        )

    @failpoint("await_capture")
    def _passed(self, mark: str, what: str) -> Lsn:
        timeout_s = self.tick.spec.settings.high_mark_timeout_s
        deadline = time.monotonic() + timeout_s
        while (lsn := self.watermark.reached(mark)) is None:
            if time.monotonic() > deadline:
                self.tick.capture_stalled = True
                raise CaptureStoppedError(
                    f"capture did not pass {what} within {timeout_s:.0f} s",
                    "Is the capture agent running? A longer wait is high.mark.timeout.s. Where it runs and nobody "
                    "changes anything, set incremental.snapshot.watermarking.strategy to insert_insert, whose mark is "
                    "a change.",
                )
            time.sleep(POLL_S)
        return lsn


def _tells_gone(schema: TableSchema, part: TableSnapshot) -> bool:
    """Return whether a group's rows tell by themselves which rows are gone, so that no sweep has to.

    What batches that were left have told is no part of the state, with which a group is compared.
    """
    if not schema.key:
        return True
    return not part.surrogate and not part.abandoned_batches and sorts_alike(map(schema.column, schema.key))
