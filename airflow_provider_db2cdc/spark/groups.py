"""One snapshot in one tick: groups of chunks are read, and published once capture has passed their read.

While one group waits for capture, the next one is being read, by a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.ledger import Entry
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.part import Part, Slice, published
from airflow_provider_db2cdc.cdc.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import sorts_alike
from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.copies import unsettled
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.progress import describe, say
from airflow_provider_db2cdc.spark.reader import Group, Reader
from airflow_provider_db2cdc.spark.session import SMALL_ROWS
from airflow_provider_db2cdc.spark.share import Share
from airflow_provider_db2cdc.spark.snapshot import check_counts
from airflow_provider_db2cdc.spark.tally import counted
from airflow_provider_db2cdc.spark.target import Target

POLL_S = 0.5
MAX_READS = 10
"""So often a table without a key is read for one snapshot before it is said to be in trouble."""


@dataclass
class Groups:
    """The groups of one snapshot, published as the reader has them ready; `connection` is the publishing thread's.

    `write_down` keeps in the target what the book says; it comes before the first batch that publishes a chunk of a
    table, so that a crash never leaves published chunks of a snapshot, or of bounds, that nobody knows; and once a
    table is cut.
    """

    share: Share
    reader: Reader
    connection: DriverConnection
    write_down: Callable[[], None]

    def __post_init__(self) -> None:
        self.tick = self.share.tick
        self.marks = self.share.marks(self.connection)

    def run(self, between: Callable[[], None]) -> None:
        """Read and publish one group after the other as far as it goes in this tick; call `between` after each."""
        self._sweep()
        with ThreadPoolExecutor(1) as pool:
            cut = pool.submit(self.reader.cut)
            self._catch_up()
            cut.result()
            # Else whoever dies within the first read finds the chunks' bounds once more, which may take as long.
            self.write_down()
            ahead = pool.submit(self.reader.next)
            # Behind the last group there may be more to read by now: again, what a table without a key left open.
            while not self._is_over() and (group := ahead.result() or self.reader.next()) is not None:
                group = self.reader.going_on(group)
                self.share.publishing.set()
                ahead, applied = pool.submit(self.reader.next), len(self.tick.slices)
                self._publish(group)
                if len(self.tick.slices) == applied and not self.tick.stands_still:
                    self.reader.has_read = False
                between()
                self.share.publishing.clear()

    def _is_over(self) -> bool:
        """Whether capture stands still: behind the tick's time it is not waited for once more."""
        return self.tick.stands_still and self.reader.is_late

    @failpoint("catch_up")
    def _catch_up(self) -> None:
        """Bring the tables that nothing is read of yet to where capture is, so that no window begins before that.

        What was captured by now the read has seen. Of a row it may know more than its events there: the value of a
        column that is captured since then, or a change that nobody has captured, because of which it was asked for.
        """
        tasks = self._unread()
        if not tasks:
            return
        low, standing = self._await_low(), self.tick.standing
        for task in tasks:
            standing.begin_behind(task.table, low)
        entries = [self.tick.entry(task, at, low) for task in tasks if (at := standing.of(task).upto) < low]
        entries = counted(self.tick.spec, entries, self.connection, self.tick.fail)
        # A window that reaches back over no change of its table is as good.
        self.tick.plan_and_apply([entry for entry in entries if entry.rows])
        for table in {*list(self.tick.errors)} & {task.table for task in tasks}:
            self.share.fail(table)

    def _unread(self) -> list[TableTask]:
        """Return the tables that nothing is read of yet, but for those of which changes are lost."""
        snapshot = self.share.running()
        parts = snapshot.open_parts if snapshot is not None else ()
        tasks = [self.tick.tasks[part.table] for part in parts if not part.done]
        whole = self.share.each(tasks, self.tick.standing.check_window)
        return [task for task in tasks if task.table in whole]

    @failpoint("publish_group")
    def _publish(self, group: Group) -> None:
        """Publish a group once capture has passed its read, then sweep the tables that it ended."""
        tasks = [self.tick.tasks[table] for table in group.slices if self.share.wants(table)]
        slices = self._ready(tasks, group)
        tasks = [task for task in tasks if task.table in slices]
        if not tasks or not self.share.is_together([task.table for task in tasks]):
            return
        try:
            high = self._await(group.mark)
        except Exception as error:
            for task in tasks:
                self.tick.fail(task.table, error)
                self.share.fail(task.table)
            return
        planned = self.share.each(tasks, lambda task: self._entry(task, slices[task.table], high))
        if not planned or not self.share.is_together(planned):
            return
        self.write_down()
        entries = counted(self.tick.spec, list(planned.values()), self.connection, self.tick.fail)
        for table in planned.keys() - {entry.table for entry in entries}:
            self.share.fail(table)
        if entries and self.share.is_together([entry.table for entry in entries]):
            self.tick.plan_and_apply(entries)
            for entry in entries:
                self._settle_part(entry.table, entry)
            self._sweep()

    def _ready(self, tasks: Sequence[TableTask], group: Group) -> dict[TableId, Slice]:
        """Do for a group's slices, while capture goes on, what asks nothing of it; return those that are ready."""

        def get_ready(task: TableTask) -> Slice:
            part, of = self.share.part(task.table), group.slices[task.table]
            of = replace(of, whole=part.sweep and _tells_gone(task.schema, part), left=part.left)
            self.tick.prepare(task, self.tick.standing.is_new(task))
            if of.covers_range and task.schema.key:
                self.tick.compare(task, of)
            return of

        return self.share.each(tasks, get_ready)

    def _sweep(self) -> None:
        """Delete from the target, as one batch, what the tables that are read to their end no longer have."""
        snapshot = self.share.running()
        entries = {}
        for part in self._to_sweep(snapshot):
            if snapshot is not None and part.low_batch is not None:
                task = self.tick.tasks[part.table]
                at = self.tick.standing.of(task).upto
                of = Slice(
                    snapshot.id, snapshot.kind, 0, part.done - 1, at, part.low_batch, part.low_batch, part.fingerprint,
                    read_before=part.read, rows_before=part.rows, sweep=True, left=part.left,
                )  # fmt: skip
                entries[part.table] = self.tick.entry(task, at, at, of)
        self.tick.plan_and_apply(list(entries.values()))
        for table, entry in entries.items():
            self._settle_part(table, entry)

    def _to_sweep(self, snapshot: Snapshot | None) -> list[Part]:
        """Return the parts that are read to their end, but for those of tables of which changes are lost."""
        open_parts = snapshot.open_parts if snapshot is not None else ()
        parts = [part for part in open_parts if part.sweep and part.done == part.chunks]
        whole = self.share.each([self.tick.tasks[part.table] for part in parts], self.tick.standing.check_window)
        return [part for part in parts if part.table in whole]

    @failpoint("settle_part")
    def _settle_part(self, table: TableId, entry: Entry) -> None:
        """Write down what became of a table's part of a batch, even if its next group could not be read meanwhile."""
        commit = self.tick.standing.last.get(table)
        if commit is None or commit.batch != entry.batch or entry.slice is None:
            self.share.fail(table)
            return
        of = commit.slice or entry.slice
        reason = self.tick.errors.get(table, "")
        self.share.turn(table, lambda part: replace(published(part, of, commit.reads), reason=reason))
        self._clear(self.tick.tasks[table], of)
        if of.again and len(of.windows) >= MAX_READS:
            self.tick.fail(table, unsettled(table, len(of.windows)))
            self.share.fail(table)

    @failpoint("plan_chunks")
    def _entry(self, task: TableTask, of: Slice, high: Lsn) -> Entry:
        after = self.tick.standing.of(task).upto
        upto = max(high, after)
        part = self.share.part(task.table)
        check_counts(self.connection, task, part, of, LsnRange(of.low, upto))
        begun = of.low_batch if part.low_batch is None else part.low_batch
        of = replace(of, begun_batch=begun, read_before=part.read, rows_before=part.rows)
        if not task.schema.key:
            # Of ever more windows the plan would outgrow Spark; what the newest leave open is more, so it is as right.
            windows = (*part.windows[1 - MAX_READS :], (of.low_batch, self.tick.batch + 1))
            of = replace(of, windows=windows, again=True)
        return self.tick.entry(task, after, upto, of)

    @failpoint("await_high_mark")
    def _await(self, closed: str) -> Lsn:
        return self._passed(closed, "the snapshot's read")

    @failpoint("await_low_mark")
    def _await_low(self) -> Lsn:
        return self._passed(self.marks.low(self.share.low_mark), "the moment that the snapshot begins behind")

    @failpoint("await_capture")
    def _passed(self, mark: str, what: str) -> Lsn:
        timeout_s = self.tick.spec.settings.high_mark_timeout_s
        deadline = time.monotonic() + timeout_s
        while (lsn := self.marks.reached(mark)) is None:
            if time.monotonic() > deadline:
                self.tick.stands_still = True
                raise CaptureStoppedError(
                    f"capture did not pass {what} within {timeout_s:.0f} s",
                    "Is the capture agent running? A longer wait is high.mark.timeout.s. Where it runs and nobody "
                    "changes anything, set incremental.snapshot.watermarking.strategy to insert_insert, whose mark is "
                    "a change.",
                )
            time.sleep(POLL_S)
        return lsn

    def _clear(self, task: TableTask, of: Slice) -> None:
        """Free the storage of what was staged for a slice that is applied; of few rows it is not worth the time."""
        rows = sum(chunk.read for chunk in of.counts)
        if rows <= SMALL_ROWS:
            return
        target = Target(self.tick.sessions.of(task.table, rows), self.tick.place, task.schema)
        try:
            target.staging.delete(of.staging_version)
        except Exception as error:
            say(f"table={task.table} snapshot={self.share.id}: staged rows stay in storage: {describe(error)}")


def _tells_gone(schema: TableSchema, part: Part) -> bool:
    """Return whether a group's rows tell by themselves which rows are gone, so that no sweep has to.

    What batches that were left have told is no part of the state, with which a group is compared.
    """
    if not schema.key:
        return True
    return not part.surrogate and not part.left and sorts_alike(map(schema.column, schema.key))
