"""One table's part of a tick while it is being decided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.verdict import judge
from airflow_provider_db2cdc.cdc.selection.tables import matches
from airflow_provider_db2cdc.cdc.snapshot.mode import Snapshotter
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.source.trace import AppliedCommit, applied_of


@dataclass(frozen=True)
class TablePlan:
    """One table's part of the tick while it is being decided: `rows` is None until counted.

    `is_due` says that Spark must look at the table even without a change: it is new, changes may have been lost, or its
    offset is so old that pruning at the source might overtake it. `batch` is the offset's, 0 where none is believed;
    `select` is what a snapshot reads instead of the whole table; `resnapshot` asks for a snapshot of a known table,
    behind its changes; `capture_interrupted` says that some of them are missing. `source_restored` says that the source
    has another history than the one that was applied, of which `applied` is the newest commit. `planned_at_ms` is when
    the offset's tick was planned, `revision` what was found or asked for besides ticks.
    """

    schema: TableSchema
    capture: CaptureRegistration
    stored_lsn: Lsn | None
    upto: Lsn
    is_due: bool = False
    restart: bool = False
    initial_snapshot: bool = True
    rows: int | None = None
    batch: int = 0
    select: str = ""
    resnapshot: bool = False
    capture_interrupted: bool = False
    source_restored: bool = False
    planned_at_ms: int = 0
    revision: str = ""
    applied: AppliedCommit | None = None

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.schema.table

    @property
    def span(self) -> LsnRange | None:
        """The commits to read; None for a table without an offset, and where capture stands before it."""
        return LsnRange(self.stored_lsn, self.upto) if self.stored_lsn and self.stored_lsn <= self.upto else None

    def ending(self, upto: Lsn) -> TablePlan:
        """Return the step with this end, to be counted again if it is another one."""
        return self if upto == self.upto else replace(self, upto=upto, rows=None)


@dataclass(frozen=True)
class TablePlanner:
    """How each table begins the tick: with its changes, a snapshot, or nothing.

    `filling` are the tables whose initial snapshot is under way; `include` limits which new tables begin with one.
    Offsets that were planned before `old_ms` are to move on, and those behind `ahead_ms`, which a wrong clock has set.
    """

    mode: Snapshotter
    include: tuple[str, ...]
    fence: Lsn
    filling: frozenset[TableId]
    old_ms: int
    ahead_ms: int

    def plan(self, schema: TableSchema, capture: CaptureRegistration, offset: Offset | None) -> TablePlan:
        """Return the table's step, its rows yet to be counted where it has changes to pull."""
        step = self._step(schema, capture, offset)
        if offset is None:
            return step
        step = replace(
            step,
            planned_at_ms=offset.planned_at_ms,
            revision=offset.revision,
            capture_interrupted=offset.capture_interrupted,
        )
        if step.stored_lsn is None:
            return step
        return replace(step, source_restored=offset.source_restored, applied=applied_of(capture, offset))

    def _step(self, schema: TableSchema, capture: CaptureRegistration, offset: Offset | None) -> TablePlan:
        again, streams = self._anew(schema.table), self.mode.stream()
        verdict = judge(capture, offset, self.fence, streams or schema.table in self.filling)
        if offset is None or verdict.kind == "begins" or (again and not streams):
            is_known = offset is not None and (offset.restart or offset.has_position)
            snapshot = schema.table in self.filling or self._snapshots(schema.table) or is_known
            return TablePlan(schema, capture, None, self.fence, True, is_known, snapshot, rows=0)
        if verdict.kind == "idle":
            return TablePlan(schema, capture, offset.lsn, offset.lsn, rows=0, batch=offset.batch)
        if self.fence < offset.lsn:
            return TablePlan(schema, capture, offset.lsn, self.fence, is_due=True, rows=0, batch=offset.batch)
        is_old = not self.old_ms <= offset.planned_at_ms <= self.ahead_ms and offset.lsn < self.fence
        # Spark decides with what the target proves.
        is_doubtful = verdict.error is not None or offset.lsn != offset.committed_lsn
        due = again or is_old or is_doubtful
        return TablePlan(schema, capture, offset.lsn, self.fence, is_due=due, batch=offset.batch, resnapshot=again)

    def _anew(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=True, in_progress=table in self.filling)

    def _snapshots(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=False, in_progress=False)

    def _included(self, table: TableId) -> bool:
        return not self.include or any(matches(pattern, table) for pattern in self.include)
