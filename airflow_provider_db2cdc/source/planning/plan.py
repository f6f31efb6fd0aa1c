"""The plan of a tick: which tables go how far, decided once and then only ever done as decided."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from airflow_provider_db2cdc.cdc.capture.gap import not_registered_error
from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition, CaptureRegistration, reinit_call
from airflow_provider_db2cdc.cdc.job import JobSpec, RejectedTable, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.offset.offset import (
    CLOCKS_DIFFER_MS,
    OffsetStore,
    record_capture_interrupted,
    record_source_restored,
)
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.select_override import selects_of
from airflow_provider_db2cdc.cdc.selection.unmatched import refuse
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import (
    CaptureStoppedError,
    ConfigurationError,
    OffsetError,
)
from airflow_provider_db2cdc.source.catalog import CaptureState, read_capture, read_capture_position, read_schemas
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.lists import find_unmatched, warn_of
from airflow_provider_db2cdc.source.planning.range_limit import bounded, counted
from airflow_provider_db2cdc.source.planning.rejected_tables import each, report_nothing
from airflow_provider_db2cdc.source.planning.signals import new_table_signals, plan_signal_table
from airflow_provider_db2cdc.source.planning.table_plan import TablePlan, TablePlanner
from airflow_provider_db2cdc.source.preflight.table_requirements import require
from airflow_provider_db2cdc.source.trace import newest

log = logging.getLogger(__name__)

Signals = Sequence[Signal]


def plan_tick(
    source: Source, config: PipelineConfig, offsets: OffsetStore, run_id: str, at_ms: int, signals: Signals = ()
) -> JobSpec | None:
    """Return what the tick has to do, None when there is nothing; offsets keep what was found missing meanwhile.

    With work for one table all tables go along, so that all stand at one frontier afterwards. A table that cannot go
    on becomes a refusal in the spec. Without any work, offsets that stood still for `offsets_max_age_s` are moved up to
    the fence: retention pruning would overtake them and look like lost changes. An idle plan costs eight statements
    (more a further hundred tables, two with a signal table). `signals` came by other channels than that table.

    :raises CaptureStoppedError: the agent never ran, or has not moved for `capture_stale_after_s`.
    :raises TickFailedError: there is nothing else to do, but tables are refused: it lists them.
    :raises ConfigurationError: a property names a table that is not there, no table is chosen, the login is wrong.
    :raises SourceError: Db2 cannot be reached or read.
    """
    captured = read_capture(source, config.asn_schema)
    _keep_inactive(captured, config, offsets)
    summary = offsets.summary()
    chosen = [captured.registrations[table] for table in config.selection.tables(captured.registrations)]
    schemas = read_schemas(source, chosen, config.selection)
    _check_lists(source, config, captured, schemas)
    check_moving(captured.position, config)
    selects = selects_of(config.snapshot_overrides, schemas.keys())
    refused = _unregistered(captured, config, summary)
    planner = _planner(config, captured, summary, at_ms)
    begun = each(chosen, partial(_begin, config, planner, schemas, offsets), refused)
    applied = newest((step.applied for step in begun), captured.position.lsn)
    steps = counted(source, begun, refused, config.asn_schema, applied)
    steps = _keep_restored(begun, steps, captured, offsets)
    table = plan_signal_table(source, config, captured, refused)
    asked = [*signals, *summary.unhandled(new_table_signals(source, table, refused))]
    if not (asked or _has_work(steps, summary) or summary.has_snapshot_work(schemas.keys())):
        report_nothing(refused)
        return None
    steps = bounded(source, steps, config.max_rows_per_batch, refused, config.asn_schema)
    steps = [replace(step, select=selects.get(step.table, "")) for step in steps]
    _tell_unread(steps, config.asn_schema)
    spec = _behind(summary, _spec(source, config, run_id, at_ms, captured.position, steps, refused))
    return replace(spec, signals=tuple(asked), signal_table=table)


def _behind(summary: PipelineSummary, spec: JobSpec) -> JobSpec:
    """Return the spec as one later than the last tick's, also where a clock was set back: by its time it is told."""
    later_ms = max(spec.planned_at_ms, summary.planned_at_ms + 1, summary.signals_in_flight_at_ms + 1)
    return replace(spec, planned_at_ms=later_ms, reported_seq=summary.reported_seq, notified_seq=summary.notified_upto)


def _low_mark(now: CapturePosition) -> str:
    """Return the source's clock as SQL has it; empty where it was set back, and capture seems to have passed it."""
    return "" if now.age_s < 0 else now.source_time.replace("T", " ")


