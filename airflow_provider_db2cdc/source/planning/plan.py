"""The plan of a tick: up to which LSN it reads each table. A plan is made once, and then only carried out.

If one table has work, the plan has all tables, so that all stop at one frontier. A table that cannot continue becomes a
rejected table of the plan. The plan stores that a registration was inactive, or that the source was restored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from airflow_provider_db2cdc.cdc.capture.gap import not_registered_error
from airflow_provider_db2cdc.cdc.capture.interval import CapturedTime, DataInterval
from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition, CaptureRegistration, reinit_call
from airflow_provider_db2cdc.cdc.job import JobSpec, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.offset.offset import CLOCKS_DIFFER_MS
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets, RequestStore
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.selection.select_override import selects_of
from airflow_provider_db2cdc.cdc.selection.unmatched import refuse
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import CaptureStoppedError, ConfigurationError
from airflow_provider_db2cdc.source.catalog import CaptureState, read_capture, read_capture_position, read_schemas
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.lists import find_unmatched, warn_of
from airflow_provider_db2cdc.source.planning.findings import keep_inactive, keep_restored
from airflow_provider_db2cdc.source.planning.interval import RunEnd, ended, idle_reason
from airflow_provider_db2cdc.source.planning.range_limit import counted
from airflow_provider_db2cdc.source.planning.rejected_tables import each, report_idle
from airflow_provider_db2cdc.source.planning.signals import new_table_signals, plan_signal_table
from airflow_provider_db2cdc.source.planning.source_rows import with_source_rows
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan, TablePlanner
from airflow_provider_db2cdc.source.preflight.table_requirements import require
from airflow_provider_db2cdc.source.source_clock import read_source_clock
from airflow_provider_db2cdc.source.trace import newest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TickRun:
    """The run that plans a tick: its id, and its time in epoch milliseconds.

    Its `signals` came by channels other than the signal table. `interval` is its data interval, if its changes end
    there.
    """

    id: str
    at_ms: int
    signals: Sequence[Signal] = ()
    interval: DataInterval | None = None


@dataclass(frozen=True)
class IdleTick:
    """A tick without work, and why it has none."""

    reason: str


def plan_tick(source: Source, config: PipelineConfig, offsets: RequestStore, run: TickRun) -> JobSpec | None:
    """Plan a tick and return its spec, or None if there is nothing to do. See `plan_or_reason`."""
    planned = plan_or_reason(source, config, offsets, run)
    return planned if isinstance(planned, JobSpec) else None


def plan_or_reason(source: Source, config: PipelineConfig, offsets: RequestStore, run: TickRun) -> JobSpec | IdleTick:
    """Plan a tick and return its spec, or why there is nothing to do.

    Without any work, offsets that stood still for `offsets_max_age_s` move up to the capture position. Otherwise
    retention pruning would overtake them and look like lost changes. A plan without work costs eight statements, two
    more with a signal table, and some for each further 100 tables. A retry plans again.

    :raises CaptureStoppedError: when the agent never ran, or has not moved for `capture_stale_after_s`.
    :raises CaptureBehindError: when capture has not passed the end of the run's interval. A later plan may succeed.
    :raises TickFailedError: when tables are rejected and there is no other work. It lists the tables.
    :raises ConfigurationError: when a property names a missing table, no table is chosen, or the login is wrong.
    :raises SourceError: when Db2 cannot be reached or read.
    """
    captured = read_capture(source, config.asn_schema)
    summary = (seen := keep_inactive(captured, config, offsets)).summary()
    chosen = [captured.registrations[table] for table in config.selection.tables(captured.registrations)]
    schemas = read_schemas(source, chosen, config.selection)
    check_lists(source, config, captured, schemas)
    check_moving(captured.position, config)
    clock = read_source_clock(source, config.asn_schema, config.time_zone, captured.position, summary.source_clock)
    end = RunEnd(run.interval, CapturedTime(captured.position, clock))
    end.check(config)
    selects = selects_of(config.snapshot_overrides, schemas.keys())
    rejected = _unregistered(captured, config, summary)
    planner = _planner(config, captured, summary, run.at_ms)
    uncounted = each(chosen, partial(_begin, config, planner, schemas, seen), rejected)
    applied = newest((plan.applied for plan in uncounted), captured.position.lsn, clock)
    plans = counted(source, uncounted, rejected, config.asn_schema, applied)
    plans = keep_restored(uncounted, plans, captured, (offsets, seen))
    plans, lsn = ended(source, config, end, plans, rejected)
    signal_table = plan_signal_table(source, config, captured, rejected)
    pending = [*run.signals, *summary.unhandled(new_table_signals(source, signal_table, rejected))]
    if not (pending or _has_work(plans, summary) or summary.has_snapshot_work(schemas.keys())):
        report_idle(offsets, summary, rejected)
        return IdleTick(idle_reason(config, end, lsn, plans))
    plans = with_source_rows(source, [replace(plan, select=selects.get(plan.table, "")) for plan in plans])
    _warn_of_unread(plans, config.asn_schema)
    spec = after_last_tick(seen, new_spec(source, config, run, captured.position, plans))
    spec = replace(spec, interval=run.interval, interval_end=lsn, rejected=tuple(rejected), source_clock=clock)
    return replace(spec, signals=tuple(pending), signal_table=signal_table)


def after_last_tick(offsets: KnownOffsets, spec: JobSpec) -> JobSpec:
    """Return the spec with a time and batches after the last tick's.

    A result is ordered among the ticks by that time, even if a clock was set back.
    """
    summary = offsets.summary()
    later_ms = max(spec.planned_at_ms, summary.planned_at_ms + 1, summary.signals_in_flight_at_ms + 1)
    spec = replace(spec, planned_at_ms=later_ms, newest_batch=summary.newest_batch)
    return replace(spec, reported_seq=summary.reported_seq, notified_seq=summary.notified_upto)


def _low_mark(now: CapturePosition) -> str:
    """Return the source's clock as SQL text. It is empty if the clock was set back, so that capture seems ahead."""
    return "" if now.age_s < 0 else now.source_time.replace("T", " ")


