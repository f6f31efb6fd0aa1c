"""One snapshot in one tick: groups of chunks are read, and published once capture has passed their read.

While one group waits for capture, the next one is being read, by a thread of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.ledger import Entry
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot import (
    Part,
    Reading,
    Slice,
    Snapshot,
    chunked,
    is_together,
    next_group,
    next_to_chunk,
    published,
)
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import sorts_alike
from airflow_provider_db2cdc.errors import CaptureStoppedError, SourceError
from airflow_provider_db2cdc.spark.batch import stage_chunks
from airflow_provider_db2cdc.spark.book import Book
from airflow_provider_db2cdc.spark.copies import unsettled
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.mark import high_mark
from airflow_provider_db2cdc.spark.progress import describe, say
from airflow_provider_db2cdc.spark.session import SMALL_ROWS, TableSessions
from airflow_provider_db2cdc.spark.snapshot import check_columns, check_counts, chunk_ends
from airflow_provider_db2cdc.spark.target import Target
from airflow_provider_db2cdc.spark.tick import Tick

T = TypeVar("T")
POLL_S = 0.5
MAX_READS = 10
"""So often a table without a key is read for one snapshot before it is said to be in trouble."""


@dataclass(frozen=True)
class Group:
    """What was read together, by table, and the mark that capture has to pass."""

    slices: Mapping[TableId, Slice]
    mark: str


@dataclass
class Groups:
    """The groups of one snapshot; no group is begun behind the `deadline`, but for the first.

    Two connections: `connection` is the publishing thread's, `reader` the reading one's. `write_down` keeps in the
    target what the book says; it comes before the first batch that publishes a chunk of a table, so that a crash never
    leaves published chunks of a snapshot, or of bounds, that nobody knows.
    """

    tick: Tick
    book: Book
    id: str
    connection: DriverConnection
    reader: DriverConnection
    deadline: float
    write_down: Callable[[], None]

    def __post_init__(self) -> None:
        spec = self.tick.spec
        self.marks, self.reader_marks = (
            high_mark(spec.settings.watermarking, one, spec.source.asn_schema, spec.signal_table)
            for one in (self.connection, self.reader)
        )
        self.sessions = TableSessions(self.tick.spark)
        self._begun: dict[TableId, int] = {}
        self._limit = spec.settings.group_chunks

    def run(self, between: Callable[[], None]) -> None:
        """Read and publish one group after the other as far as it goes in this tick; call `between` after each."""
        self._sweep()
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self._read_next)
            # Behind the last group there may be more to read by now: again, what a table without a key left open.
            while (group := ahead.result() or self._read_next()) is not None:
                group = self._going_on(group)
                ahead = pool.submit(self._read_next)
                self._publish(group)
                between()

    def _read_next(self) -> Group | None:
        """Read the snapshot's next group; None when there is none, it was stopped, or the time is over."""
        limit, started = self._limit, time.monotonic()
        if self._begun and time.monotonic() > self.deadline:
            return None
        while (snapshot := self._running()) is not None:
            table = next_to_chunk(snapshot, self._begun, limit)
            if table is None:
                break
            self._chunk(table)
        readings = next_group(snapshot, self._begun, limit) if snapshot is not None else []
        by_table = {reading.table: reading for reading in readings}
        if snapshot is None or not readings or not self._is_together(by_table):
            return None
        opened = self.reader_marks.open()
        tasks = [self.tick.tasks[table] for table in by_table]
        slices = self._surviving(tasks, lambda task: self._stage(snapshot, task, by_table[task.table]))
        closed = self.reader_marks.close(opened)
        self._limit = self.tick.spec.settings.next_group_chunks(limit, time.monotonic() - started)
        self._begun |= {table: reading.last + 1 for table, reading in by_table.items()}
        return Group(slices, closed)

    def _going_on(self, group: Group) -> Group:
        """Return the group with those slices that go on where their tables' published chunks end.

        While it was read its snapshot may have been paused: then its chunks are read again once that goes on.
        """
        slices = {}
        for table, of in group.slices.items():
            part = self.book.part(self.id, table)
            if self._is_wanted(table) and of.first == part.done:
                slices[table] = of
            else:
                self._begun[table] = part.done
        return replace(group, slices=slices)

    def _chunk(self, table: TableId) -> None:
        task, part = self.tick.tasks[table], self.book.part(self.id, table)
        settings = self.tick.spec.settings
        found = self.tick.each([task], lambda task: chunk_ends(self.reader, task.schema, settings, part))
        if table not in found:
            self._fail(table)
            return
        say(f"table={table} snapshot={self.id}: {len(found[table]) + 1} chunks")
        self.book.turn(self.id, table, lambda part: chunked(part, found[table], task.schema.fingerprint))

    def _stage(self, snapshot: Snapshot, task: TableTask, reading: Reading) -> Slice:
        self.tick.standing.check_window(task)
        part = self.book.part(self.id, task.table)
        low = self.tick.standing.of(task)
        settings = self.tick.spec.settings
        rows = (reading.last - reading.first + 1) * settings.snapshot_chunk_rows
        about = sys.maxsize if settings.snapshot_chunk_bytes else rows
        target = Target(self.sessions.of(task.table, about), self.tick.place, task.schema)
        try:
            version, counts = stage_chunks(target, self.tick.spec, self.tick.source, part, reading)
        except Exception as error:
            if not part.select:
                raise
            raise SourceError(
                f"{task.table}: what is selected in its place cannot be read: {describe(error)}",
                f"Correct snapshot.select.statement.overrides.{task.table}.",
            ) from error
        check_columns(self.reader, task.schema)
        return Slice(
            snapshot.id, snapshot.kind, reading.first, reading.last, low.upto, low.batch, low.batch, part.fingerprint,
            staging_version=version, counts=counts, condition=part.condition,
        )  # fmt: skip

    def _publish(self, group: Group) -> None:
        """Publish a group once capture has passed its read, then sweep the tables that it ended."""
        tasks = self._ready([self.tick.tasks[table] for table in group.slices if self._is_wanted(table)])
        if not tasks or not self._is_together([task.table for task in tasks]):
            return
        try:
            high = self._await(group.mark)
        except Exception as error:
            for task in tasks:
                self.tick.fail(task.table, error)
                self._fail(task.table)
            return
        planned = self._surviving(tasks, lambda task: self._entry(task, group.slices[task.table], high))
        if not planned or not self._is_together(planned):
            return
        entries = list(planned.values())
        self.write_down()
        self.tick.plan_and_apply(entries, self.tick.counted(entries, self.connection))
        for table, entry in planned.items():
            self._settle_part(table, entry)
        self._sweep()

    def _ready(self, tasks: Sequence[TableTask]) -> list[TableTask]:
        """Make the target's tables ready while capture goes on, and return those that are."""
        ready = self._surviving(tasks, self.tick.prepare)
        return [task for task in tasks if task.table in ready]

    def _surviving(self, tasks: Sequence[TableTask], step: Callable[[TableTask], T]) -> dict[TableId, T]:
        """Do a step for several tables; the parts of those for which it fails are left out of the tick."""
        found = self.tick.each(tasks, step)
        for task in tasks:
            if task.table not in found:
                self._fail(task.table)
        return found

    def _is_together(self, tables: Collection[TableId]) -> bool:
        """Whether these tables may be read, or published, by themselves; the log says so where they may not."""
        if is_together(self.book.snapshot(self.id), tables):
            return True
        say(f"snapshot={self.id} waits until all its tables can be read: they come to stand at one mark")
        return False

    def _sweep(self) -> None:
        """Delete from the target, as one batch, what the tables that are read to their end no longer have."""
        snapshot = self._running()
        entries = {}
        for part in snapshot.open_parts if snapshot is not None else ():
            if part.sweep and part.done == part.chunks and part.low_batch is not None and snapshot is not None:
                task = self.tick.tasks[part.table]
                at = self.tick.standing.of(task).upto
                of = Slice(
                    self.id, snapshot.kind, 0, part.done - 1, at, part.low_batch, part.low_batch, part.fingerprint,
                    read_before=part.read, rows_before=part.rows, sweep=True,
                )  # fmt: skip
                entries[part.table] = self.tick.entry(task, at, at, of)
        self.tick.plan_and_apply(list(entries.values()))
        for table, entry in entries.items():
            self._settle_part(table, entry)

    def _settle_part(self, table: TableId, entry: Entry) -> None:
        """Write down what became of a table's part of a batch."""
        if table in self.tick.errors or entry.slice is None:
            self._fail(table)
            return
        commit = self.tick.standing.last[table]
        of = commit.slice or entry.slice
        self.book.turn(self.id, table, lambda part: published(part, of, commit.reads))
        self._clear(self.tick.tasks[table], of)
        if of.again and len(of.windows) >= MAX_READS:
            self.tick.fail(table, unsettled(table, len(of.windows)))
            self._fail(table)

    def _entry(self, task: TableTask, of: Slice, high: Lsn) -> Entry:
        after = self.tick.standing.of(task).upto
        upto = max(high, after)
        part = self.book.part(self.id, task.table)
        check_counts(self.connection, task.capture, part, of, LsnRange(of.low, upto))
        begun = of.low_batch if part.low_batch is None else part.low_batch
        whole = part.sweep and _tells_gone(task.schema, part)
        of = replace(of, begun_batch=begun, read_before=part.read, rows_before=part.rows, whole=whole)
        if not task.schema.key:
            windows = (*part.windows, (of.low_batch, self.tick.batch + 1))
            of = replace(of, windows=windows, again=True)
        return self.tick.entry(task, after, upto, of)

    def _await(self, closed: str) -> Lsn:
        timeout_s = self.tick.spec.settings.high_mark_timeout_s
        deadline = time.monotonic() + timeout_s
        while (high := self.marks.reached(closed)) is None:
            if time.monotonic() > deadline:
                raise CaptureStoppedError(
                    f"capture did not pass the snapshot's read within {timeout_s:.0f} s",
                    "Is the capture agent running? A longer wait is high.mark.timeout.s.",
                )
            time.sleep(POLL_S)
        return high

    def _clear(self, task: TableTask, of: Slice) -> None:
        """Free the storage of what was staged for a slice that is applied; of few rows it is not worth the time."""
        rows = sum(chunk.read for chunk in of.counts)
        if rows <= SMALL_ROWS:
            return
        target = Target(self.tick.sessions.of(task.table, rows), self.tick.place, task.schema)
        try:
            target.delete_staged(of.staging_version)
        except Exception as error:
            say(f"table={task.table} snapshot={self.id}: staged rows stay in storage: {describe(error)}")

    def _fail(self, table: TableId) -> None:
        self.book.fail(self.id, table, self.tick.errors.get(table, ""))

    def _is_wanted(self, table: TableId) -> bool:
        snapshot = self._running()
        part = snapshot.part(table) if snapshot is not None else None
        return part is not None and part.open

    def _running(self) -> Snapshot | None:
        return self.book.running(self.id, self.tick.tasks.keys() - self.tick.errors.keys())


def _tells_gone(schema: TableSchema, part: Part) -> bool:
    """Return whether a group's rows tell by themselves which rows are gone, so that no sweep has to."""
    return not part.surrogate and sorts_alike(map(schema.column, schema.key))
