"""Preflight: everything about the source that must hold before a pipeline can run, told all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.offset.offset import OffsetStore
from airflow_provider_db2cdc.cdc.selection import select_override
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.selection.unmatched import given_lists
from airflow_provider_db2cdc.cdc.snapshot.mode import CUSTOM
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.source.catalog import read_capture_position, read_registrations, read_schemas
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.lists import find_unmatched
from airflow_provider_db2cdc.source.planning.plan import check_moving, nothing_chosen
from airflow_provider_db2cdc.source.preflight.check import Check, failed, judged, tried
from airflow_provider_db2cdc.source.preflight.table_checks import check_tables
from airflow_provider_db2cdc.source.signal_table import read_signal_table, read_signals
from airflow_provider_db2cdc.sql import asn

_MARKS = "there is no captured signal table, which is needed by incremental.snapshot.watermarking.strategy"
_CAPTURED = "Name one with signal.data.collection and register it for capture, or use read_only."


def preflight(source: Source, config: PipelineConfig, offsets: OffsetStore | None = None) -> list[Check]:
    """Run every check that can be run and return all of them, the passed ones too; nothing is written.

    Only what stands on a failed check is left out: without a login nothing else, without control tables no table.
    With `offsets` they are compared with what the change tables still hold.
    """
    asn_schema = config.asn_schema
    checks = [*_check_mode(config), tried("connection", str(source.address), partial(source.rows, asn.source_clock()))]
    if checks[-1].ok:
        checks.append(tried("control tables", asn_schema, lambda: source.rows(asn.global_row(asn_schema))))
    if not checks[-1].ok:
        return checks
    agent, has_fence = _check_agent(source, config)
    checks.append(agent)
    try:
        instances = read_registrations(source, asn_schema)
        chosen = [instances[table] for table in config.selection.tables(instances)]
        schemas = read_schemas(source, chosen, config.selection)
        checks += [*_check_lists(source, config, instances, schemas), *_check_signals(source, config, instances)]
        return [*checks, *check_tables(source, config, chosen, schemas, offsets, has_fence)]
    except Db2CdcError as error:
        return [*checks, failed("catalog", str(source.address), error)]


def _check_agent(source: Source, config: PipelineConfig) -> tuple[Check, bool]:
    """Return whether the agent moves, and whether it ever ran."""
    try:
        fence = read_capture_position(source, config.asn_schema)
    except Db2CdcError as error:
        return failed("capture agent", config.asn_schema, error), False
    return tried("capture agent", config.asn_schema, partial(check_moving, fence, config)), True


def _check_lists(
    source: Source,
    config: PipelineConfig,
    instances: Mapping[TableId, CaptureRegistration],
    schemas: Mapping[TableId, TableSchema],
) -> Iterator[Check]:
    """Check each list that is given: of one that holds entries which match nothing there is a check for each."""
    unmatched = find_unmatched(source, config, instances, schemas)
    for name in given_lists(config.selection, config.snapshot_include):
        found = [one for one in unmatched if one.list_name == name]
        yield from (
            judged("selection", name, False, one.problem, one.remedy, "error" if one.refused else "warning")
            for one in found
        )
        if not found:
            yield judged("selection", name, True, "", "")
    if config.snapshot_overrides:
        yield tried(
            "selection",
            select_override.PROPERTY,
            partial(select_override.selects_of, config.snapshot_overrides, schemas),
        )
    if not (schemas or any(one.refused for one in unmatched)):
        yield failed("selection", "tables", nothing_chosen(config.asn_schema))


def _check_mode(config: PipelineConfig) -> Iterator[Check]:
    if config.snapshot_mode == "custom":
        yield tried("snapshot mode", CUSTOM, lambda: config.snapshotter)


def _check_signals(
    source: Source, config: PipelineConfig, instances: Mapping[TableId, CaptureRegistration]
) -> Iterator[Check]:
    """Look at the table of signals, if there is one: its columns, that it can be read, and its capture for marks."""
    marks = config.watermarking != "read_only"
    if not config.signal_table:
        if marks:
            yield judged("signal table", "signal.data.collection", False, f"{_MARKS} {config.watermarking}", _CAPTURED)
        return
    table = parse_table(config.signal_table, "signal.data.collection")
    found = partial(read_signal_table, source, table, instances, config.watermarking)
    yield tried("signal table", str(table), lambda: read_signals(source, found()))
    if marks:
        capture = instances.get(table)
        is_captured = capture is not None and capture.state == "A"
        yield judged("marks", str(table), is_captured, f"{_MARKS} {config.watermarking}", _CAPTURED)
