"""Preflight of the offsets: whether the next tick can continue from each, by the rule of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.offset.offset import Offset, command_hint, restart_hint
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.verdict import Verdict, judge
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.source.catalog import read_capture_position
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.preflight.check import Check, Level, failed
from airflow_provider_db2cdc.source.source_clock import read_source_clock
from airflow_provider_db2cdc.source.trace import applied_of, as_found, newest

NAME = "offset"


def check_offsets(
    source: Source, config: PipelineConfig, captures: Sequence[CaptureRegistration], offsets: KnownOffsets
) -> dict[TableId, list[Check]]:
    """Return the checks of each table's offset. An offset that cannot be read does not hide the others.

    :raises CaptureStoppedError: when the agent never ran.
    """
    kept: dict[TableId, Offset] = {}
    checks: dict[TableId, list[Check]] = {}
    for table in (capture.table for capture in captures):
        try:
            offset = offsets.get(table)
        except OffsetError as error:
            checks[table] = [failed(NAME, str(table), error)]
            continue
        kept |= {} if offset is None else {table: offset}
    try:
        summary = offsets.summary()
    except OffsetError as error:
        return {**checks, captures[0].table: [failed(NAME, str(captures[0].table), error)]} if captures else checks
    verdicts = read_verdicts(source, config, captures, kept, summary)
    judged = {table: [*_checks(table, verdict, kept.get(table), summary)] for table, verdict in verdicts.items()}
    return {**judged, **checks}


def read_verdicts(
    source: Source,
    config: PipelineConfig,
    captures: Sequence[CaptureRegistration],
    offsets: Mapping[TableId, Offset],
    summary: PipelineSummary,
) -> dict[TableId, Verdict]:
    """Return what the next tick does with each table.

    The offsets must have been read before the call, because it reads the capture position.

    :raises CaptureStoppedError: when the agent never ran.
    """
    capture_position = read_capture_position(source, config.asn_schema)
    position = capture_position.lsn
    clock = read_source_clock(source, config.asn_schema, config.time_zone, capture_position, summary.source_clock)
    applied = newest((applied_of(capture, offsets.get(capture.table)) for capture in captures), position, clock)
    current = as_found(source, config.asn_schema, offsets, applied)
    try:
        streams, mends = config.settings.streaming, config.settings.snapshot_on_gap
    except ConfigurationError:
        # A custom snapshot mode that cannot be loaded has a check of its own.
        streams, mends = True, False
    return {
        capture.table: judge(
            capture,
            current.get(capture.table),
            position,
            streams or capture.table in summary.initially_loading,
            mends,
        )
        for capture in captures
    }


def _checks(table: TableId, verdict: Verdict, offset: Offset | None, summary: PipelineSummary) -> Iterator[Check]:
    level: Level
    subject, failure = str(table), summary.failure(table)
    if verdict.error is not None:
        level = "warning" if verdict.kind == "mended" else "error"
        yield Check(NAME, subject, False, verdict.error.problem, verdict.error.remedy, level)
    elif verdict.kind == "begins" and summary.had_offset(table) and not (offset is not None and offset.restart):
        yield Check(NAME, subject, False, *missing(table), "warning")
    else:
        yield Check(NAME, subject, True)
    if failure is not None and not failure.is_rejected and verdict.kind in ("pulled", "idle", "begins", "restored"):
        is_set = offset is not None and (
            offset.restart or offset.restore or offset.planned_at_ms > summary.planned_at_ms
        )
        level = "error" if failure.waits_for_operator and not is_set else "warning"
        yield Check("last tick", subject, False, failure.error, "The next tick tries it again.", level)


def missing(table: TableId) -> tuple[str, str]:
    """Return problem and remedy of a table that the last tick had, but that has no offset."""
    return (
        f"{table} has no offset, but the pipeline's last tick had the table",
        f"If its target was removed too, it begins with the next tick. Else the mode may stop it: restore the offset "
        f"by {command_hint('restore', table)}, or have it snapshotted again by {restart_hint(table)}.",
    )