def _begin(
    config: PipelineConfig,
    planner: TablePlanner,
    schemas: Mapping[TableId, TableSchema],
    offsets: OffsetStore,
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


def _check_lists(
    source: Source, config: PipelineConfig, captured: CaptureState, schemas: Mapping[TableId, TableSchema]
) -> None:
    unmatched = find_unmatched(source, config, captured.registrations, schemas)
    warn_of(unmatched)
    refuse(unmatched)
    if not schemas:
        raise nothing_chosen(config.asn_schema)


def nothing_chosen(asn_schema: str) -> ConfigurationError:
    """Return the error of a pipeline without a table: planned again and again it would look idle and healthy."""
    return ConfigurationError(
        f"no table that is registered in schema {asn_schema} is chosen",
        f"Register tables for capture ({asn_schema}.ADDTABLE, then {reinit_call(asn_schema)}), or relax the include "
        "and exclude lists.",
    )


def check_moving(fence: CapturePosition, config: PipelineConfig) -> None:
    """Refuse to plan behind a capture agent that stands still: an idle pipeline would look like a healthy one.

    :raises CaptureStoppedError: SYNCHTIME is older than `capture_stale_after_s`.
    """
    if fence.age_s > config.capture_stale_after_s:
        raise CaptureStoppedError(
            f"the capture agent of schema {config.asn_schema} stands still: SYNCHTIME is {fence.synchtime}, "
            f"{fence.age_s:.0f} s behind the source's clock {fence.source_time} "
            f"(allowed are {config.capture_stale_after_s:.0f} s)",
            f"Start it (asncap capture_schema={config.asn_schema}); see its log and {config.asn_schema}.IBMSNAP_CAPMON "
            "and IBMSNAP_CAPTRACE for why it stopped. A longer allowance is capture.stale.after.s.",
        )


def _has_work(steps: Sequence[TablePlan], summary: PipelineSummary) -> bool:
    """Whether Spark has to look at tables: all, where no summary says what is open; or signals are in flight."""
    is_unknown = bool(steps) and not summary.tables
    return is_unknown or bool(summary.signals_in_flight_at_ms) or any(step.is_due or step.rows for step in steps)


def _tell_unread(steps: Sequence[TablePlan], asn_schema: str) -> None:
    """Say which tables begin though the agent may not have read their registrations: nothing else tells of it.

    It reads them when it starts and when it is reinitialised. What changes between a snapshot and that is lost.
    """
    unread = [str(step.table) for step in steps if step.stored_lsn is None and not step.capture.has_captured]
    if unread:
        log.warning(
            "begun: the capture agent has shown no change yet of %s. That is well if none was changed since it was "
            "registered. If the agent was not started or reinitialised since then, it captures nothing of them: reinit "
            "it (%s), then have them snapshotted anew (`db2cdc offset restart`).",
            ", ".join(unread),
            reinit_call(asn_schema),
        )


def _keep_inactive(captured: CaptureState, config: PipelineConfig, offsets: OffsetStore) -> None:
    """Keep in the offsets of tables whose registration is not active that this was so; nothing tells it afterwards.

    Also of those that the lists do not choose now, and have an offset: they may again. Before the lists are checked:
    while one names a table that is not there no plan is made, and others' registrations may be set active again.
    """
    for table in (capture.table for capture in captured.registrations.values() if not capture.is_active):
        try:
            if config.selection.chooses(table) or offsets.get(table) is not None:
                record_capture_interrupted(offsets, table, captured.position.lsn)
        except OffsetError as error:
            log.warning("not kept that the registration of %s is not active: %s", table, error)


def _keep_restored(
    before: Sequence[TablePlan], steps: Sequence[TablePlan], captured: CaptureState, offsets: OffsetStore
) -> list[TablePlan]:
    """Keep in the offsets that the source was found restored, and return the steps with the marks of that.

    Of all registered tables, chosen or not: once the first one has begun anew, nothing tells it of the others.
    """
    known = {step.table for step in before if step.source_restored}
    if not any(step.source_restored and step.table not in known for step in steps):
        return list(steps)
    log.warning("the source was restored or capture reset: a commit that was applied is not in its log any more")
    marks: dict[TableId, str] = {}
    for table in captured.registrations:
        try:
            kept = record_source_restored(offsets, table)
            marks |= {} if kept is None else {table: kept.revision}
        except OffsetError as error:
            log.warning("not kept that the source of %s was restored: %s", table, error)
    return [replace(step, revision=marks.get(step.table, step.revision)) for step in steps]


def gone_tables(captured: CaptureState, config: PipelineConfig, summary: PipelineSummary) -> list[TableId]:
    """Return the tables of the last tick that the lists still choose and nobody captures any more."""
    return [
        table for table in summary.tables if table not in captured.registrations and config.selection.chooses(table)
    ]


def _unregistered(captured: CaptureState, config: PipelineConfig, summary: PipelineSummary) -> list[RejectedTable]:
    """Return, as refused, the tables that nobody captures any more."""
    gone = gone_tables(captured, config, summary)
    refused = [RejectedTable(table, str(not_registered_error(table, config.asn_schema))) for table in gone]
    for refusal in refused:
        log.warning("refused: table=%s error=%s", refusal.table, refusal.error)
    return refused


def _spec(
    source: Source,
    config: PipelineConfig,
    run_id: str,
    at_ms: int,
    fence: CapturePosition,
    steps: Sequence[TablePlan],
    refused: Sequence[RejectedTable],
) -> JobSpec:
    for step in steps:
        log.info("planned: table=%s range=(%s, %s] rows=%s", step.table, step.stored_lsn, step.upto, step.rows)
    known_ms = max((step.planned_at_ms for step in steps), default=0)
    return JobSpec(
        pipeline=config.pipeline,
        run_id=run_id,
        plan_id=f"{at_ms:015d}-{uuid4().hex[:12]}",
        planned_at_ms=max(at_ms, known_ms + 1),
        target=config.target,
        source=SourceSpec(source.jdbc_url, source.database, config.server_name, config.asn_schema),
        capture_position=fence,
        tables=tuple(map(_task, steps)),
        settings=config.settings,
        rejected=tuple(refused),
        planned_clock=_low_mark(read_capture_position(source, config.asn_schema)),
    )


def _task(step: TablePlan) -> TableTask:
    return TableTask(
        step.schema, step.capture, step.stored_lsn, step.upto, step.rows or 0, step.initial_snapshot, step.restart,
        step.select, step.batch, step.resnapshot, step.capture_interrupted, step.revision, step.source_restored,
    )  # fmt: skip
