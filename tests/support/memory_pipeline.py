"""A pipeline in memory: the tick's own code on ports in memory, with plans and offsets as the real ones make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import (
    ApplySettings,
    JobResult,
    JobSpec,
    SourceSpec,
    TableTask,
)
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import new_revision
from airflow_provider_db2cdc.cdc.offset.request import Restart, Restore
from airflow_provider_db2cdc.cdc.offset.request_change import capture_interrupted, source_restored
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.repair.repair import Findings, Repair, RepairOrder
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES, Snapshotter
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.offsets.commit import commit_tick, record_reported
from airflow_provider_db2cdc.source.planning.interval import up_to
from airflow_provider_db2cdc.source.planning.table_plan import TablePlanner
from airflow_provider_db2cdc.tick.run import run_tick
from support.memory_journal import JournalRows, MemoryJournal
from support.memory_offsets import MemoryOffsets
from support.memory_reader import PlannedSource
from support.memory_rows import folded_by_copies, folded_by_key
from support.memory_source import MemorySource, Row, lsn
from support.memory_tables import MemoryTables
from support.memory_target import MemoryBatchLog, MemoryTarget

SETTINGS = ApplySettings(parallel_tables=1, parallel_reads=1, snapshot_group_chunks=2)
ZERO = lsn(0)
STOPPED = "registered in state 'S'"
AHEAD_MS, MOST_TICKS = 1_000_000, 40


@dataclass
class MemoryPipeline:
    """A source, a target and the offsets between them. Each plan has these `settings` and this `mode`.

    `tables` are the source's tables that the pipeline replicates, by default all.
    """

    source: MemorySource
    settings: ApplySettings = SETTINGS
    mode: Snapshotter = MODES["initial"]
    tables: Sequence[TableId] = ()
    target: MemoryTarget = field(default_factory=MemoryTarget)
    journal: JournalRows = field(default_factory=JournalRows)
    offsets: MemoryOffsets = field(default_factory=MemoryOffsets)
    plans: count[int] = field(default_factory=lambda: count(1))

    def plan(self, signals: Sequence[Signal] = (), end: int | None = None) -> JobSpec:
        """Return the plan of a tick up to the capture position. It rejects inactive registrations.

        `end` is the last commit of its data interval, if `end_at` is `interval`. Capture must have passed it.
        """
        at, chosen = next(self.plans), self.tables or self.source.tables
        position = CapturePosition(lsn(self.source.captured), "", "2026-01-01T00:00:00.000000", 0.0)
        seen = self.offsets.put_requests(capture_interrupted(self.source.inactive, new_revision()))
        summary = seen.summary()
        rejected = [RejectedTable(table, STOPPED) for table in chosen if table in self.source.inactive]
        pending = [*signals, *summary.unhandled([*self.source.signals])]
        interval = None if end is None else DataInterval(f"2026-01-01T00:00:00.{end:06d}+00:00")
        last = self._interval_end(end, chosen, seen)
        tasks = [self._task(table, last, seen) for table in chosen if table not in self.source.inactive]
        return JobSpec(
            "p", f"run-{at}", f"plan-{at:06d}", at, "/t", SourceSpec("jdbc:db2://h:1/D:", "D", "s", "ASN"), position,
            tuple(tasks), self._settings(), tuple(rejected), tuple(pending), planned_clock=str(self.source.commits),
            reported_seq=summary.reported_seq, notified_seq=summary.notified_upto, interval=interval,
            interval_end=last, newest_batch=summary.newest_batch,
        )  # fmt: skip

    def plan_repair(self, repair: Repair, *tables: TableId, is_dry_run: bool = False) -> JobSpec:
        """Return the plan of a repair of some tables, by default of all."""
        spec = self.plan()
        tasks = tuple(replace(task, action="pull") for task in spec.tables if not tables or task.table in tables)
        known = tuple(task for task in tasks if not self._is_restarted(task.table))
        return replace(spec, tables=known, signals=(), repair=RepairOrder(repair, is_dry_run))

    def repair(self, repair: Repair, *tables: TableId, is_dry_run: bool = False) -> dict[TableId, Findings]:
        """Plan and do a repair. Return what it found of each table. No table may fail."""
        result = self.run(self.plan_repair(repair, *tables, is_dry_run=is_dry_run))
        assert not result.failed, result.failed
        return {line.table: line.repair for line in result.tables if line.repair is not None}

    def _is_restarted(self, table: TableId) -> bool:
        offset = self.offsets.get(table)
        return offset is not None and offset.restart

    def run(self, spec: JobSpec) -> JobResult:
        """Do a planned tick, without its commit."""
        tables = MemoryTables(self.target, self.source)
        source = PlannedSource(self.source, spec.tables)
        return run_tick(spec, MemoryBatchLog(self.target), source, tables, MemoryJournal(self.journal))

    def commit(self, result: JobResult) -> None:
        """Move the offsets to what a tick has applied."""
        _, problem = commit_tick(result, self.offsets)
        record_reported(result, self.offsets, is_notified=True)
        if problem is not None:
            raise problem

    def tick(self, *signals: Signal, end: int | None = None) -> JobResult:
        """Plan, do and commit one tick."""
        result = self.run(self.plan(signals, end))
        self.commit(result)
        return result

    def passed(self, *signals: Signal, end: int | None = None) -> JobResult:
        """Do a tick, and check that no table fails."""
        result = self.tick(*signals, end=end)
        assert not result.failed, result.failed
        return result

    def finish(self) -> JobResult:
        """Capture everything, and do ticks until no snapshot is open. Then the target must equal the source."""
        for _ in range(MOST_TICKS):
            self.source.capture()
            result = self.passed()
            if not any(snapshot.open_table_ids for snapshot in result.snapshots):
                break
        self.source.capture()
        result = self.passed()
        for table in self.tables or self.source.tables:
            assert self.state(table) == self.folded(table) == self.source.rows[table]
        return result

    def failure(self, table: TableId, *signals: Signal) -> str:
        """Do a tick in which this table fails and no other, and return the error."""
        [line] = self.tick(*signals).failed
        assert line.table == table
        return line.error

    def set(self, **settings: Any) -> None:
        """Change settings."""
        self.settings = replace(self.settings, **settings)

    def change(self, table: TableId, key: int, value: int | None) -> None:
        """Commit a value of a key, and have it captured."""
        self.source.commit({(table, key): value})
        self.source.capture()

    def restart(self, table: TableId) -> None:
        """Request a restart of a table, as an operator does. A table whose first batch failed has no offset."""
        if self.offsets.get(table) is not None or table in self.offsets.summary().tables:
            self.offsets.request(table, Restart(new_revision()))

    def restore(self, table: TableId) -> None:
        """Request a restore of a table's offset, as an operator does."""
        self.offsets.request(table, Restore(new_revision()))

    def restored(self, *tables: TableId) -> None:
        """Keep in offsets, by default in all, that the source was restored, as a plan does that finds it."""
        self.offsets.put_requests(source_restored(tables or self.source.tables, new_revision()))

    def reads(self, table: TableId) -> Counter[int]:
        """Return how often snapshots have published each key."""
        return Counter(
            event.key[0]  # type: ignore[index]
            for _, step, event in self.target.log.get(table, ())
            if step == "reads"
        )

    def state(self, table: TableId) -> dict[int, int]:
        """Return the current state of a table as keys and values."""
        return {row[0]: row[1] for row, _ in self.target.state.get(table, {}).values()}  # type: ignore[misc]

    def images(self, table: TableId) -> Counter[Row]:
        """Return how often the current state of a table has each row."""
        return self.source.widened(table, Counter(row for row, _ in self.target.state.get(table, {}).values()))

    def folded(self, table: TableId) -> dict[int, int]:
        """Return the keys and values that the change log of a table adds up to."""
        return {row[0]: row[1] for row in self.folded_images(table)}  # type: ignore[misc]

    def folded_images(self, table: TableId) -> Counter[Row]:
        """Return how often each row is in what the change log of a table adds up to."""
        fold = folded_by_key if self.source.schema(table).key else folded_by_copies
        images = Counter(row for row, _ in fold(self.target.log.get(table, ())).values())
        return self.source.widened(table, images)

    def _settings(self) -> ApplySettings:
        on_gap, recovers, streams = (
            self.mode.snapshot_on_gap(),
            self.mode.recover_offset(),
            self.mode.stream(),
        )
        return replace(self.settings, snapshot_on_gap=on_gap, recover_offsets=recovers, streaming=streams)

    def _interval_end(self, end: int | None, tables: Sequence[TableId], seen: PipelineOffsets) -> Lsn | None:
        """Return the last commit of an interval after the least offset, None if there is none."""
        offsets = [offset.lsn for table in tables if (offset := seen.get(table)) is not None]
        last = None if end is None else lsn(min(end, self.source.captured))
        return None if last is None or last <= min(offsets, default=ZERO) else last

    def _task(self, table: TableId, last: Lsn | None, seen: PipelineOffsets) -> TableTask:
        filling, upto = seen.summary().initially_loading, lsn(self.source.captured)
        planner = TablePlanner(self.mode, (), upto, filling, old_ms=0, ahead_ms=AHEAD_MS)
        plan = planner.plan(self.source.schema(table), self.source.registration(table), seen.get(table))
        plan = up_to(plan, last) if self.settings.end_at == "interval" else plan
        rows = 0 if plan.span is None else len(self.source.captured_changes(table, plan.span))
        return TableTask(
            plan.schema, plan.capture, plan.stored_lsn, plan.upto, rows, plan.action, plan.select, plan.batch,
            plan.capture_interrupted, plan.revision, plan.source_restored,
        )  # fmt: skip


def filled(*tables: TableId, rows: int = 9, **settings: Any) -> MemoryPipeline:
    """Return a pipeline whose tables have the keys from 0 on with the value 0, all captured."""
    source = MemorySource(tables)
    source.commit({(table, key): 0 for table in tables for key in range(rows)})
    source.capture()
    return MemoryPipeline(source, replace(SETTINGS, **settings))
