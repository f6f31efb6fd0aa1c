"""The plan of one table in a tick."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.job import TableAction
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.verdict import judge
from airflow_provider_db2cdc.cdc.selection.tables import matches
from airflow_provider_db2cdc.cdc.snapshot.mode import Snapshotter
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.source.trace import AppliedCommit, applied_of


@dataclass(frozen=True)
class TablePlan:
    """The plan of one table in a tick.

    - `stored_lsn`: the offset that the tick continues from. None if it begins or restores the table.
    - `upto`: the LSN at which the tick ends.
    - `is_due`: Spark must look at the table even without a change. It is new, or changes may have been lost.
    - `is_old`: the offset is so old that pruning at the source might overtake it. It moves even without a change.
    - `rows`: the number of change rows. None until they are counted.
    - `batch`: the offset's batch. 0 if no offset is stored.
    - `select`: what a snapshot reads instead of the whole table.
    - `action`: what the tick does with the table.
    - `capture_interrupted`: some changes are missing, because the registration was inactive.
    - `source_restored`: the source has another history than the one that was applied.
    - `applied`: the newest applied commit.
    - `planned_at_ms`: when the offset's tick was planned.
    - `revision`: the offset's revision, which changes when a plan's finding or a request is stored in it.
    """

    schema: TableSchema
    capture: CaptureRegistration
    stored_lsn: Lsn | None
    upto: Lsn
    is_due: bool = False
    is_old: bool = False
    action: TableAction = "pull"
    rows: int | None = None
    batch: int = 0
    select: str = ""
    capture_interrupted: bool = False
    source_restored: bool = False
    planned_at_ms: int = 0
    revision: str = ""
    applied: AppliedCommit | None = None
    source_rows: int | None = None

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.schema.table

    @property
    def is_known(self) -> bool:
        """Whether the tick continues the table, from its offset or from what the target has committed."""
        return self.stored_lsn is not None or self.action == "restore"

    @property
    def span(self) -> LsnRange | None:
        """The commits to read. None if the table has no offset, or capture stands before the offset."""
        return LsnRange(self.stored_lsn, self.upto) if self.stored_lsn and self.stored_lsn <= self.upto else None

    @property
    def has_work(self) -> bool:
        """Whether the table by itself is a reason to start Spark."""
        moves = self.span is not None and not self.span.empty
        return self.is_due or bool(self.rows) or (self.is_old and moves)

    def ending(self, upto: Lsn) -> TablePlan:
        """Return the table plan with this end. If the end differs, its rows are to be counted again."""
        return self if upto == self.upto else replace(self, upto=upto, rows=None)


@dataclass(frozen=True)
class TablePlanner:
    """Decides how each table begins the tick: with its changes, a snapshot, or nothing.

    `filling` holds the tables whose initial snapshot is under way. `include` limits which new tables begin with one.
    `capture_lsn` is the capture position. An offset that was planned before `old_ms` moves even without a change. So
    does one that was planned after `ahead_ms`, because a wrong clock has set it.
    """

    mode: Snapshotter
    include: tuple[str, ...]
    capture_lsn: Lsn
    filling: frozenset[TableId]
    old_ms: int
    ahead_ms: int

    def plan(self, schema: TableSchema, capture: CaptureRegistration, offset: Offset | None) -> TablePlan:
        """Return the table's plan. If it may have changes to read, its rows are still to be counted."""
        plan = self._begin(schema, capture, offset)
        if offset is None:
            return plan
        plan = replace(
            plan,
            planned_at_ms=offset.planned_at_ms,
            revision=offset.revision,
            capture_interrupted=offset.capture_interrupted,
        )
        if not plan.is_known:
            return plan
        return replace(plan, source_restored=offset.source_restored, applied=applied_of(capture, offset))

    def _begin(self, schema: TableSchema, capture: CaptureRegistration, offset: Offset | None) -> TablePlan:
        again, streams = self._snapshots_again(schema.table), self.mode.stream()
        verdict = judge(capture, offset, self.capture_lsn, streams or schema.table in self.filling)
        if offset is None or verdict.kind == "begins" or (again and not streams and verdict.kind != "restored"):
            start = self._start(schema.table, offset)
            return TablePlan(schema, capture, None, self.capture_lsn, is_due=True, action=start, rows=0)
        if verdict.kind == "restored":
            return TablePlan(schema, capture, None, self.capture_lsn, is_due=True, action="restore", rows=0)
        if verdict.kind == "idle":
            return TablePlan(schema, capture, offset.lsn, offset.lsn, rows=0, batch=offset.batch)
        if self.capture_lsn < offset.lsn:
            return TablePlan(schema, capture, offset.lsn, self.capture_lsn, is_due=True, rows=0, batch=offset.batch)
        is_old = not self.old_ms <= offset.planned_at_ms <= self.ahead_ms
        # Spark decides, because it knows what is committed in the target.
        is_doubtful = verdict.error is not None or offset.lsn != offset.committed_lsn
        action: TableAction = "resnapshot" if again else "pull"
        return TablePlan(
            schema, capture, offset.lsn, self.capture_lsn, again or is_doubtful, is_old, action, batch=offset.batch
        )

    def _start(self, table: TableId, offset: Offset | None) -> TableAction:
        """Return how a table begins."""
        if offset is not None and (offset.restart or offset.has_position):
            return "restart"
        return "initial_snapshot" if table in self.filling or self._snapshots(table) else "start_without_snapshot"

    def _snapshots_again(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=True, in_progress=table in self.filling)

    def _snapshots(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=False, in_progress=False)

    def _included(self, table: TableId) -> bool:
        return not self.include or any(matches(pattern, table) for pattern in self.include)
