"""A tick under way: batches of changes and of snapshots, table by table, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult, TableTask
from airflow_provider_db2cdc.cdc.ledger import Commit, Entry, History
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.part import Slice
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError, RegistrationError, TickLostError
from airflow_provider_db2cdc.spark.batch import apply_entry, begins, check_readable, rows_of, unmoved
from airflow_provider_db2cdc.spark.guard import check_there, guarded, is_looked_at, looked_at, mend
from airflow_provider_db2cdc.spark.jdbc import JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.ledger import Ledger
from airflow_provider_db2cdc.spark.merge import Compared, compare
from airflow_provider_db2cdc.spark.place import Place
from airflow_provider_db2cdc.spark.progress import describe, now_ms, say, telling_applied, trace
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.spark.standing import Standing
from airflow_provider_db2cdc.spark.tally import counted, is_uncounted
from airflow_provider_db2cdc.spark.target import Target
from airflow_provider_db2cdc.sql.asn import global_row

T = TypeVar("T")


@dataclass
class Tick:
    """A tick under way: where each table stands, and which failed."""

    spark: SparkSession
    spec: JobSpec
    place: Place
    ledger: Ledger
    source: JdbcSource
    history: History
    prepared: set[TableId] = field(default_factory=set)
    left: dict[TableId, tuple[int, ...]] = field(default_factory=dict)
    compared: dict[TableId, Compared] = field(default_factory=dict)
    slices: list[tuple[Slice, Commit]] = field(default_factory=list)
    starts: dict[TableId, Lsn] = field(default_factory=dict)
    errors: dict[TableId, str] = field(default_factory=dict)
    inactive: set[TableId] = field(default_factory=set)
    seconds: dict[TableId, float] = field(default_factory=dict)
    stands_still: bool = False

    def __post_init__(self) -> None:
        self.tasks: Mapping[TableId, TableTask] = {task.table: task for task in self.spec.tables}
        self.standing = Standing(self.spec, self.history, self._captured)
        self.batch = self.history.batch
        self.sessions = TableSessions(self.spark, self.place.owner.mark)
        self.errors.update({refusal.table: refusal.error for refusal in self.spec.refused if refusal.chosen})

    def redo(self) -> None:
        """Finish, as they were planned, the batches that a tick before this one did not."""
        pending = [entry for entry in self.history.pending if self._is_to_redo(entry)]
        for entry in self.history.pending:
            if entry not in pending:
                self._leave(entry)
        for number in sorted({entry.batch for entry in pending}):
            say(f"batch={number} redo: it was planned but not finished")
            self._redo({entry.table: entry for entry in pending if entry.batch == number})

    def pull(self) -> None:
        """Pull each known table's changes up to the frontier, as one batch."""
        is_new = self.standing.is_new
        found = self.each([task for task in self.open_tasks() if not is_new(task)], self.standing.after)
        entries = [
            self.entry(task, after, task.upto)
            for task in self.open_tasks()
            if not is_new(task) and (after := found.get(task.table)) is not None and after < task.upto
        ]
        self.plan_and_apply(self._counted(entries))

    def align(self) -> None:
        """Bring the tables that stand at the plan's fence to where snapshots have brought the foremost one."""
        last, is_new = self.standing.last, self.standing.is_new
        pulled = last if self.spec.settings.streaming else self.standing.done
        known = [task.table for task in self.open_tasks() if task.table in pulled and not is_new(task)]
        stands = {table: last[table].upto for table in known}
        front = max(stands.values(), default=self.spec.fence.lsn)
        entries = [
            self.entry(self.tasks[table], stand, front)
            for table, stand in stands.items()
            if self.spec.fence.lsn <= stand < front
        ]
        self.plan_and_apply(self._counted(entries))

    def publish(self, unfinished: Collection[TableId]) -> None:
        """Write the manifest when every table stands at one commit, and none is `unfinished`: still being filled."""
        last = self.standing.last
        stands = {last[table].upto for table in self.tasks if table in last}
        if self.errors or unfinished or not self.standing.done or len(stands) != 1:
            return
        self.ledger.publish(self.batch, stands.pop(), [last[table] for table in self.tasks], now_ms())

    def result(self) -> JobResult:
        """Return a line a table, refused ones included; a table of signals that was refused may have two."""
        refused = [one for one in self.spec.refused if not one.chosen]
        lines = [*map(self._line, (*self.tasks, *(one.table for one in self.spec.refused if one.chosen)))]
        lines += [TableResult(one.table, "failed", chosen=False, refused=True, error=one.error) for one in refused]
        planned_at_ms, ahead_ms = self.spec.planned_at_ms, self.spec.source_ahead_ms
        return JobResult(
            self.spec.pipeline, self.spec.run_id, tuple(lines), planned_at_ms=planned_at_ms, source_ahead_ms=ahead_ms
        )

    def open_tasks(self) -> list[TableTask]:
        """Return the tables that have not failed."""
        return [task for task in self.spec.tables if task.table not in self.errors]

    def is_held(self, table: TableId) -> bool:
        """Whether the state may hold rows of a table: also those of a batch that was not finished."""
        return table in self.standing.last or any(entry.table == table for entry in self.history.pending)

    def _is_to_redo(self, entry: Entry) -> bool:
        """Whether a pending batch is to be finished: a restart leaves what was planned before it, and only that."""
        task = self.tasks.get(entry.table)
        return task is not None and (not task.restart or entry.plan == self.spec.plan)

    def _leave(self, entry: Entry) -> None:
        """Never finish a batch; whoever is still about to do it, be it a run that hangs, is not to write it either."""
        self.left[entry.table] = (*self.left.get(entry.table, ()), entry.batch)

    def _redo(self, entries: Mapping[TableId, Entry]) -> None:
        def check(task: TableTask) -> bool:
            try:
                target = Target(self.sessions.of(task.table, task.rows), self.place, task.schema)
                entry = entries[task.table]
                check_readable(target, task, entry, self.standing.fence(entry.after))
            except GapError as error:
                self.standing.begin_anew(task, error)
                self._leave(entries[task.table])
                return False
            return True

        readable = self.each([task for task in self.open_tasks() if task.table in entries], check)
        self._apply([entries[table] for table, is_readable in readable.items() if is_readable])

    def entry(self, task: TableTask, after: Lsn, upto: Lsn, of: Slice | None = None) -> Entry:
        """Return the table's part of the next batch; with its change rows, if it is just what the plan has counted."""
        at = (self.spec.planned_at_ms, task.capture.identity)
        has_offset = task.believed is not None
        is_planned = not task.restart and (after, upto) == (task.believed, task.upto)
        rows = task.rows if is_planned else None
        own = (self.batch + 1, self.spec.run_id, self.spec.plan)
        return Entry(*own, task.table, after, upto, *at, of, has_offset, rows)

    def plan_and_apply(self, entries: Sequence[Entry]) -> None:
        """Do one batch; tables whose part fails are out for the rest of the tick, and redone by the next."""
        if entries:
            self.ledger.plan(entries)
            self.batch = entries[0].batch
            self._apply(entries)

    def _apply(self, entries: Sequence[Entry]) -> None:
        by_table = {entry.table: entry for entry in entries}
        tell = telling_applied(sum(not self._stands(entry) for entry in entries))
        applied = self.each(
            [self.tasks[table] for table in by_table], lambda task: self._commit(by_table[task.table], tell)
        )
        if not applied:
            return
        self.ledger.commit(list(applied.values()), now_ms())
        for table, commit in applied.items():
            self.starts.setdefault(table, by_table[table].after)
            self.standing.move(commit, by_table[table].plan == self.spec.plan)
            if commit.slice is not None:
                self.slices.append((commit.slice, commit))

    def _stands(self, entry: Entry) -> bool:
        """Whether a batch brings nothing of a table, so that just its offset moves."""
        return entry.rows == 0 and entry.table in self.standing.last and entry.slice is None

    def _commit(self, entry: Entry, tell: Callable[[TableId], None]) -> Commit:
        task = self.tasks[entry.table]
        last = self.standing.last.get(entry.table)
        if last is not None and self._stands(entry):
            if is_looked_at(entry.table, entry.batch):
                last = looked_at(Target(self.sessions.of(entry.table, 0), self.place, task.schema), last)
            return unmoved(entry, last)
        is_begun, compared = self.standing.is_new(task) or begins(entry), self.compared.pop(entry.table, None)
        self.prepare(task, is_begun)
        read = 0 if entry.slice is None else rows_of(entry.slice, 0 if last is None else last.rows)
        changes = task.rows if entry.rows is None else entry.rows
        is_redone = entry in self.history.pending
        target = Target(self.sessions.of(entry.table, changes + read), self.place, task.schema, is_redone)
        apply = partial(apply_entry, target, self.spec, self.source, task, entry, last, is_begun, compared)
        commit = guarded(target, None if is_begun else last, apply)
        tell(entry.table)
        return commit

    def prepare(self, task: TableTask, is_begun: bool) -> None:
        """Make a table's own tables ready, once a tick; `is_begun` says that it begins, or its beginning is redone."""
        if task.table not in self.prepared:
            target = Target(self.sessions.of(task.table, 0), self.place, task.schema)
            last = self.standing.last.get(task.table)
            if last is not None and not is_begun:
                check_there(target)
            target.prepare(is_begun)
            if last is not None and is_begun:
                mend(target, last, self.ledger, self.batch + 1)
            if (left := self.left.get(task.table)) is not None:
                target.fence(max(left))
            self.prepared.add(task.table)

    def compare(self, task: TableTask, of: Slice) -> None:
        """Compare a slice that covers a range with the state, for the batch that will publish it."""
        last = None if self.standing.is_new(task) else self.standing.last.get(task.table)
        rows = rows_of(of, 0 if last is None else last.rows)
        self.compared[task.table] = compare(
            Target(self.sessions.of(task.table, rows), self.place, task.schema), of, last
        )

    def each(
        self, tasks: Iterable[TableTask], step: Callable[[TableTask], T], at_once: int | None = None
    ) -> dict[TableId, T]:
        """Do a step for several tables, so many side by side; one whose step fails is out for the rest of the tick."""

        def attempt(task: TableTask) -> tuple[TableId, T] | None:
            started = time.monotonic()
            try:
                return task.table, step(task)
            except TickLostError:
                raise
            except Exception as error:
                self.fail(task.table, error)
                return None
            finally:
                taken = time.monotonic() - started
                self.seconds[task.table] = self.seconds.get(task.table, 0.0) + taken

        with ThreadPoolExecutor(at_once or max(1, self.spec.settings.parallel_tables)) as pool:
            return dict(pair for pair in pool.map(attempt, tasks) if pair is not None)

    def fail(self, table: TableId, error: Exception) -> None:
        """Leave a table out for the rest of the tick, and report it with this error.

        That its registration was not active is told by it: set active again it will look as it did before.
        """
        if isinstance(error, RegistrationError):
            self.inactive.add(table)
        self.errors[table] = describe(error)
        say(f"table={table} failed: {self.errors[table]}")
        trace(error)

    def _counted(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        if not any(is_uncounted(entry, self.tasks[entry.table]) for entry in entries):
            return entries
        with driver_connection(self.spark, self.source) as connection:
            return counted(self.spec, entries, connection, self.fail)

    def _captured(self) -> Lsn | None:
        """Ask the source how far capture is now."""
        with driver_connection(self.spark, self.source) as connection:
            synchpoint = connection.text_rows(global_row(self.spec.source.asn_schema).text)[0][0]
        return Lsn.parse(synchpoint) if synchpoint else None

    def _line(self, table: TableId) -> TableResult:
        error, task = self.errors.get(table, ""), self.tasks.get(table)
        untold = self.standing.untold(task) if task is not None else []
        commits = [*(commit for _, commit in untold), *self.standing.done.get(table, [])]
        last = self.standing.last.get(table)
        line = TableResult(
            table=table,
            status="failed" if error else ("applied" if commits else "unchanged"),
            after=untold[0][0].after if untold else self.starts.get(table),
            creates=sum(commit.creates for commit in commits),
            updates=sum(commit.updates for commit in commits),
            deletes=sum(commit.deletes for commit in commits),
            reads=sum(commit.reads for commit in commits),
            duration_s=round(self.seconds.get(table, 0.0), 3),
            restart=task is not None and task.restart,
            mark=task.mark if task is not None else "",
            inactive=table in self.inactive,
            recovered=table in self.standing.recovered,
            refused=task is None,
            waits=table in self.standing.waiting,
            error=error,
        )
        if last is None or table in self.standing.waiting or (task is not None and self.standing.is_new(task)):
            return line
        return replace(
            line, set_back=task is not None and self.standing.is_set_back(task),
            anew=task is not None and self.standing.has_begun(task),
            lsn=last.upto, batch=last.batch, rows=last.rows, commit_lsn=last.commit_lsn,
            commit_ts_ms=last.commit_ts_ms, state_version=last.state_version, capture=last.capture.digest,
        )  # fmt: skip