def _begin(
    config: PipelineConfig,
    planner: TablePlanner,
    schemas: Mapping[TableId, TableSchema],
    offsets: PipelineOffsets,
    capture: CaptureRegistration,
) -> TablePlan:
    require(capture, schemas[capture.table], config)
    return planner.plan(schemas[capture.table], capture, offsets.get(capture.table))


def _planner(config: PipelineConfig, captured: CaptureState, summary: PipelineSummary, at_ms: int) -> TablePlanner:
    return TablePlanner(
        config.snapshotter,
        config.snapshot_include,
        captured.position.lsn,
        summary.initially_loading,
        old_ms=at_ms - int(config.offsets_max_age_s * 1000),
        ahead_ms=at_ms + CLOCKS_DIFFER_MS,
    )


def check_lists(
    source: Source, config: PipelineConfig, captured: CaptureState, schemas: Mapping[TableId, TableSchema]
) -> None:
    """Check that the lists choose tables, and warn of entries that match nothing.

    :raises ConfigurationError: they choose none, or an excluded column is not there.
    """
    unmatched = find_unmatched(source, config, captured.registrations, schemas)
    warn_of(unmatched)
    refuse(unmatched)
    if not schemas:
        raise nothing_chosen(config.asn_schema)


def nothing_chosen(asn_schema: str) -> ConfigurationError:
    """Return the error of a pipeline without a table. Without an error each of its ticks would look idle."""
    return ConfigurationError(
        f"no table that is registered in schema {asn_schema} is chosen",
        f"Register tables for capture ({asn_schema}.ADDTABLE, then {reinit_call(asn_schema)}), or relax the include "
        "and exclude lists.",
    )


