"""One table's part of a tick while it is being decided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.mode import Snapshotter
from airflow_provider_db2cdc.cdc.offset import Offset
from airflow_provider_db2cdc.cdc.selection import matches
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.cdc.verdict import judge
from airflow_provider_db2cdc.source.trace import Applied, applied_of


@dataclass(frozen=True)
class Step:
    """One table's part of the tick while it is being decided: `rows` is None until counted.

    `due` says that Spark must look at the table even without a change: it is new, changes may have been lost, or its
    offset is so old that pruning at the source might overtake it.
    `batch` is the offset's, 0 where none is believed; `select` is what a snapshot reads instead of the whole table;
    `again` asks for a snapshot of a known table, behind its changes; `suspended` says that some of them are missing.
    `restored` says that the source has another history than the one that was applied, of which `applied` is the newest
    commit. `planned_at_ms` is when the offset's tick was planned, `mark` what was found or asked for besides ticks.
    """

    schema: TableSchema
    capture: CaptureInstance
    believed: Lsn | None
    upto: Lsn
    due: bool = False
    restart: bool = False
    snapshot: bool = True
    rows: int | None = None
    batch: int = 0
    select: str = ""
    again: bool = False
    suspended: bool = False
    restored: bool = False
    planned_at_ms: int = 0
    mark: str = ""
    applied: Applied | None = None

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.schema.table

    @property
    def span(self) -> LsnRange | None:
        """The commits to read; None for a table without an offset, and where capture stands before it."""
        return LsnRange(self.believed, self.upto) if self.believed and self.believed <= self.upto else None

    def ending(self, upto: Lsn) -> Step:
        """Return the step with this end, to be counted again if it is another one."""
        return self if upto == self.upto else replace(self, upto=upto, rows=None)


@dataclass(frozen=True)
class Beginning:
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

    def step(self, schema: TableSchema, capture: CaptureInstance, offset: Offset | None) -> Step:
        """Return the table's step, its rows yet to be counted where it has changes to pull."""
        step = self._step(schema, capture, offset)
        if offset is None:
            return step
        step = replace(step, planned_at_ms=offset.planned_at_ms, mark=offset.mark, suspended=offset.suspended)
        if step.believed is None:
            return step
        return replace(step, restored=offset.restored, applied=applied_of(capture, offset))

    def _step(self, schema: TableSchema, capture: CaptureInstance, offset: Offset | None) -> Step:
        again, streams = self._anew(schema.table), self.mode.stream()
        verdict = judge(capture, offset, self.fence, streams or schema.table in self.filling)
        if offset is None or verdict.kind == "begins" or (again and not streams):
            is_known = offset is not None and (offset.restart or offset.is_placed)
            snapshot = schema.table in self.filling or self._snapshots(schema.table) or is_known
            return Step(schema, capture, None, self.fence, True, is_known, snapshot, rows=0)
        if verdict.kind == "idle":
            return Step(schema, capture, offset.lsn, offset.lsn, rows=0, batch=offset.batch)
        if self.fence < offset.lsn:
            return Step(schema, capture, offset.lsn, self.fence, due=True, rows=0, batch=offset.batch)
        is_old = not self.old_ms <= offset.planned_at_ms <= self.ahead_ms and offset.lsn < self.fence
        # Spark decides with what the target proves.
        is_doubtful = verdict.error is not None or offset.lsn != offset.proven
        due = again or is_old or is_doubtful
        return Step(schema, capture, offset.lsn, self.fence, due=due, batch=offset.batch, again=again)

    def _anew(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=True, in_progress=table in self.filling)

    def _snapshots(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=False, in_progress=False)

    def _included(self, table: TableId) -> bool:
        return not self.include or any(matches(pattern, table) for pattern in self.include)
