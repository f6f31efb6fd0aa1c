"""The job of one tick: what was left over, then the changes, then the snapshots of new tables."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.gap import find_gap
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult, TableTask
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset import reconcile
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TickLostError
from airflow_provider_db2cdc.spark.batch import apply_entry, check_readable, gap_error, stage_table
from airflow_provider_db2cdc.spark.jdbc import JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.ledger import Commit, Entry, History, Ledger
from airflow_provider_db2cdc.spark.progress import describe, say
from airflow_provider_db2cdc.spark.session import open_session, table_session
from airflow_provider_db2cdc.spark.target import Place

T = TypeVar("T")


def run(spec: JobSpec) -> JobResult:
    """Do one tick and say what Delta holds after it; a table that fails leaves the others committed.

    A retry of the same spec finds what the first try wrote and goes on behind it.

    :raises Db2CdcError: nothing could be done for any table (no target, no session, another tick's batch).
    """
    spark = open_session(f"db2cdc {spec.pipeline}")
    say(f"session: pipeline={spec.pipeline} tables={len(spec.tables)}")
    layout = Layout(spec.target)
    ledger = Ledger(spark, layout, spec.pipeline)
    place = Place(layout, ledger.prepare())
    tick = Tick(spark, spec, place, ledger, JdbcSource(spec.source), ledger.history())
    tick.redo()
    tick.pull()
    tick.snapshot()
    tick.publish()
    return tick.result()


@dataclass
class Tick:
    """A tick under way: where each table stands, and which failed."""

    spark: SparkSession
    spec: JobSpec
    place: Place
    ledger: Ledger
    source: JdbcSource
    history: History
    done: dict[TableId, list[Commit]] = field(default_factory=dict)
    starts: dict[TableId, Lsn] = field(default_factory=dict)
    errors: dict[TableId, str] = field(default_factory=dict)
    seconds: dict[TableId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tasks: Mapping[TableId, TableTask] = {task.table: task for task in self.spec.tables}
        self.last: dict[TableId, Commit] = dict(self.history.last)
        self.batch = self.history.batch
        self.errors.update({refusal.table: refusal.error for refusal in self.spec.refused})

    def redo(self) -> None:
        """Finish, as they were planned, the batches that a tick before this one did not."""
        restarted = {task.table for task in self.spec.tables if task.restart}
        pending = [entry for entry in self.history.pending if entry.table in self.tasks.keys() - restarted]
        for number in sorted({entry.batch for entry in pending}):
            say(f"batch={number} redo: it was planned but not finished")
            self._redo({entry.table: entry for entry in pending if entry.batch == number})

    def pull(self) -> None:
        """Pull each known table's changes up to the frontier, as one batch."""
        standing = self._each([task for task in self._open_tasks() if not self._is_new(task)], self._standing)
        entries = [
            self._entry(task, after)
            for task in self._open_tasks()
            if not self._is_new(task) and (after := standing.get(task.table)) is not None and after < task.upto
        ]
        self._plan_and_apply(entries)

    def snapshot(self) -> None:
        """Snapshot the tables that nothing is known of, all up to one high mark."""
        fresh = [task for task in self._open_tasks() if self._is_new(task)]
        self._plan_and_apply([self._entry(task, task.upto) for task in fresh if not task.snapshot])
        staged = self._each([task for task in fresh if task.snapshot], self._stage)
        if not staged:
            return
        mark = self._high_mark(staged)
        if mark is not None:
            tasks = [self.tasks[table] for table in staged]
            self._plan_and_apply(
                [replace(self._entry(task, task.upto), upto=mark, staging_version=staged[task.table]) for task in tasks]
            )

    def publish(self) -> None:
        """Write the manifest when every table of the pipeline stands at one commit."""
        stands = {self.last[table].upto for table in self.tasks if table in self.last}
        if self.errors or not self.done or len(stands) != 1:
            return
        self.ledger.publish(self.batch, stands.pop(), [self.last[table] for table in self.tasks], _now_ms())
        self.ledger.tidy(self.batch)

    def result(self) -> JobResult:
        """Return a line a table, refused ones included."""
        tables = [*self.tasks, *(refusal.table for refusal in self.spec.refused)]
        return JobResult(self.spec.pipeline, self.spec.run_id, tuple(self._line(table) for table in tables))

    def _open_tasks(self) -> list[TableTask]:
        return [task for task in self.spec.tables if task.table not in self.errors]

    def _redo(self, entries: Mapping[TableId, Entry]) -> None:
        def check(task: TableTask) -> None:
            check_readable(table_session(self.spark, 0), self.spec, self.place, task, entries[task.table])

        readable = self._each([task for task in self._open_tasks() if task.table in entries], check)
        self._apply([entries[table] for table in readable])

    def _is_new(self, task: TableTask) -> bool:
        """Whether the table begins with a snapshot: nothing is known of it, or a person asked for a restart."""
        return (task.restart and task.table not in self.done) or (task.table not in self.last and task.believed is None)

    def _standing(self, task: TableTask) -> Lsn | None:
        last = self.last.get(task.table)
        applied = self.history.applied.get(task.table, 0)
        after = reconcile(task.table, task.believed, last.upto if last else None, applied)
        if after is None or last is None:
            return None
        gap = find_gap(after, last.capture, task.capture.identity, task.capture.floor, self.spec.fence.lsn)
        if gap:
            raise gap_error(task.table, gap)
        return after

    def _stage(self, task: TableTask) -> int:
        session = table_session(self.spark, sys.maxsize)
        return stage_table(session, self.spec, self.place, self.source, task)

    def _high_mark(self, staged: Mapping[TableId, int]) -> Lsn | None:
        try:
            with driver_connection(self.spark, self.source) as connection:
                timeout_s = self.spec.settings.high_mark_timeout_s
                return connection.await_capture(self.spec.source.asn_schema, timeout_s)
        except Exception as error:
            self.errors.update(dict.fromkeys(staged, describe(error)))
            return None

    def _entry(self, task: TableTask, after: Lsn) -> Entry:
        spec = self.spec
        at = (spec.planned_at_ms, task.capture.identity)
        return Entry(self.batch + 1, spec.run_id, task.table, after, task.upto, *at)

    def _plan_and_apply(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.ledger.plan(entries)
            self.batch = entries[0].batch
            self._apply(entries)

    def _apply(self, entries: Sequence[Entry]) -> None:
        by_table = {entry.table: entry for entry in entries}
        commits = self._each([self.tasks[table] for table in by_table], lambda task: self._commit(by_table[task.table]))
        if commits:
            self.ledger.commit(list(commits.values()), _now_ms())
        for table, commit in commits.items():
            self.starts.setdefault(table, by_table[table].after)
            self.done.setdefault(table, []).append(commit)
            self.last[table] = commit

    def _commit(self, entry: Entry) -> Commit:
        task = self.tasks[entry.table]
        session = table_session(self.spark, sys.maxsize if entry.staging_version is not None else task.rows)
        return apply_entry(session, self.spec, self.place, self.source, task, entry, self.last.get(entry.table))

    def _each(self, tasks: Iterable[TableTask], step: Callable[[TableTask], T]) -> dict[TableId, T]:
        """Do a step for several tables side by side; a table whose step fails is out for the rest of the tick."""

        def attempt(task: TableTask) -> tuple[TableId, T] | None:
            started = time.monotonic()
            try:
                return task.table, step(task)
            except TickLostError:
                raise
            except Exception as error:
                self.errors[task.table] = describe(error)
                say(f"table={task.table} failed: {self.errors[task.table]}")
                _trace(error)
                return None
            finally:
                taken = time.monotonic() - started
                self.seconds[task.table] = self.seconds.get(task.table, 0.0) + taken

        with ThreadPoolExecutor(max(1, self.spec.settings.parallel_tables)) as pool:
            return dict(pair for pair in pool.map(attempt, tasks) if pair is not None)

    def _line(self, table: TableId) -> TableResult:
        commits, last = self.done.get(table, []), self.last.get(table)
        error = self.errors.get(table, "")
        line = TableResult(
            table=table,
            status="failed" if error else ("applied" if commits else "unchanged"),
            after=self.starts.get(table),
            creates=sum(commit.creates for commit in commits),
            updates=sum(commit.updates for commit in commits),
            deletes=sum(commit.deletes for commit in commits),
            reads=sum(commit.reads for commit in commits),
            duration_s=round(self.seconds.get(table, 0.0), 3),
            error=error,
        )
        if last is None:
            return line
        versions = (last.change_version, last.state_version)
        return replace(
            line, lsn=last.upto, batch=last.batch, rows=last.rows, commit_ts_ms=last.commit_ts_ms,
            change_version=versions[0], state_version=versions[1], capture=last.capture.digest,
        )  # fmt: skip


def _now_ms() -> int:
    return int(time.time() * 1000)


def _trace(error: Exception) -> None:
    """Print where an error came from: frames only, because its text may hold row values."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    say("  at " + " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames)))
