"""One snapshot in one tick: groups of chunks are read, and published once capture has passed their read.

While one group waits for capture, another thread reads the next one.
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
from airflow_provider_db2cdc.cdc.snapshot.heal import sorts_by_key
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    KeyedChunks,
    KeylessRead,
    TableSnapshot,
    deletion_range,
    with_published,
)
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.ports import SourceReader
from airflow_provider_db2cdc.tick.snapshot.chunk_group_reader import ChunkGroupReader, StagedGroup
from airflow_provider_db2cdc.tick.snapshot.run import SnapshotRun

POLL_S = 0.5
MAX_READS = 10
"""The most reads of a table without a key for one snapshot. If it needs more, the table fails in this tick."""


@dataclass
class GroupPublisher:
    """Publish the groups of one snapshot as the reader has them ready, in the thread that owns the `connection`.

    `write_down` writes the snapshot queue into the journal. It comes before a batch that publishes chunks. So a crash
    never leaves published chunks of a snapshot, or of bounds, that the journal does not know. It also comes once chunk
    bounds are found.
    """

    snapshot_run: SnapshotRun
    reader: ChunkGroupReader
    connection: SourceReader
    write_down: Callable[[], None]

    def __post_init__(self) -> None:
        self.tick = self.snapshot_run.tick
        self.watermark = self.connection.watermark

    def run(self, between: Callable[[], None]) -> None:
        """Read and publish one group after the other until the tick's time is over, and call `between` after each."""
        self._delete_missing()
        with ThreadPoolExecutor(1) as pool:
            cut = pool.submit(self.reader.find_chunk_bounds)
            self._catch_up()
            cut.result()
            # Written before the first read. If the run dies in that read, the next one need not find the bounds again,
            # which may take as long.
            self.write_down()
            ahead = pool.submit(self.reader.next)
            # A thread that read ahead may have found nothing left. The publication since then may have shown that a
            # table without a key needs another read, so the reader is asked again.
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
        """Return whether capture is stalled after the deadline. The tick does not wait for it again then."""
        return self.tick.capture_stalled and self.reader.is_late

    @failpoint("catch_up")
    def _catch_up(self) -> None:
        """Move tables with nothing read yet to the low watermark, so that no window begins before it.

        The read sees everything that is captured by now. It may know more of a row than the row's events up to here.
        One case is a column that is captured only since then. Another is a change that was never captured, which is
        why the snapshot was requested.
        """
        tasks = self._unread()
        if not tasks:
            return
        low, positions = self._await_low(), self.tick.positions
        for task in tasks:
            positions.start_at(task.table, low)
        batches = [
            self.tick.plan_batch(task, after, low) for task in tasks if (after := positions.position(task).upto) < low
        ]
        batches = self.connection.with_row_counts(batches, self.tick.failures.add)
        # A batch without changes is not needed: the window may begin earlier if it covers no further change.
        self.tick.plan_and_apply([planned for planned in batches if planned.rows])
        for table in self.tick.failures.errors.keys() & {task.table for task in tasks}:
            self.snapshot_run.fail(table)

    def _unread(self) -> list[TableTask]:
        """Return the tables with nothing published yet. Tables that have lost changes fail and are left out."""
        snapshot = self.snapshot_run.running()
        open_tables = snapshot.open_tables if snapshot is not None else ()
        tasks = [
            self.tick.tasks[table_snapshot.table]
            for table_snapshot in open_tables
            if not table_snapshot.published_chunks
        ]
        without_gap = self.snapshot_run.each(tasks, self.tick.positions.check_window)
        return [task for task in tasks if task.table in without_gap]

    @failpoint("publish_group")
    def _publish(self, group: StagedGroup) -> None:
        """Publish a group once capture has passed its read. Then delete the missing rows of completed tables."""
        tasks = [self.tick.tasks[table] for table in group.chunk_ranges if self.snapshot_run.is_open(table)]
        chunk_ranges = self._ready(tasks, group)
        tasks = [task for task in tasks if task.table in chunk_ranges]
        if not tasks or not self.snapshot_run.may_publish([task.table for task in tasks]):
            return
        try:
            high = self._await_high(group.high_mark)
        except Exception as error:
            for task in tasks:
                self.tick.failures.add(task.table, error)
                self.snapshot_run.fail(task.table)
            return
        planned_by_table = self.snapshot_run.each(
            tasks, lambda task: self._plan_range(task, chunk_ranges[task.table], high)
        )
        if not planned_by_table or not self.snapshot_run.may_publish(planned_by_table):
            return
        self.write_down()
        batches = self.connection.with_row_counts(list(planned_by_table.values()), self.tick.failures.add)
        for table in planned_by_table.keys() - {planned.table for planned in batches}:
            self.snapshot_run.fail(table)
        if batches and self.snapshot_run.may_publish([planned.table for planned in batches]):
            self.tick.plan_and_apply(batches)
            for planned in batches:
                self._settle_table(planned.table, planned)
            self._delete_missing()

    def _ready(self, tasks: Sequence[TableTask], group: StagedGroup) -> dict[TableId, ChunkRange]:
        """Prepare a group's chunk ranges for publication, and return those of the tables that are ready.

        Nothing here needs capture, so it is done while capture continues.
        """

        def get_ready(task: TableTask) -> ChunkRange:
            table_snapshot = self.snapshot_run.table_snapshot(task.table)
            chunk_range = _with_deletes(group.chunk_ranges[task.table], task.schema, table_snapshot)
            self.tick.prepare(task, self.tick.positions.is_new(task))
            if isinstance(chunk_range, KeyedChunks) and chunk_range.is_compared:
                self.tick.diff_state(task, chunk_range)
            return chunk_range

        return self.snapshot_run.each(tasks, get_ready)

    def _delete_missing(self) -> None:
        """Delete from the target, as one batch, the rows that completely read tables no longer have."""
        snapshot = self.snapshot_run.running()
        batches = {}
        for table_snapshot in self._tables_to_delete_from(snapshot):
            if snapshot is not None and table_snapshot.low_batch is not None:
                task = self.tick.tasks[table_snapshot.table]
                upto = self.tick.positions.position(task).upto
                batches[task.table] = self.tick.plan_batch(
                    task, upto, upto, deletion_range(table_snapshot, snapshot.id, snapshot.kind, upto)
                )
        self.tick.plan_and_apply(list(batches.values()))
        for table, planned in batches.items():
            self._settle_table(table, planned)

    def _tables_to_delete_from(self, snapshot: Snapshot | None) -> list[TableSnapshot]:
        """Return completely published table snapshots whose missing rows are to be deleted.

        Tables that have lost changes fail and are left out.
        """
        open_tables = snapshot.open_tables if snapshot is not None else ()
        complete = [
            table_snapshot
            for table_snapshot in open_tables
            if table_snapshot.delete_missing and table_snapshot.published_chunks == table_snapshot.chunks
        ]
        without_gap = self.snapshot_run.each(
            [self.tick.tasks[table_snapshot.table] for table_snapshot in complete], self.tick.positions.check_window
        )
        return [table_snapshot for table_snapshot in complete if table_snapshot.table in without_gap]

    @failpoint("settle_table_snapshot")
    def _settle_table(self, table: TableId, planned: PlannedBatch) -> None:
        """Record the result of a table's part of a batch, even if the read of its next group has failed meanwhile."""
        last = self.tick.positions.last.get(table)
        if last is None or last.batch != planned.batch or planned.chunk_range is None:
            self.snapshot_run.fail(table)
            return
        chunk_range = last.chunk_range or planned.chunk_range
        reason = self.tick.failures.errors.get(table, "")
        self.snapshot_run.update_table(
            table,
            lambda table_snapshot: replace(with_published(table_snapshot, chunk_range, last.reads), reason=reason),
        )
        self.tick.context.target.drop_staged(planned.chunk_range)
        match chunk_range:
            case KeylessRead(needs_another_read=True, windows=windows) if len(windows) >= MAX_READS:
                self.tick.failures.add(table, unsettled(table, len(windows)))
                self.snapshot_run.fail(table)

    @failpoint("plan_chunks")
    def _plan_range(self, task: TableTask, chunk_range: ChunkRange, high: Lsn) -> PlannedBatch:
        after = self.tick.positions.position(task).upto
        upto = max(high, after)
        table_snapshot = self.snapshot_run.table_snapshot(task.table)
        self.connection.check_counts(task, table_snapshot, chunk_range, LsnRange(chunk_range.low_watermark, upto))
        first_batch = table_snapshot.low_batch
        chunk_range = replace(
            chunk_range,
            first_low_batch=chunk_range.low_batch if first_batch is None else first_batch,
            read_before=table_snapshot.rows_read,
            rows_before=table_snapshot.rows_published,
        )
        if isinstance(chunk_range, KeylessRead):
            # Spark's plan grows with each window, so only the newest are kept. Fewer windows leave more rows open, so
            # the result is still right.
            windows = (*table_snapshot.windows[1 - MAX_READS :], (chunk_range.low_batch, self.tick.batch + 1))
            chunk_range = replace(chunk_range, windows=windows, needs_another_read=True)
        return self.tick.plan_batch(task, after, upto, chunk_range)

    @failpoint("await_high_mark")
    def _await_high(self, closed: str) -> Lsn:
        return self._passed(closed, "the snapshot's read")

    @failpoint("await_low_mark")
    def _await_low(self) -> Lsn:
        return self._passed(
            self.watermark.low_mark(self.snapshot_run.planned_clock), "the time at which the snapshot began"
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
                    "Is the capture agent running? A longer wait is high.mark.timeout.s. If it runs and no table "
                    "changes, set incremental.snapshot.watermarking.strategy to insert_insert, whose mark is a change.",
                )
            time.sleep(POLL_S)
        return lsn


def _with_deletes(chunk_range: ChunkRange, schema: TableSchema, table_snapshot: TableSnapshot) -> ChunkRange:
    """Return a chunk range that also deletes the missing rows that its read can show.

    Chunks of a table with a key are compared with the state. Where they do not show which rows are missing, a deletion
    of missing rows follows. It needs an event for each row that was read. So a heal is compared with the whole state
    instead.
    """
    match chunk_range:
        case KeylessRead():
            return replace(chunk_range, covers_table=table_snapshot.delete_missing)
        case KeyedChunks() if table_snapshot.delete_missing:
            is_comparable = table_snapshot.in_one_group or sorts_by_key(table_snapshot, schema)
            return replace(chunk_range, deletes_by_range=is_comparable)
    return chunk_range
