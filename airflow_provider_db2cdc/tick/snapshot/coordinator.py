"""The snapshots of one tick: signals are heard, new tables begin, and what is open goes on.

What the signal table asks for meanwhile is heard between groups.
"""

from __future__ import annotations

import gc
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
    """Work through a pipeline's snapshots in one tick; `known` is the queue as the journal has it."""

    def __init__(self, tick: Tick, journal: Journal, known: SnapshotQueue) -> None:
        self.tick = tick
        self.queue = LockedSnapshotQueue(known)
        self.writer = JournalWriter(journal, self.queue)
        self.inbox = SignalInbox(tick, self.queue, self.writer)
        self.deadline = time.monotonic() + tick.spec.settings.snapshot_budget_s
        self._begun: dict[str, tuple[int, float]] = {}
        self._left_s: dict[str, int | None] = {}
        self._planned: set[str] = set()
        self._applied = len(tick.published_ranges)

    @property
    def unfinished(self) -> set[TableId]:
        """The tables whose initial snapshot is not over: what they hold is not whole."""
        return self.queue.queue.initially_loading & self.tick.tasks.keys()

    def run(self) -> None:
        """Hear the signals, then work on one snapshot after the other until the tick's time for them is over."""
        self._catch_up()
        self._begin_new()
        if self.queue.queue.open or self.tick.spec.signals:
            self._work()
        self.writer.write()
        self.tick.advance_idle_tables()

    def _work(self) -> None:
        with ExitStack() as stack:
            connection, reader = (stack.enter_context(self.tick.source.connect()) for _ in range(2))
            self.inbox.handle(self.tick.spec.signals, connection)
            # Else a tick that died, or a first try of this one, may have been asked for something behind the plan.
            if self.writer.journal.seq == self.tick.spec.reported_seq:
                self._planned = {snapshot.id for snapshot in self.queue.queue.open if snapshot.status == "running"}
            self.inbox.handle(connection.signals(), connection)
            worked: set[str] = set()
            while (snapshot := self._next(worked)) is not None:
                worked.add(snapshot.id)
                self._say_progress(snapshot.id)
                self._go_on(snapshot, connection, reader)

    def _go_on(self, snapshot: Snapshot, connection: SourceReader, reader: SourceReader) -> None:
        """Work on one snapshot; what fails as a whole fails its tables, and nothing else of the tick."""
        tables = self.queue.queue.tables_in_turn(snapshot.id)
        for table in tables & self.tick.errors.keys():
            self.queue.fail(snapshot.id, table, self.tick.errors[table])
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
            left = tables & {*self.queue.snapshot(snapshot.id).open_table_ids} & self.tick.tasks.keys()
            for table in left - self.tick.errors.keys():
                self.tick.fail(table, error)
                self.queue.fail(snapshot.id, table, self.tick.errors[table])

    def with_snapshots(self, result: JobResult) -> JobResult:
        """Return the tick's result with what there is to tell of signals and snapshots."""
        now = [progress(one) for one in self.queue.queue.snapshots]
        shown = [replace(one, remaining_s=self._left_s.get(one.id) if one.status in OPEN else None) for one in now]
        return replace(
            result,
            signals=tuple(self.writer.outcomes.values()),
            snapshots=tuple(shown),
            notifications=tuple(self.writer.notifications),
            reported_seq=self.writer.journal.seq,
        )

    @failpoint("after_group")
    def _after_group(self, id_: str, connection: SourceReader) -> None:
        self.writer.collect_notifications()
        self.writer.write_if_due()
        self._say_progress(id_)
        self.inbox.handle(connection.signals(), connection, begun=True)
        # Frames lie in cycles that Python seldom collects, and each holds its plan on the driver's heap.
        gc.collect()

    def _catch_up(self) -> None:
        """Take over what the last tick published and could not write down, and let go of tables that are gone.

        An initial snapshot waits for a table that was taken out of the pipeline: what it has of it is not whole.
        """
        self._renew()
        applied = [
            (chunk_range, commit) for chunk_range, commit in self.tick.history.chunk_ranges.values()
        ] + self.tick.published_ranges
        for chunk_range, commit in applied:
            if any(snapshot.id == chunk_range.snapshot for snapshot in self.queue.queue.open):
                self.queue.update_table(
                    chunk_range.snapshot, commit.table, partial(_caught_up, chunk_range=chunk_range, rows=commit.reads)
                )
        for snapshot in self.queue.queue.open:
            for part in snapshot.open_tables if snapshot.kind != "initial" else ():
                if part.table not in self.tick.tasks and part.table not in self.tick.errors:
                    self.queue.update_table(snapshot.id, part.table, partial(with_stop, reason=GONE))

    def _renew(self) -> None:
        """Begin anew with tables whose columns have changed since their chunks were named: nothing is mixed."""
        for snapshot in self.queue.queue.open:
            for part in snapshot.open_tables:
                task = self.tick.tasks.get(part.table)
                if task is not None and part.fingerprint not in ("", task.schema.fingerprint):
                    log_progress(f"table={part.table} snapshot={snapshot.id}: its columns changed, it is read anew")
                    self.queue.update_table(
                        snapshot.id, part.table, partial(restarted, is_held=self.tick.may_have_rows(part.table))
                    )

    def _begin_new(self) -> None:
        tick = self.tick
        fresh = [task for task in tick.open_tasks() if tick.positions.is_new(task)]
        unread = [task for task in fresh if not self._is_snapshotted(task)]
        tick.plan_and_apply([tick.plan_batch(task, task.upto, task.upto) for task in unread])
        begun, at_ms = self.queue.queue.has_begun, tick.spec.planned_at_ms
        known = [task for task in tick.open_tasks() if task.resnapshot and task not in fresh]
        # What a first try of this plan has begun goes on.
        again = [task for task in known if not begun(task.table, at_ms)]
        asked = [self._initial(task) for task in (*fresh, *again) if self._is_snapshotted(task)]
        parts = [part for part in asked if not self.queue.queue.is_waiting(part)]
        if parts:
            self.queue.update(lambda queue: (add_initial(queue, parts, at_ms), None))
        self._tell_skipped()

    def _tell_skipped(self) -> None:
        """Tell once of each table that has begun without a snapshot, be it in a tick that died before it had."""
        untold = (self.tick.positions.last.keys() & self.tick.tasks.keys()) - self.writer.journal.skipped
        self.writer.skipped = sorted(table for table in untold if not self.queue.queue.has_begun(table))
        if self.writer.skipped:
            self.writer.notifications.append(skipped(self.writer.skipped, self.tick.spec.run_id, now_ms()))

    def _is_snapshotted(self, task: TableTask) -> bool:
        """Whether a snapshot is taken of a table: also of one that new tables are not begun with, where it mends."""
        return task.initial_snapshot or self.tick.positions.is_recovering(task.table)

    def _initial(self, task: TableTask) -> TableSnapshot:
        """Return a table's part of an initial snapshot, which sweeps wherever the state may hold rows already."""
        part = TableSnapshot(task.table, select=task.select, abandoned_batches=self.tick.abandoned.get(task.table, ()))
        return restarted(part, self.tick.may_have_rows(task.table))

    def _next(self, worked: set[str]) -> Snapshot | None:
        """Return what is to be worked on next; behind the deadline only while nothing has come of any so far.

        Nor is capture waited for once more there.
        """
        has_come = len(self.tick.published_ranges) > self._applied
        if time.monotonic() > self.deadline and (has_come or self.tick.capture_stalled):
            return None
        return self.queue.queue.next_snapshot(self.tick.tasks, worked)

    def _say_progress(self, id_: str) -> None:
        """Print how far the snapshot is, and, once it can be told, how long the rest may take."""
        shown = progress(self.queue.snapshot(id_))
        done, at = self._begun.setdefault(id_, (shown.done, time.monotonic()))
        paced = shown.at_pace(done, time.monotonic() - at)
        self._left_s[id_] = paced.remaining_s
        log_progress(str(paced))


def _caught_up(part: TableSnapshot, chunk_range: ChunkRange, rows: int) -> TableSnapshot:
    return with_published(part, chunk_range, rows) if has_same_bounds(part, chunk_range) else part
