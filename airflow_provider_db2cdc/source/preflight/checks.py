"""The preflight: everything that the source must meet before a pipeline can run, reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets
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
from airflow_provider_db2cdc.source.preflight.check import Check, advised, failed, required, tried
from airflow_provider_db2cdc.source.preflight.table_checks import check_tables
from airflow_provider_db2cdc.source.signal_table import read_signal_table, read_signals
from airflow_provider_db2cdc.sql import asn

_MARKS = "there is no captured signal table, which is needed by incremental.snapshot.watermarking.strategy"
_CAPTURED = "Name one with signal.data.collection and register it for capture, or use read_only."


def preflight(source: Source, config: PipelineConfig, offsets: KnownOffsets | None = None) -> list[Check]:
    """Run every check that can be run, and return passed and failed ones. Nothing is written.

    A check that needs a failed one does not run. Without a login there is no further check. Without control tables no
    table is checked. Given `offsets` are compared with what the change tables still hold.
    """
    asn_schema = config.asn_schema
    checks = [*_check_mode(config), tried("connection", str(source.address), partial(source.rows, asn.source_clock()))]
    if checks[-1].ok:
        checks.append(tried("control tables", asn_schema, lambda: source.rows(asn.global_row(asn_schema))))
    if not checks[-1].ok:
        return checks
    agent_check, has_position = _check_agent(source, config)
    checks.append(agent_check)
    try:
        registrations = read_registrations(source, asn_schema)
        chosen = [registrations[table] for table in config.selection.tables(registrations)]
        schemas = read_schemas(source, chosen, config.selection)
        checks += [
            *_check_lists(source, config, registrations, schemas),
            *_check_signals(source, config, registrations),
        ]
        return [*checks, *check_tables(source, config, chosen, schemas, offsets if has_position else None)]
    except Db2CdcError as error:
        return [*checks, failed("catalog", str(source.address), error)]


def _check_agent(source: Source, config: PipelineConfig) -> tuple[Check, bool]:
    """Return the check that the agent moves, and whether it ever ran."""
    try:
        position = read_capture_position(source, config.asn_schema)
    except Db2CdcError as error:
        return failed("capture agent", config.asn_schema, error), False
    return tried("capture agent", config.asn_schema, partial(check_moving, position, config)), True


def _check_lists(
    source: Source,
    config: PipelineConfig,
    registrations: Mapping[TableId, CaptureRegistration],
    schemas: Mapping[TableId, TableSchema],
) -> Iterator[Check]:
    """Check each given list. Each entry that matches nothing has a failed check of its own."""
    unmatched = find_unmatched(source, config, registrations, schemas)
    for name in given_lists(config.selection, config.snapshot_include):
        entries = [entry for entry in unmatched if entry.list_name == name]
        yield from (
            (required if entry.refused else advised)("selection", name, False, entry.problem, entry.remedy)
            for entry in entries
        )
        if not entries:
            yield required("selection", name, True, "", "")
    if config.snapshot_overrides:
        yield tried(
            "selection",
            select_override.PROPERTY,
            partial(select_override.selects_of, config.snapshot_overrides, schemas),
        )
    if not (schemas or any(entry.refused for entry in unmatched)):
        yield failed("selection", "tables", nothing_chosen(config.asn_schema))


def _check_mode(config: PipelineConfig) -> Iterator[Check]:
    if config.snapshot_mode == "custom":
        yield tried("snapshot mode", CUSTOM, lambda: config.snapshotter)


def _check_signals(
    source: Source, config: PipelineConfig, registrations: Mapping[TableId, CaptureRegistration]
) -> Iterator[Check]:
    """Check the signal table, if there is one: its columns, that it can be read, and its capture for watermarks."""
    writes_watermarks = config.watermarking != "read_only"
    if not config.signal_table:
        if writes_watermarks:
            yield required(
                "signal table", "signal.data.collection", False, f"{_MARKS} {config.watermarking}", _CAPTURED
            )
        return
    table = parse_table(config.signal_table, "signal.data.collection")
    read_table = partial(read_signal_table, source, table, registrations, config.watermarking)
    yield tried("signal table", str(table), lambda: read_signals(source, read_table()))
    if writes_watermarks:
        capture = registrations.get(table)
        is_captured = capture is not None and capture.state == "A"
        yield required("marks", str(table), is_captured, f"{_MARKS} {config.watermarking}", _CAPTURED)
