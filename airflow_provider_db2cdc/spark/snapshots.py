"""The snapshots of one tick: groups of chunks are read, and published once capture has passed their read.

While one group waits for capture, the next one is being read. What the signal table asks for meanwhile is heard between
groups.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.agenda import Agenda, act, begin_initial, settle
from airflow_provider_db2cdc.cdc.job import JobResult, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.notification import Notification, notifications
from airflow_provider_db2cdc.cdc.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot import (
    Part,
    Reading,
    Slice,
    Snapshot,
    chunked,
    failed,
    find_open,
    next_group,
    next_to_chunk,
    progress,
    published,
    stopped,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import CaptureStoppedError, SourceError
from airflow_provider_db2cdc.spark.batch import stage_chunks
from airflow_provider_db2cdc.spark.jdbc import DriverConnection, driver_connection
from airflow_provider_db2cdc.spark.journal import Journal
from airflow_provider_db2cdc.spark.ledger import Entry
from airflow_provider_db2cdc.spark.mark import HighMark, high_mark
from airflow_provider_db2cdc.spark.progress import describe, say
from airflow_provider_db2cdc.spark.session import table_session
from airflow_provider_db2cdc.spark.snapshot import check_part, cut_of
from airflow_provider_db2cdc.spark.tick import Tick
from airflow_provider_db2cdc.sql.asn import count_changes
from airflow_provider_db2cdc.sql.signal import given_signals

POLL_S = 0.5
BEFORE_THE_FIRST = (
    "it was given before the pipeline's first tick. Give it again, under another id, if it is still meant."
)


@dataclass(frozen=True)
class Group:
    """What was read together, by table, and the mark that capture has to pass."""

    slices: Mapping[TableId, Slice]
    mark: str


class Snapshots:
    """The agenda of the pipeline in one tick: hears signals, begins what is new, goes on with what is open."""

    def __init__(self, tick: Tick, journal: Journal) -> None:
        self.tick = tick
        self.journal = journal
        self.known = journal.read() or Agenda()
        self.agenda = self.known
        self.ended_before = {snapshot.id for snapshot in self.known.snapshots if not snapshot.open}
        self.outcomes: dict[tuple[str, str], SignalOutcome] = {}
        self.told: list[Notification] = []
        self.deadline = time.monotonic() + tick.spec.settings.snapshot_budget_s
        self._lock = threading.Lock()
        self._out: set[TableId] = set()
        self._paces: dict[str, tuple[float, int]] = {}

    @property
    def unfinished(self) -> set[TableId]:
        """The tables whose initial snapshot is not over: what they hold is not whole."""
        initial = [snapshot for snapshot in self.agenda.open if snapshot.kind == "initial"]
        return {part.table for snapshot in initial for part in snapshot.parts if part.status != "completed"}

    def run(self) -> None:
        """Hear the signals, then work on one snapshot after the other until the tick's time for them is over."""
        self._catch_up()
        self._begin_new()
        if not (self.agenda.open or self.tick.spec.signals):
            return
        with ExitStack() as stack:
            connect = driver_connection(self.tick.spark, self.tick.source)
            connection = stack.enter_context(connect)
            self._hear(self.tick.spec.signals, connection)
            worked: set[str] = set()
            while (snapshot := self._next(worked)) is not None:
                worked.add(snapshot.id)
                reader = stack.enter_context(driver_connection(self.tick.spark, self.tick.source))
                self._work(snapshot.id, connection, reader)
        self._write()

    def tell(self, result: JobResult) -> JobResult:
        """Return the tick's result with what there is to tell of signals and snapshots."""
        shown = [progress(one) for one in self.agenda.snapshots if one.id not in self.ended_before]
        return replace(
            result, signals=tuple(self.outcomes.values()), snapshots=tuple(shown), notifications=tuple(self.told)
        )

    def _catch_up(self) -> None:
        """Take over what the last tick published and could not write down, and let go of tables that are gone."""
        applied = [(of, commit) for of, commit in self.tick.history.slices.values()] + self.tick.slices
        for of, commit in applied:
            snapshot = next((one for one in self.agenda.open if one.id == of.snapshot), None)
            part = snapshot.part(commit.table) if snapshot else None
            if snapshot is not None and part is not None and (of.sweep or of.last >= part.done):
                self._put(snapshot.id, published(part, of, commit.batch, commit.reads))
        for snapshot in self.agenda.open:
            for part in snapshot.open_parts:
                if part.table not in self.tick.tasks and part.table not in self.tick.errors:
                    self._put(snapshot.id, stopped(part, "its table is no longer one of the pipeline's"))

    def _begin_new(self) -> None:
        tick = self.tick
        fresh = [task for task in tick.open_tasks() if tick.is_new(task)]
        tick.plan_and_apply([tick.entry(task, task.upto, task.upto) for task in fresh if not task.snapshot])
        begin = [task for task in fresh if task.snapshot and not self._is_begun(task)]
        if begin:
            parts = [
                Part(task.table, select=task.select, sweep=task.table in tick.last and not task.select)
                for task in begin
            ]
            self.agenda = begin_initial(self.agenda, parts, tick.spec.planned_at_ms)

    def _is_begun(self, task: TableTask) -> bool:
        snapshot = find_open(self.agenda.snapshots, task.table)
        part = snapshot.part(task.table) if snapshot else None
        return snapshot is not None and part is not None and snapshot.kind == "initial" and part.done == 0

    def _hear(self, signals: Sequence[Signal], connection: DriverConnection) -> None:
        """Act on signals, those in the signal table included."""
        for signal in [*signals, *self._in_table(connection)]:
            if self.agenda.knows(signal) or (signal.channel, signal.id) in self.outcomes:
                self.outcomes.setdefault((signal.channel, signal.id), self._outcome(signal))
                continue
            if signal.channel == SOURCE_CHANNEL and not self.tick.history.batch:
                outcome = SignalOutcome(signal.id, signal.channel, "refused", BEFORE_THE_FIRST)
                self.agenda = self.agenda.with_outcome(outcome)
            else:
                with self._lock:
                    self.agenda, outcome = act(
                        self.agenda, signal, list(self.tick.tasks), self._checker(connection), _now_ms()
                    )
            self._tell_signal(signal, outcome)

    def _outcome(self, signal: Signal) -> SignalOutcome:
        return (self.agenda.outcomes or {})[signal.channel, signal.id]

    def _tell_signal(self, signal: Signal, outcome: SignalOutcome) -> None:
        self.outcomes[signal.channel, signal.id] = outcome
        say(f"signal: channel={signal.channel} id={signal.id} type={signal.type} {outcome.status} {outcome.reason}")

    def _checker(self, connection: DriverConnection) -> Callable[[Part], None]:
        return lambda part: check_part(connection, self.tick.tasks[part.table].schema, part)

    def _in_table(self, connection: DriverConnection) -> list[Signal]:
        table = self.tick.spec.signal_table
        if table is None:
            return []
        rows = connection.text_rows(given_signals(table))
        return [Signal(row[0] or "", row[1] or "", row[2] or "", SOURCE_CHANNEL) for row in rows]

    def _next(self, worked: set[str]) -> Snapshot | None:
        if time.monotonic() > self.deadline and worked:
            return None
        open_ones = [one for one in self.agenda.open if one.status == "running" and one.id not in worked]
        return min(open_ones, key=lambda one: one.kind != "initial", default=None)

    def _work(self, id_: str, connection: DriverConnection, reader: DriverConnection) -> None:
        """Read and publish a snapshot's groups, one ahead of the other, as far as it goes in this tick."""
        spec = self.tick.spec
        how, asn_schema = spec.settings.watermarking, spec.source.asn_schema
        mark, reading_mark = (high_mark(how, one, asn_schema, spec.signal_table) for one in (connection, reader))
        self._say_progress(id_)
        self._sweep(id_)
        begun: dict[TableId, int] = {}
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self._read_next, id_, begun, reader, reading_mark)
            while (group := ahead.result()) is not None:
                ahead = pool.submit(self._read_next, id_, begun, reader, reading_mark)
                self._publish(id_, group, mark, connection)
                self._write()
                self._say_progress(id_)
                self._hear((), connection)

    def _read_next(
        self, id_: str, begun: dict[TableId, int], connection: DriverConnection, mark: HighMark
    ) -> Group | None:
        """Read the snapshot's next group; None when there is none, it was stopped, or the time is over."""
        limit = self.tick.spec.settings.snapshot_group_chunks
        if begun and time.monotonic() > self.deadline:
            return None
        while (snapshot := self._view(id_)) is not None:
            table = next_to_chunk(snapshot, begun, limit)
            if table is None:
                break
            self._chunk(id_, table, connection)
        readings = next_group(snapshot, begun, limit) if snapshot is not None else []
        if snapshot is None or not readings:
            return None
        opened = mark.open()
        by_table = {reading.table: reading for reading in readings}
        slices = self.tick.each(
            [self.tick.tasks[table] for table in by_table],
            lambda task: self._stage(snapshot, task, by_table[task.table]),
        )
        closed = mark.close(opened)
        for table, reading in by_table.items():
            begun[table] = reading.last + 1
            if table not in slices:
                self._fail(id_, table)
        return Group(slices, closed)

    def _chunk(self, id_: str, table: TableId, connection: DriverConnection) -> None:
        rows = self.tick.spec.settings.snapshot_chunk_rows

        def bounds(task: TableTask) -> Part:
            part = self._part(id_, table)
            cut = cut_of(task.schema, part)
            return chunked(part, [] if part.select else connection.chunk_bounds(cut, rows))

        found = self.tick.each([self.tick.tasks[table]], bounds)
        if table in found:
            say(f"table={table} snapshot={id_}: {found[table].chunks} chunks")
            self._put(id_, found[table])
        else:
            self._fail(id_, table)

    def _stage(self, snapshot: Snapshot, task: TableTask, reading: Reading) -> Slice:
        part = self._part(snapshot.id, task.table)
        low = self.tick.applied(task)
        session = table_session(self.tick.spark, sys.maxsize)
        version, counts = stage_chunks(
            session, self.tick.spec, self.tick.place, self.tick.source, task.schema, part, reading
        )
        return Slice(
            snapshot.id, snapshot.kind, reading.first, reading.last, low, version, counts, condition=part.condition
        )

    def _publish(self, id_: str, group: Group, mark: HighMark, connection: DriverConnection) -> None:
        """Publish a group once capture has passed its read, then sweep the tables that it ended."""
        tasks = [self.tick.tasks[table] for table in group.slices if self._is_wanted(id_, table)]
        if not tasks:
            return
        try:
            high = self._await(mark, group.mark)
        except Exception as error:
            self._fail_all(id_, tasks, describe(error))
            return
        entries = self.tick.each(tasks, lambda task: self._entry(task, group.slices[task.table], high, connection))
        self.tick.plan_and_apply(list(entries.values()))
        for task in tasks:
            self._settle_part(id_, task.table, entries.get(task.table))
        self._sweep(id_)

    def _sweep(self, id_: str) -> None:
        """Delete from the target, as one batch, what the tables that are read to their end no longer have."""
        snapshot = self._view(id_)
        entries = {}
        for part in snapshot.open_parts if snapshot is not None else ():
            if part.sweep and part.done == part.chunks and part.low is not None and snapshot is not None:
                task = self.tick.tasks[part.table]
                at = self.tick.applied(task)
                of = Slice(id_, snapshot.kind, 0, part.done - 1, part.low, sweep_before=part.first_batch)
                entries[part.table] = self.tick.entry(task, at, at, of)
        self.tick.plan_and_apply(list(entries.values()))
        for table, entry in entries.items():
            self._settle_part(id_, table, entry)

    def _settle_part(self, id_: str, table: TableId, entry: Entry | None) -> None:
        """Write down what became of a table's part of a batch."""
        if table in self.tick.errors or entry is None or entry.slice is None:
            self._fail(id_, table)
            return
        self._put(id_, published(self._part(id_, table), entry.slice, entry.batch, self.tick.last[table].reads))

    def _entry(self, task: TableTask, of: Slice, high: Lsn, connection: DriverConnection) -> Entry:
        after = self.tick.applied(task)
        upto = max(high, after)
        self._check_counts(task, of, LsnRange(of.low, upto), connection)
        return self.tick.entry(task, after, upto, of)

    def _check_counts(self, task: TableTask, of: Slice, window: LsnRange, connection: DriverConnection) -> None:
        """Refuse a read that the source counts otherwise, by more than its changes meanwhile explain."""
        missed = sum(abs(chunk.counted - chunk.read) for chunk in of.counts)
        if not missed:
            return
        changes = 0
        if not window.empty:
            [[_, count]] = connection.text_rows(count_changes([(task.capture, window)]).text)
            changes = int(count or 0)
        if missed > changes:
            raise SourceError(
                f"{task.table}: chunks {of.first} to {of.last} were read with {sum(c.read for c in of.counts)} rows, "
                f"the source counts {sum(c.counted for c in of.counts)}, and it had only {changes} changes meanwhile",
                "The next tick reads them again. If it stays so, the columns that chunks are cut by compare unlike "
                "they sort: name a surrogate key.",
            )

    def _await(self, mark: HighMark, closed: str) -> Lsn:
        timeout_s = self.tick.spec.settings.high_mark_timeout_s
        deadline = time.monotonic() + timeout_s
        while (high := mark.reached(closed)) is None:
            if time.monotonic() > deadline:
                raise CaptureStoppedError(
                    f"capture did not pass the snapshot's read within {timeout_s:.0f} s",
                    "Is the capture agent running? A longer wait is high.mark.timeout.s.",
                )
            time.sleep(POLL_S)
        return high

    def _fail_all(self, id_: str, tasks: Sequence[TableTask], error: str) -> None:
        for task in tasks:
            self.tick.errors[task.table] = error
            self._fail(id_, task.table)

    def _fail(self, id_: str, table: TableId) -> None:
        """Leave a table out for the rest of the tick; its part is tried again by the next, but not for ever."""
        self._out.add(table)
        part = self._part(id_, table)
        if part.open:
            self._put(id_, failed(part, self.tick.errors.get(table, ""), forgiven=True))

    def _is_wanted(self, id_: str, table: TableId) -> bool:
        snapshot = self._view(id_)
        part = snapshot.part(table) if snapshot is not None else None
        return part is not None and part.open

    def _view(self, id_: str) -> Snapshot | None:
        """Return a running snapshot without the tables that are out for this tick, None when it is not running."""
        snapshot = next((one for one in self.agenda.open if one.id == id_), None)
        if snapshot is None or snapshot.status != "running":
            return None
        out = self._out | self.tick.errors.keys()
        return replace(snapshot, parts=tuple(part for part in snapshot.parts if part.table not in out))

    def _part(self, id_: str, table: TableId) -> Part:
        snapshot = next(one for one in self.agenda.snapshots if one.id == id_)
        part = snapshot.part(table)
        assert part is not None
        return part

    def _put(self, id_: str, part: Part) -> None:
        with self._lock:
            snapshot = next(one for one in self.agenda.snapshots if one.id == id_)
            self.agenda = self.agenda.with_snapshot(snapshot.with_part(part))

    def _write(self) -> None:
        """Write down what has changed since it was last written, and tell of it."""
        with self._lock:
            self.agenda, ended = settle(self.agenda)
            now, known = self.agenda, self.known
            before = {snapshot.id: snapshot for snapshot in known.snapshots}
            changed = [snapshot for snapshot in now.snapshots if before.get(snapshot.id) != snapshot]
        for outcome in ended:
            self.outcomes[outcome.channel, outcome.id] = outcome
        at_ms = _now_ms()
        told = [one for snapshot in changed for one in notifications(before.get(snapshot.id), snapshot, at_ms)]
        old = known.outcomes or {}
        outcomes = [outcome for name, outcome in (now.outcomes or {}).items() if old.get(name) != outcome]
        self.journal.write(changed, outcomes, told, at_ms)
        self.told += told
        self.known = now

    def _say_progress(self, id_: str) -> None:
        """Print how far the snapshot is, and, once it can be told, how long the rest may take."""
        snapshot = next(one for one in self.agenda.snapshots if one.id == id_)
        shown = progress(snapshot)
        rows = sum(part.rows for part in shown.parts)
        at, done = self._paces.setdefault(id_, (time.monotonic(), shown.done))
        eta = ""
        if shown.chunks is not None and done < shown.done < shown.chunks:
            seconds = (time.monotonic() - at) / (shown.done - done) * (shown.chunks - shown.done)
            eta = f", about {seconds:.0f} s more"
        say(
            f"snapshot={id_} {shown.kind} {shown.status}: {shown.done} of {shown.chunks or '?'} chunks, "
            f"{rows} rows{eta}"
        )


def _now_ms() -> int:
    return int(time.time() * 1000)
