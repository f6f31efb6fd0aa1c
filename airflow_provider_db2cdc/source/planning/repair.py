"""The plan of a repair: a backfill of an interval, or a replay of change logs. No offset moves."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from airflow_provider_db2cdc.cdc.capture.gap import find_recorded_gap, gap_error
from airflow_provider_db2cdc.cdc.capture.interval import CapturedTime, DataInterval
from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, RepairOrder, Replay
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError, TickFailedError
from airflow_provider_db2cdc.source.catalog import read_capture, read_schemas
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.named_tables import named_tables
from airflow_provider_db2cdc.source.planning.plan import IdleTick, TickRun, after_last_tick, check_lists, new_spec
from airflow_provider_db2cdc.source.planning.range_limit import counted
from airflow_provider_db2cdc.source.planning.rejected_tables import each
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan
from airflow_provider_db2cdc.source.preflight.table_requirements import require
from airflow_provider_db2cdc.source.source_clock import read_source_clock
from airflow_provider_db2cdc.source.trace import applied_of, newest
from airflow_provider_db2cdc.sql.units_of_work import last_commits

log = logging.getLogger(__name__)

NOT_BEGUN = "no table has an offset yet, so nothing was carried that could be compared"


@dataclass(frozen=True)
class RepairRequest:
    """What is to be repaired: the tables by name (none: all), and their interval.

    Without an interval it is a replay. `id` is that of the run, and `at_ms` its time in epoch milliseconds.
    """

    id: str
    at_ms: int
    interval: DataInterval | None = None
    tables: Sequence[str] = ()
    is_dry_run: bool = False


def plan_repair(
    source: Source, config: PipelineConfig, offsets: KnownOffsets, request: RepairRequest
) -> JobSpec | IdleTick:
    """Plan a repair and return its spec, or why there is nothing to compare.

    The offsets are only read. An interval whose end is not captured yet is compared as far as it is applied.

    :raises ConfigurationError: when a named table is not one of the pipeline, or the interval ends before it begins.
    :raises TickFailedError: when no table can be compared. It lists the tables.
    :raises SourceError: when Db2 cannot be reached or read.
    """
    captured, summary = read_capture(source, config.asn_schema), offsets.summary()
    chosen = [captured.registrations[table] for table in config.selection.tables(captured.registrations)]
    schemas = read_schemas(source, chosen, config.selection)
    check_lists(source, config, captured, schemas)
    named = named_tables(request.tables, schemas, "repair")
    clock = read_source_clock(source, config.asn_schema, config.time_zone, captured.position, summary.source_clock)
    planning = _Planning(source, config, offsets, CapturedTime(captured.position, clock))
    if request.interval is not None and (reason := planning.future(request.interval)):
        return IdleTick(reason)
    plans = planning.tables([capture for capture in chosen if capture.table in (named or schemas)], schemas)
    if plans and all(plan.stored_lsn is None for plan in plans):
        return IdleTick(NOT_BEGUN)
    repair = Replay() if request.interval is None else planning.backfill(request.interval)
    if isinstance(repair, Backfill):
        plans = planning.counted(repair, plans)
    _check_any(plans, planning.rejected)
    run = TickRun(request.id, request.at_ms)
    spec = after_last_tick(offsets, new_spec(source, config, run, captured.position, plans))
    order, rejected = RepairOrder(repair, request.is_dry_run), tuple(planning.rejected)
    return replace(spec, rejected=rejected, source_clock=clock, repair=order)


@dataclass(frozen=True)
class _Planning:
    """What a plan reads: the source and the offsets. `time` is how far capture is. It adds to the `rejected` tables."""

    source: Source
    config: PipelineConfig
    offsets: KnownOffsets
    time: CapturedTime
    rejected: list[RejectedTable] = field(default_factory=list)

    def future(self, interval: DataInterval) -> str:
        """Return why nothing of an interval can be compared yet, or an empty text.

        :raises ConfigurationError: when the interval ends before it begins.
        """
        begin, end = _utc(interval.start), _utc(interval.end)
        if end <= begin:
            raise ConfigurationError(
                f"the interval ends at {interval.end}, and begins at {interval.start}",
                "Give it an end after its begin.",
            )
        captured = self.time.utc.replace(tzinfo=UTC).isoformat(timespec="seconds")
        if not self.time.has_passed(begin):
            return f"the interval begins at {interval.start}, and capture stands at {captured}: nothing to compare yet"
        if not self.time.has_passed(end):
            log.warning("capture stands at %s: the interval is compared as far as it is applied", captured)
        return ""

    def tables(
        self, captures: Sequence[CaptureRegistration], schemas: Mapping[TableId, TableSchema]
    ) -> list[TablePlan]:
        """Return the plans of the tables. They neither pull nor begin a table."""

        def plan(capture: CaptureRegistration) -> TablePlan:
            require(capture, schemas[capture.table], self.config)
            new = TablePlan(schemas[capture.table], capture, None, self.time.position.lsn, rows=0)
            return _known(new, self.offsets.get(capture.table))

        return each(captures, plan, self.rejected)

    def backfill(self, interval: DataInterval) -> Backfill:
        """Return the backfill of an interval, with the last captured commits at or before its ends."""
        begin, end = _utc(interval.start), _utc(interval.end)
        repair = Backfill(_ms(begin), _ms(end), self._last_commit(begin), self._last_commit(end))
        log.info("backfill of (%s, %s]: commits=(%s, %s]", interval.start, interval.end, repair.after, repair.upto)
        return repair

    def counted(self, repair: Backfill, plans: Sequence[TablePlan]) -> list[TablePlan]:
        """Return the table plans with the number of change rows of the interval.

        The same statement shows whether the source was restored since the last tick. Then the change rows do not belong
        to the change log, and the table is rejected.
        """
        applied = newest((plan.applied for plan in plans), self.time.position.lsn, self.time.clock)
        after, upto = repair.after or self._zero, repair.upto or self._zero
        intervals = [replace(plan, stored_lsn=after, upto=upto, rows=None) for plan in plans]
        found = counted(self.source, intervals, self.rejected, self.config.asn_schema, applied)
        by_table = {plan.table: plan for plan in found}
        return each(
            [plan for plan in plans if plan.table in by_table],
            lambda plan: _same_history(plan, by_table[plan.table]),
            self.rejected,
        )

    def _last_commit(self, moment: datetime) -> Lsn | None:
        captured = LsnRange(self._zero, self.time.position.lsn)
        [[commit, _]] = self.source.rows(last_commits(self.config.asn_schema, captured, self.time.clock, moment))
        return None if commit is None else Lsn(bytes(commit))

    @property
    def _zero(self) -> Lsn:
        return Lsn(bytes(len(self.time.position.lsn.raw)))


def _known(new: TablePlan, offset: Offset | None) -> TablePlan:
    """Return a table's plan with what its offset says.

    :raises OffsetError: when the next tick replaces the table.
    """
    if offset is None:
        return new
    if offset.restart:
        problem = f"{new.table}: its restart is requested, which replaces its state"
        raise OffsetError(problem, "Let a tick run first.")
    if not offset.has_position:
        return new
    return replace(
        new,
        stored_lsn=offset.lsn,
        batch=offset.batch,
        planned_at_ms=offset.planned_at_ms,
        revision=offset.revision,
        capture_interrupted=offset.capture_interrupted,
        source_restored=offset.source_restored,
        applied=applied_of(new.capture, offset),
    )


def _same_history(plan: TablePlan, found: TablePlan) -> TablePlan:
    """Return a table's plan with the rows that were found, if the source still has the history that was applied.

    :raises GapError: it has another one, or capture stands before the offset.
    """
    offset = plan.stored_lsn
    if offset is not None:
        is_restored = found.source_restored or plan.upto < offset
        if gap := find_recorded_gap(plan.table, offset, interrupted=False, restored=is_restored):
            raise gap_error(plan.table, gap)
    return replace(plan, rows=found.rows, capture=found.capture)


def _check_any(plans: Sequence[TablePlan], rejected: Sequence[RejectedTable]) -> None:
    if not plans:
        listed = "\n".join(f"- {rejection.table}: {rejection.error}" for rejection in rejected)
        raise TickFailedError(f"no table can be compared:\n{listed}")


def _utc(text: str) -> datetime:
    """Return a time in UTC without a zone, in whole milliseconds, as a backfill keeps it."""
    time = datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _ms(utc: datetime) -> int:
    return round(utc.replace(tzinfo=UTC).timestamp() * 1000)
