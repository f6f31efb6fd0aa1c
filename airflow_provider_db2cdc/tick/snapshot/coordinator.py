"""The snapshots of one tick: signals are handled, new tables begin, and open snapshots continue.

Between groups the tick handles new rows of the signal table.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from airflow_provider_db2cdc.cdc.job import JobResult, TableTask
from airflow_provider_db2cdc.cdc.snapshot.notification import skipped
from airflow_provider_db2cdc.cdc.snapshot.progress import progress
from airflow_provider_db2cdc.cdc.snapshot.queue import (
    SnapshotQueue,
    add_initial,
)
from airflow_provider_db2cdc.cdc.snapshot.snapshot import OPEN, Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    TableSnapshot,
    has_same_bounds,
    restarted,
    with_published,
    with_stop,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import log_progress, now_ms
from airflow_provider_db2cdc.tick.ports import Journal, SourceReader
from airflow_provider_db2cdc.tick.snapshot.chunk_group_reader import ChunkGroupReader
from airflow_provider_db2cdc.tick.snapshot.journal_writer import JournalWriter
from airflow_provider_db2cdc.tick.snapshot.publisher import GroupPublisher
from airflow_provider_db2cdc.tick.snapshot.run import SnapshotRun
from airflow_provider_db2cdc.tick.snapshot.shared_queue import LockedSnapshotQueue
from airflow_provider_db2cdc.tick.snapshot.signal_inbox import SignalInbox
from airflow_provider_db2cdc.tick.tick import Tick

GONE = "its table is no longer one of the pipeline's"


class SnapshotCoordinator:
    """Work through a pipeline's snapshots in one tick. `known` is the queue as the journal has it."""

    def __init__(self, tick: Tick, journal: Journal, known: SnapshotQueue) -> None:
        self.tick = tick
        self.queue = LockedSnapshotQueue(known)
        self.writer = JournalWriter(journal, self.queue)
        self.inbox = SignalInbox(tick, self.queue, self.writer)
        self.deadline = time.monotonic() + tick.spec.settings.snapshot_budget_s
        self._begun: dict[str, tuple[int, float]] = {}
        self._remaining_s: dict[str, int | None] = {}
        self._planned: set[str] = set()
        self._applied = len(tick.published_ranges)

    @property
    def unfinished(self) -> set[TableId]:
        """The tables whose initial snapshot is not over. Their state is not complete."""
        return self.queue.queue.initially_loading & self.tick.tasks.keys()

    def run(self) -> None:
        """Handle the signals, then work on one snapshot after the other until the tick's time for them is over."""
        self._catch_up()
        self._begin_tables()
        if self.queue.queue.open or self.tick.spec.signals:
            self._work()
        self.writer.write()
        self.tick.advance_idle_tables()

    def _work(self) -> None:
        with ExitStack() as stack:
            connection, reader = (stack.enter_context(self.tick.context.source.connect()) for _ in range(2))
            self.inbox.handle(self.tick.spec.signals, connection)
            # Only a snapshot that was requested before the plan may begin at the plan's clock. If the journal has rows
            # that the plan does not know, they may be of a request after it. A tick that died handled it, or a first
            # try of this one.
            if self.writer.journal.seq == self.tick.spec.reported_seq:
                self._planned = {snapshot.id for snapshot in self.queue.queue.open if snapshot.status == "running"}
            self.inbox.handle(connection.signals(), connection)
            worked: set[str] = set()
            while (snapshot := self._next(worked)) is not None:
                worked.add(snapshot.id)
                self._log_snapshot_progress(snapshot.id)
                self._work_on(snapshot, connection, reader)

    def _work_on(self, snapshot: Snapshot, connection: SourceReader, reader: SourceReader) -> None:
        """Work on one snapshot. An error of the whole snapshot fails its tables, and no other table of the tick."""
        tables = self.queue.queue.tables_in_turn(snapshot.id)
        for table in tables & self.tick.failures.errors.keys():
            self.queue.fail(snapshot.id, table, self.tick.failures.errors[table])
        try:
            low_mark = self.tick.spec.planned_clock if snapshot.id in self._planned else ""
            run = SnapshotRun(self.tick, self.queue, snapshot.id, low_mark, tables)
            groups = GroupPublisher(
                run, ChunkGroupReader(run, reader, self.deadline), connection, self.writer.write_if_due
            )
            groups.run(partial(self._after_group, snapshot.id, connection))
        except ConcurrentRunError:
            raise
        except Exception as error:
            open_tables = tables & {*self.queue.snapshot(snapshot.id).open_table_ids} & self.tick.tasks.keys()
            for table in open_tables - self.tick.failures.errors.keys():
                self.tick.failures.add(table, error)
                self.queue.fail(snapshot.id, table, self.tick.failures.errors[table])

    def with_snapshots(self, result: JobResult) -> JobResult:
        """Return the tick's result with the outcomes of signals, the progress of snapshots and the notifications."""
        snapshots = [progress(snapshot) for snapshot in self.queue.queue.snapshots]
        with_remaining = [
            replace(snapshot, remaining_s=self._remaining_s.get(snapshot.id) if snapshot.status in OPEN else None)
            for snapshot in snapshots
        ]
        return replace(
            result,
            signals=tuple(self.writer.outcomes.values()),
            snapshots=tuple(with_remaining),
            notifications=tuple(self.writer.notifications),
            reported_seq=self.writer.journal.seq,
        )

    @failpoint("after_group")
    def _after_group(self, id_: str, connection: SourceReader) -> None:
        self.writer.collect_notifications()
        self.writer.write_if_due()
        self._log_snapshot_progress(id_)
        self.inbox.handle(connection.signals(), connection, begun=True)
        self.tick.context.target.free_memory()

    def _catch_up(self) -> None:
        """Record what an earlier run published but did not journal, and stop the snapshots of removed tables.

        An initial snapshot is not stopped. It waits for a table that was removed from the pipeline, because it has only
        a part of the table.
        """
        self._restart_changed_tables()
        published = [
            (chunk_range, applied) for chunk_range, applied in self.tick.context.history.chunk_ranges.values()
        ] + self.tick.published_ranges
        for chunk_range, applied in published:
            if any(snapshot.id == chunk_range.snapshot for snapshot in self.queue.queue.open):
                self.queue.update_table(
                    chunk_range.snapshot,
                    applied.table,
                    partial(_caught_up, chunk_range=chunk_range, rows=applied.reads),
                )
        for snapshot in self.queue.queue.open:
            for table in snapshot.open_table_ids if snapshot.kind != "initial" else ():
                if table not in self.tick.tasks and table not in self.tick.failures.errors:
                    self.queue.update_table(snapshot.id, table, partial(with_stop, reason=GONE))

    def _restart_changed_tables(self) -> None:
        """Restart table snapshots whose columns have changed since their chunk bounds were found.

        Otherwise chunks with different columns would be mixed.
        """
        for snapshot in self.queue.queue.open:
            for table_snapshot in snapshot.open_tables:
                table = table_snapshot.table
                task = self.tick.tasks.get(table)
                if task is not None and table_snapshot.fingerprint not in ("", task.schema.fingerprint):
                    log_progress(f"table={table} snapshot={snapshot.id}: its columns changed, it is read again")
                    self.queue.update_table(
                        snapshot.id, table, partial(restarted, is_held=self.tick.may_have_rows(table))
                    )

    def _begin_tables(self) -> None:
        tick = self.tick
        new = [task for task in tick.open_tasks() if tick.positions.is_new(task)]
        without_snapshot = [task for task in new if not self._is_snapshotted(task)]
        tick.plan_and_apply([tick.plan_batch(task, task.upto, task.upto) for task in without_snapshot])
        begun, at_ms = self.queue.queue.has_begun, tick.spec.planned_at_ms
        known = [task for task in tick.open_tasks() if task.action == "resnapshot" and task not in new]
        # A snapshot that a first try of this plan has begun continues. It is not requested again.
        again = [task for task in known if not begun(task.table, at_ms)]
        requested = [self._initial(task) for task in (*new, *again) if self._is_snapshotted(task)]
        to_add = [table_snapshot for table_snapshot in requested if not self.queue.queue.is_waiting(table_snapshot)]
        if to_add:
            self.queue.update(lambda queue: (add_initial(queue, to_add, at_ms), None))
        self._notify_skipped()

    def _notify_skipped(self) -> None:
        """Notify once of each table that has begun without a snapshot, also in a tick that died before it did so."""
        unreported = (self.tick.positions.last.keys() & self.tick.tasks.keys()) - self.writer.journal.skipped
        self.writer.skipped = sorted(table for table in unreported if not self.queue.queue.has_begun(table))
        if self.writer.skipped:
            self.writer.notifications.append(skipped(self.writer.skipped, self.tick.spec.run_id, now_ms()))

    def _is_snapshotted(self, task: TableTask) -> bool:
        """Return whether a snapshot is taken of a table.

        One is also taken to repair a loss where the mode takes no snapshot of new tables.
        """
        return task.action != "start_without_snapshot" or self.tick.positions.is_recovering(task.table)

    def _initial(self, task: TableTask) -> TableSnapshot:
        """Return a table's part of an initial snapshot. After a loss it may publish only differences.

        It deletes missing rows if the state may already hold rows.
        """
        heals = self.tick.positions.is_healed_by_snapshot(task.table)
        table_snapshot = TableSnapshot(task.table, select=task.select, differences_only=heals)
        return restarted(table_snapshot, self.tick.may_have_rows(task.table))

    def _next(self, worked: set[str]) -> Snapshot | None:
        """Return the snapshot to work on next, or None.

        After the deadline there is one only if no snapshot has published anything so far in this tick. There is none if
        capture is stalled: the tick does not wait for it again.
        """
        has_published = len(self.tick.published_ranges) > self._applied
        if time.monotonic() > self.deadline and (has_published or self.tick.capture_stalled):
            return None
        return self.queue.queue.next_snapshot(self.tick.tasks, worked)

    def _log_snapshot_progress(self, id_: str) -> None:
        """Log how far the snapshot is and, once it can be estimated, how long the rest may take."""
        shown = progress(self.queue.snapshot(id_))
        done, since = self._begun.setdefault(id_, (shown.done, time.monotonic()))
        paced = shown.at_pace(done, time.monotonic() - since)
        self._remaining_s[id_] = paced.remaining_s
        log_progress(str(paced))


def _caught_up(table_snapshot: TableSnapshot, chunk_range: ChunkRange, rows: int) -> TableSnapshot:
    if not has_same_bounds(table_snapshot, chunk_range):
        return table_snapshot
    return with_published(table_snapshot, chunk_range, rows)
