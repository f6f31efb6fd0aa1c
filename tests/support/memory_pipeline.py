"""A pipeline in memory: the tick's own code on ports in memory, with plans and offsets as the real ones make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import ApplySettings, JobResult, JobSpec, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.offsets.commit import commit_tick, record_reported
from airflow_provider_db2cdc.tick.run import run_tick
from support.memory_journal import JournalRows, MemoryJournal
from support.memory_rows import folded_by_copies, folded_by_key
from support.memory_source import MemorySource, Row, lsn
from support.memory_tables import MemoryTables
from support.memory_target import MemoryBatchLog, MemoryTarget

SETTINGS = ApplySettings(parallel_tables=1, parallel_reads=1, snapshot_group_chunks=2)
ZERO = lsn(0)


@dataclass
class MemoryOffsets:
    """An offset store in memory."""

    offsets: dict[TableId, Offset] = field(default_factory=dict)
    kept: PipelineSummary = field(default_factory=PipelineSummary)

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset."""
        return self.offsets.get(table)

    def put(self, offset: Offset) -> None:
        """Keep an offset."""
        self.offsets[offset.table] = offset

    def summary(self) -> PipelineSummary:
        """Return the summary."""
        return self.kept

    def put_summary(self, summary: PipelineSummary) -> None:
        """Keep the summary."""
        self.kept = summary


@dataclass
class MemoryPipeline:
    """A source, a target and the offsets between them. Each plan has these `settings`."""

    source: MemorySource
    settings: ApplySettings = SETTINGS
    target: MemoryTarget = field(default_factory=MemoryTarget)
    journal: JournalRows = field(default_factory=JournalRows)
    offsets: MemoryOffsets = field(default_factory=MemoryOffsets)
    plans: count[int] = field(default_factory=lambda: count(1))

    def plan(self, signals: Sequence[Signal] = ()) -> JobSpec:
        """Return the plan of a tick up to the capture position."""
        at, summary = next(self.plans), self.offsets.summary()
        position = CapturePosition(lsn(self.source.captured), "", "2026-01-01T00:00:00.000000", 0.0)
        return JobSpec(
            "p", f"run-{at}", f"plan-{at:06d}", at, "/t", SourceSpec("jdbc:db2://h:1/D:", "D", "s", "ASN"), position,
            tuple(map(self._task, self.source.tables)), self.settings, signals=tuple(signals),
            reported_seq=summary.reported_seq, notified_seq=summary.notified_upto,
        )  # fmt: skip

    def run(self, spec: JobSpec) -> JobResult:
        """Do a planned tick, without its commit."""
        tables = MemoryTables(self.target, self.source)
        return run_tick(spec, MemoryBatchLog(self.target), self.source, tables, MemoryJournal(self.journal))

    def commit(self, result: JobResult) -> None:
        """Move the offsets to what a tick has applied."""
        _, problem = commit_tick(result, self.offsets)
        record_reported(result, self.offsets, is_notified=True)
        if problem is not None:
            raise problem

    def tick(self, *signals: Signal) -> JobResult:
        """Plan, do and commit one tick."""
        result = self.run(self.plan(signals))
        self.commit(result)
        return result

    def restart(self, table: TableId) -> None:
        """Request a restart of a table, as an operator does. A table whose first batch failed has no offset."""
        offset = self.offsets.get(table)
        if offset is None and table in self.offsets.summary().tables:
            offset = Offset(table, ZERO, 0)
        if offset is not None:
            self.offsets.put(replace(offset, restart=True))

    def state(self, table: TableId) -> dict[int, int]:
        """Return the current state of a table as keys and values."""
        return {row[0]: row[1] for row, _ in self.target.state.get(table, {}).values()}  # type: ignore[misc]

    def images(self, table: TableId) -> Counter[Row]:
        """Return how often the current state of a table has each row."""
        return Counter(row for row, _ in self.target.state.get(table, {}).values())

    def folded(self, table: TableId) -> dict[int, int]:
        """Return the keys and values that the change log of a table adds up to."""
        return {row[0]: row[1] for row in self.folded_images(table)}  # type: ignore[misc]

    def folded_images(self, table: TableId) -> Counter[Row]:
        """Return how often each row is in what the change log of a table adds up to."""
        fold = folded_by_key if self.source.schema(table).key else folded_by_copies
        return Counter(row for row, _ in fold(self.target.log.get(table, ())).values())

    def _task(self, table: TableId) -> TableTask:
        offset, upto = self.offsets.get(table), lsn(self.source.captured)
        stored = None if offset is None else offset.lsn
        rows = 0 if stored is None else len(self.source.captured_changes(table, LsnRange(stored, upto)))
        return TableTask(
            self.source.schema(table), self.source.registration(table), stored, upto, rows,
            "pull" if offset is None or not offset.restart else "restart",
            batch=0 if offset is None else offset.batch,
            revision="" if offset is None else offset.revision,
        )  # fmt: skip