def check_moving(position: CapturePosition, config: PipelineConfig) -> None:
    """Check that the capture agent moves. While it stands still, the pipeline would look idle and healthy.

    :raises CaptureStoppedError: when SYNCHTIME is older than `capture_stale_after_s`.
    """
    if position.age_s > config.capture_stale_after_s:
        raise CaptureStoppedError(
            f"the capture agent of schema {config.asn_schema} stands still: SYNCHTIME is {position.synchtime}, "
            f"{position.age_s:.0f} s behind the source's clock {position.source_time} "
            f"(allowed are {config.capture_stale_after_s:.0f} s)",
            f"Start it (asncap capture_schema={config.asn_schema}); see its log and {config.asn_schema}.IBMSNAP_CAPMON "
            "and IBMSNAP_CAPTRACE for why it stopped. A longer allowance is capture.stale.after.s.",
        )


def _has_work(plans: Sequence[TablePlan], summary: PipelineSummary) -> bool:
    """Whether Spark has work: a table is due or has changes, or signals are in flight.

    An empty summary does not say what is open, so Spark must look at the tables then too.
    """
    is_unknown = bool(plans) and not summary.tables
    return is_unknown or bool(summary.signals_in_flight_at_ms) or any(plan.has_work for plan in plans)


def _warn_of_unread(plans: Sequence[TablePlan], asn_schema: str) -> None:
    """Warn of tables that begin although the agent may not have read their registrations.

    Nothing else reports that. The agent reads registrations when it starts and when it is reinitialised. Changes
    between a snapshot and that moment are lost.
    """
    unread = [str(plan.table) for plan in plans if not (plan.is_known or plan.capture.has_captured)]
    if unread:
        log.warning(
            "begun: the capture agent has shown no change yet of %s. That is well if none was changed since it was "
            "registered. If the agent was not started or reinitialised since then, it captures nothing of them: reinit "
            "it (%s), then have them snapshotted again (`db2cdc offset restart`).",
            shortened(unread),
            reinit_call(asn_schema),
        )


def gone_tables(captured: CaptureState, config: PipelineConfig, summary: PipelineSummary) -> list[TableId]:
    """Return the tables of the last tick that the lists still choose, but that are no longer registered."""
    return [
        table for table in summary.tables if table not in captured.registrations and config.selection.chooses(table)
    ]


def _unregistered(captured: CaptureState, config: PipelineConfig, summary: PipelineSummary) -> list[RejectedTable]:
    """Return, as rejected, the tables that are no longer registered."""
    gone = gone_tables(captured, config, summary)
    rejected = [RejectedTable(table, str(not_registered_error(table, config.asn_schema))) for table in gone]
    for rejection in rejected:
        log.warning("rejected: table=%s error=%s", rejection.table, rejection.error)
    return rejected


def new_spec(
    source: Source, config: PipelineConfig, run: TickRun, position: CapturePosition, plans: Sequence[TablePlan]
) -> JobSpec:
    """Return the spec of a run with these table plans."""
    for plan in plans:
        log.info("planned: table=%s range=(%s, %s] rows=%s", plan.table, plan.stored_lsn, plan.upto, plan.rows)
    known_ms = max((plan.planned_at_ms for plan in plans), default=0)
    return JobSpec(
        pipeline=config.pipeline,
        run_id=run.id,
        plan_id=f"{run.at_ms:015d}-{uuid4().hex[:12]}",
        planned_at_ms=max(run.at_ms, known_ms + 1),
        target=config.target,
        source=SourceSpec(source.jdbc_url, source.database, config.server_name, config.asn_schema),
        capture_position=position,
        tables=tuple(map(_task, plans)),
        settings=config.settings,
        planned_clock=_low_mark(read_capture_position(source, config.asn_schema)),
    )


def _task(plan: TablePlan) -> TableTask:
    return TableTask(
        plan.schema, plan.capture, plan.stored_lsn, plan.upto, plan.rows or 0, plan.action, plan.select,
        plan.batch, plan.capture_interrupted, plan.revision, plan.source_restored, plan.source_rows,
    )  # fmt: skip
