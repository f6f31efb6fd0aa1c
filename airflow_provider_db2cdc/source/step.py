"""One table's part of a tick while it is being decided."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.gap import is_pruned
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.mode import Snapshotter
from airflow_provider_db2cdc.cdc.offset import Offset
from airflow_provider_db2cdc.cdc.selection import matches
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema


@dataclass(frozen=True)
class Step:
    """One table's part of the tick while it is being decided: `rows` is None until counted.

    `due` says that Spark must look at the table even without a change: it is new, changes may have been lost, or its
    offset is so old that pruning at the source might overtake it.
    `batch` is the offset's, 0 where none is believed; `select` is what a snapshot reads instead of the whole table;
    `again` asks for a snapshot of a known table, behind its changes; `suspended` says that some of them are missing.
    `planned_at_ms` is when the offset's tick was planned, `mark` what was last found or asked for besides ticks.
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
    planned_at_ms: int = 0
    mark: str = ""

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
        return step if offset is None else replace(step, planned_at_ms=offset.planned_at_ms, mark=offset.mark)

    def _step(self, schema: TableSchema, capture: CaptureInstance, offset: Offset | None) -> Step:
        again = self._anew(schema.table)
        if offset is None or offset.restart or not offset.is_placed or (again and not self.mode.stream()):
            is_known = offset is not None and (offset.restart or offset.is_placed)
            snapshot = schema.table in self.filling or self._snapshots(schema.table) or is_known
            suspended = offset is not None and offset.suspended
            return Step(schema, capture, None, self.fence, True, is_known, snapshot, rows=0, suspended=suspended)
        if not self.mode.stream() and schema.table not in self.filling:
            at = (offset.lsn, offset.lsn)
            return Step(schema, capture, *at, rows=0, batch=offset.batch, suspended=offset.suspended)
        if self.fence < offset.lsn:
            at, suspended = (offset.lsn, self.fence), offset.suspended
            return Step(schema, capture, *at, due=True, rows=0, batch=offset.batch, suspended=suspended)
        is_old = not self.old_ms <= offset.planned_at_ms <= self.ahead_ms and offset.lsn < self.fence
        due = again or is_old or _may_have_lost(capture, offset)
        at = (offset.lsn, self.fence)
        return Step(schema, capture, *at, due=due, batch=offset.batch, again=again, suspended=offset.suspended)

    def _anew(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=True, in_progress=table in self.filling)

    def _snapshots(self, table: TableId) -> bool:
        return self._included(table) and self.mode.snapshot_data(known=False, in_progress=False)

    def _included(self, table: TableId) -> bool:
        return not self.include or any(matches(pattern, table) for pattern in self.include)


def _may_have_lost(capture: CaptureInstance, offset: Offset) -> bool:
    """Whether changes after the offset may be gone; Spark decides it with what the target proves."""
    pruned = is_pruned(offset.lsn, capture.floor)
    return pruned or offset.suspended or offset.capture not in ("", capture.identity.digest)
