"""The snapshots of one tick: signals are heard, new tables begin, and what is open goes on.

What the signal table asks for meanwhile is heard between groups.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial

from airflow_provider_db2cdc.cdc.agenda import Agenda, act, begin_initial, refuse, settle
from airflow_provider_db2cdc.cdc.job import JobResult, TableTask
from airflow_provider_db2cdc.cdc.notification import notifications, skipped
from airflow_provider_db2cdc.cdc.part import Part, Slice, from_start, is_cut_alike, published, stopped
from airflow_provider_db2cdc.cdc.progress import progress
from airflow_provider_db2cdc.cdc.request import LogMessage, parse
from airflow_provider_db2cdc.cdc.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot import OPEN, Snapshot, without_progress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError, TickLostError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.book import Book
from airflow_provider_db2cdc.spark.groups import Groups
from airflow_provider_db2cdc.spark.jdbc import DriverConnection, driver_connection
from airflow_provider_db2cdc.spark.journal import Journal
from airflow_provider_db2cdc.spark.progress import describe, now_ms, say
from airflow_provider_db2cdc.spark.reader import Reader
from airflow_provider_db2cdc.spark.share import Share
from airflow_provider_db2cdc.spark.snapshot import check_part
from airflow_provider_db2cdc.spark.tick import Tick
from airflow_provider_db2cdc.sql.signal import given_signals

WRITE_EVERY_S = 30.0
GONE = "its table is no longer one of the pipeline's"
BEFORE_THE_FIRST = SignalError(
    "it was given before the pipeline's first tick", "Give it again, under another id, if it is meant."
)


class Snapshots:
    """The agenda of the pipeline in one tick; `known` is what stands in the journal, which was read, of it."""

    def __init__(self, tick: Tick, journal: Journal, known: Agenda) -> None:
        self.tick = tick
        self.journal = journal
        self.known = known
        self.is_first = not journal.seq
        self.book = Book(known)
        self.outcomes = {(outcome.channel, outcome.id): outcome for outcome in journal.news.outcomes}
        self.told = [*journal.news.notifications]
        self.skipped: list[TableId] = []
        self.noted, self.written, self.written_at = self.known, len(self.told), time.monotonic()
        self.deadline = time.monotonic() + tick.spec.settings.snapshot_budget_s
        self._begun: dict[str, tuple[int, float]] = {}
        self._left_s: dict[str, int | None] = {}
        self._planned: set[str] = set()
        self._applied = len(tick.slices)

    @property
    def unfinished(self) -> set[TableId]:
        """The tables whose initial snapshot is not over: what they hold is not whole."""
        return self.book.agenda.filling & self.tick.tasks.keys()

    def run(self) -> None:
        """Hear the signals, then work on one snapshot after the other until the tick's time for them is over."""
        self._catch_up()
        self._begin_new()
        if self.book.agenda.open or self.tick.spec.signals:
            self._work()
        self._write()
        self.tick.align()

    def _work(self) -> None:
        with ExitStack() as stack:
            connection, reader = (
                stack.enter_context(driver_connection(self.tick.spark, self.tick.source)) for _ in range(2)
            )
            self._hear(self.tick.spec.signals, connection)
            # Else a tick that died, or a first try of this one, may have been asked for something behind the plan.
            if self.journal.seq == self.tick.spec.told:
                self._planned = {snapshot.id for snapshot in self.book.agenda.open if snapshot.status == "running"}
            self._hear(self._in_table(connection), connection)
            worked: set[str] = set()
            while (snapshot := self._next(worked)) is not None:
                worked.add(snapshot.id)
                self._say_progress(snapshot.id)
                self._go_on(snapshot, connection, reader)

    def _go_on(self, snapshot: Snapshot, connection: DriverConnection, reader: DriverConnection) -> None:
        """Work on one snapshot; what fails as a whole fails its tables, and nothing else of the tick."""
        tables = self.book.agenda.held_by(snapshot.id)
        for table in tables & self.tick.errors.keys():
            self.book.fail(snapshot.id, table, self.tick.errors[table])
        try:
            low_mark = self.tick.spec.low_mark if snapshot.id in self._planned else ""
            share = Share(self.tick, self.book, snapshot.id, low_mark, tables)
            groups = Groups(share, Reader(share, reader, self.deadline), connection, self._write_down)
            groups.run(partial(self._after_group, snapshot.id, connection))
        except TickLostError:
            raise
        except Exception as error:
            left = tables & {*self.book.snapshot(snapshot.id).open_tables} & self.tick.tasks.keys()
            for table in left - self.tick.errors.keys():
                self.tick.fail(table, error)
                self.book.fail(snapshot.id, table, self.tick.errors[table])

    def tell(self, result: JobResult) -> JobResult:
        """Return the tick's result with what there is to tell of signals and snapshots."""
        now = [progress(one) for one in self.book.agenda.snapshots]
        shown = [replace(one, left_s=self._left_s.get(one.id) if one.status in OPEN else None) for one in now]
        return replace(
            result,
            signals=tuple(self.outcomes.values()),
            snapshots=tuple(shown),
            notifications=tuple(self.told),
            told=self.journal.seq,
        )

    @failpoint("after_group")
    def _after_group(self, id_: str, connection: DriverConnection) -> None:
        self._note()
        self._write_down()
        self._say_progress(id_)
        self._hear(self._in_table(connection), connection, begun=True)
        # Frames lie in cycles that Python seldom collects, and each holds its plan on the driver's heap.
        gc.collect()

    def _catch_up(self) -> None:
        """Take over what the last tick published and could not write down, and let go of tables that are gone.

        An initial snapshot waits for a table that was taken out of the pipeline: what it has of it is not whole.
        """
        self._renew()
        applied = [(of, commit) for of, commit in self.tick.history.slices.values()] + self.tick.slices
        for of, commit in applied:
            if any(snapshot.id == of.snapshot for snapshot in self.book.agenda.open):
                self.book.turn(of.snapshot, commit.table, partial(_caught_up, of=of, rows=commit.reads))
        for snapshot in self.book.agenda.open:
            for part in snapshot.open_parts if snapshot.kind != "initial" else ():
                if part.table not in self.tick.tasks and part.table not in self.tick.errors:
                    self.book.turn(snapshot.id, part.table, partial(stopped, reason=GONE))

    def _renew(self) -> None:
        """Begin anew with tables whose columns have changed since their chunks were named: nothing is mixed."""
        for snapshot in self.book.agenda.open:
            for part in snapshot.open_parts:
                task = self.tick.tasks.get(part.table)
                if task is not None and part.fingerprint not in ("", task.schema.fingerprint):
                    say(f"table={part.table} snapshot={snapshot.id}: its columns changed, it is read anew")
                    self.book.turn(snapshot.id, part.table, partial(from_start, is_held=self.tick.is_held(part.table)))

    def _begin_new(self) -> None:
        tick = self.tick
        fresh = [task for task in tick.open_tasks() if tick.standing.is_new(task)]
        unread = [task for task in fresh if not self._is_snapshotted(task)]
        tick.plan_and_apply([tick.entry(task, task.upto, task.upto) for task in unread])
        begun, at_ms = self.book.agenda.has_begun, tick.spec.planned_at_ms
        known = [task for task in tick.open_tasks() if task.again and task not in fresh]
        # What a first try of this plan has begun goes on.
        again = [task for task in known if not begun(task.table, at_ms)]
        asked = [self._initial(task) for task in (*fresh, *again) if self._is_snapshotted(task)]
        parts = [part for part in asked if not self.book.agenda.is_waiting(part)]
        if parts:
            self.book.change(lambda agenda: (begin_initial(agenda, parts, at_ms), None))
        self._tell_skipped()

    def _tell_skipped(self) -> None:
        """Tell once of each table that has begun without a snapshot, be it in a tick that died before it had."""
        untold = (self.tick.standing.last.keys() & self.tick.tasks.keys()) - self.journal.skipped
        self.skipped = sorted(table for table in untold if not self.book.agenda.has_begun(table))
        if self.skipped:
            self.told.append(skipped(self.skipped, self.tick.spec.run_id, now_ms()))

    def _is_snapshotted(self, task: TableTask) -> bool:
        """Whether a snapshot is taken of a table: also of one that new tables are not begun with, where it mends."""
        return task.snapshot or self.tick.standing.is_mended(task.table)

    def _initial(self, task: TableTask) -> Part:
        """Return a table's part of an initial snapshot, which sweeps wherever the state may hold rows already."""
        part = Part(task.table, select=task.select, left=self.tick.left.get(task.table, ()))
        return from_start(part, self.tick.is_held(task.table))

    @failpoint("read_signals")
    def _hear(self, signals: Sequence[Signal], connection: DriverConnection, begun: bool = False) -> None:
        """Act on signals that are not known yet, and remember the outcomes of all."""
        for signal in signals:
            known = self.book.agenda.known(signal)
            answer = known or self._act(signal, connection, begun)
            # A table brings all of its rows each time.
            if known is None or signal.channel != SOURCE_CHANNEL:
                called = f"channel={signal.channel} id={answer.id} type={signal.type}"
                say(f"signal: {called} {'came again: ' if known else ''}{answer.status} {answer.reason}")
                self._note()
            of_id = self.book.agenda.outcomes[signal.channel, signal.id]
            for one in (of_id, answer):
                self.outcomes.pop((one.channel, one.id), None)
                self.outcomes[one.channel, one.id] = one

    def _act(self, signal: Signal, connection: DriverConnection, begun: bool) -> SignalOutcome:
        if self._is_older(signal, begun):
            return self.book.change(lambda agenda: refuse(agenda, signal, BEFORE_THE_FIRST))
        refused = {one.table: one.error for one in self.tick.spec.refused if one.chosen}
        tables, check = {**refused, **dict.fromkeys(self.tick.tasks, "")}, partial(self._check, connection)
        outcome = self.book.change(lambda agenda: act(agenda, signal, tables, check, now_ms()))
        if outcome.status == "done":
            self._log(signal)
        return outcome

    def _is_older(self, signal: Signal, begun: bool) -> bool:
        """Whether a signal was given before the pipeline's first plan; of one in the signal table nobody knows when."""
        is_old = signal.at_ms is not None and signal.at_ms < self._first_planned_at_ms
        return self.is_first and not begun if signal.channel == SOURCE_CHANNEL else is_old

    @cached_property
    def _first_planned_at_ms(self) -> int:
        return self.tick.ledger.first_planned_at_ms() or self.tick.spec.planned_at_ms

    def _log(self, signal: Signal) -> None:
        request = parse(signal)
        if isinstance(request, LogMessage):
            offsets = ", ".join(f"{table} {commit.upto}" for table, commit in sorted(self.tick.standing.last.items()))
            say(f"signal {signal.id}: {request.message.replace('{}', offsets)}")

    def _check(self, connection: DriverConnection, part: Part) -> None:
        try:
            check_part(connection, self.tick.tasks[part.table].schema, part)
        except SignalError:
            raise
        except Exception as error:
            raise SignalError(
                f"{part.table} could not be checked at the source: {describe(error)}",
                "Give the signal again, under another id.",
            ) from error

    def _in_table(self, connection: DriverConnection) -> list[Signal]:
        table = self.tick.spec.signal_table
        if table is None or not table.heard:
            return []
        try:
            rows = connection.text_rows(given_signals(table))
        except Exception as error:
            say(f"signals: {table.table} cannot be read, the tick goes on without it: {describe(error)}")
            return []
        return [Signal(row[0] or "", row[1] or "", row[2] or "", SOURCE_CHANNEL) for row in rows]

    def _next(self, worked: set[str]) -> Snapshot | None:
        """Return what is to be worked on next; behind the deadline only while nothing has come of any so far.

        Nor is capture waited for once more there.
        """
        has_come = len(self.tick.slices) > self._applied
        if time.monotonic() > self.deadline and (has_come or self.tick.stands_still):
            return None
        return self.book.agenda.next_snapshot(self.tick.tasks, worked)

    def _write_down(self) -> None:
        """Write down what a crash must not make forgotten; mere progress, which the ledger tells too, now and then."""
        known = [*map(without_progress, self.known.snapshots)]
        is_progress = [*map(without_progress, self.book.agenda.snapshots)] == known
        is_heard = self.book.agenda.outcomes == self.known.outcomes
        if not (is_progress and is_heard) or time.monotonic() - self.written_at > WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        """Write down what has changed since it was last written, and what was noted meanwhile."""
        for outcome in self.book.change(settle):
            self.outcomes[outcome.channel, outcome.id] = outcome
        self._note()
        now, known = self.noted, self.known
        before = {snapshot.id: snapshot for snapshot in known.snapshots}
        changed = [snapshot for snapshot in now.snapshots if before.get(snapshot.id) != snapshot]
        outcomes = [outcome for name, outcome in now.outcomes.items() if known.outcomes.get(name) != outcome]
        self.journal.write(changed, outcomes, self.told[self.written :], self.skipped, now_ms())
        self.known, self.written, self.written_at = now, len(self.told), time.monotonic()
        self.skipped = []

    def _note(self) -> None:
        """Note for whoever listens what has become of the snapshots since this was last done."""
        before = {snapshot.id: snapshot for snapshot in self.noted.snapshots}
        self.noted, at_ms = self.book.agenda, now_ms()
        for snapshot in self.noted.snapshots:
            if before.get(snapshot.id) != snapshot:
                self.told += notifications(before.get(snapshot.id), snapshot, at_ms)

    def _say_progress(self, id_: str) -> None:
        """Print how far the snapshot is, and, once it can be told, how long the rest may take."""
        shown = progress(self.book.snapshot(id_))
        done, at = self._begun.setdefault(id_, (shown.done, time.monotonic()))
        paced = shown.at_pace(done, time.monotonic() - at)
        self._left_s[id_] = paced.left_s
        say(str(paced))


def _caught_up(part: Part, of: Slice, rows: int) -> Part:
    return published(part, of, rows) if is_cut_alike(part, of) else part
