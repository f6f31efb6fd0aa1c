"""Preflight: everything about the source that must hold before a pipeline can run, told all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from airflow_provider_db2cdc.cdc import override
from airflow_provider_db2cdc.cdc.capture import CaptureInstance, reinit_call
from airflow_provider_db2cdc.cdc.collection import parse_table
from airflow_provider_db2cdc.cdc.gap import is_pruned
from airflow_provider_db2cdc.cdc.key import PROPERTY
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.mode import CUSTOM
from airflow_provider_db2cdc.cdc.offset import OffsetStore, restart_of
from airflow_provider_db2cdc.cdc.selection import SNAPSHOT_INCLUDE, Selection, check_included
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.config import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError, GapError
from airflow_provider_db2cdc.source.admission import problems
from airflow_provider_db2cdc.source.catalog import (
    Conditions,
    Index,
    read_conditions,
    read_fence,
    read_indexes,
    read_instances,
    read_schemas,
)
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.plan import check_moving, nothing_chosen
from airflow_provider_db2cdc.source.signal_table import read_signal_table, read_signals
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.changes import COMMIT, INTENT

Level = Literal["error", "warning"]

OPTION_FLAGS = "NNNN"
LONG_TYPES = ("LONG VARCHAR", "LONG VARGRAPHIC")
"""Types of which Db2's log holds the values only where DATA CAPTURE says so (SYSCAT.TABLES.DATACAPTURE 'L')."""
_MARKS = "there is no captured signal table, which is needed by incremental.snapshot.watermarking.strategy"
_CAPTURED = "Name one with signal.data.collection and register it for capture, or use read_only."


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: of which subject, whether it holds, else what is wrong and what to do.

    A failed check of level `warning` does not keep the pipeline from running.
    """

    name: str
    subject: str
    ok: bool
    problem: str = ""
    remedy: str = ""
    level: Level = "error"


def preflight(source: Source, config: PipelineConfig, offsets: OffsetStore | None = None) -> list[Check]:
    """Run every check that can be run and return all of them, the passed ones too; nothing is written.

    Only what stands on a failed check is left out: without a login nothing else, without control tables no table.
    With `offsets` they are compared with what the change tables still hold.
    """
    asn_schema = config.asn_schema
    checks = [*_check_mode(config), _tried("connection", str(source.address), partial(source.rows, asn.source_clock()))]
    if checks[-1].ok:
        checks.append(_tried("control tables", asn_schema, lambda: source.rows(asn.global_row(asn_schema))))
    if not checks[-1].ok:
        return checks
    agent, fence = _check_agent(source, config)
    checks.append(agent)
    try:
        instances = read_instances(source, asn_schema)
        chosen, selected = _select(config.selection, instances, asn_schema)
        selected += [*_check_snapshots(config, chosen), *_check_signals(source, config, instances)]
        return [
            *checks,
            *selected,
            *_check_tables(source, config, [instances[table] for table in chosen], offsets, fence),
        ]
    except Db2CdcError as error:
        return [*checks, _failed("catalog", str(source.address), error)]


def _check_agent(source: Source, config: PipelineConfig) -> tuple[Check, Lsn | None]:
    """Return whether the agent moves, and how far it is, None where it never ran."""
    try:
        fence = read_fence(source, config.asn_schema)
    except Db2CdcError as error:
        return _failed("capture agent", config.asn_schema, error), None
    return _tried("capture agent", config.asn_schema, partial(check_moving, fence, config)), fence.lsn


def _select(
    selection: Selection, instances: Mapping[TableId, CaptureInstance], asn_schema: str
) -> tuple[list[TableId], list[Check]]:
    """Return the chosen tables, and a check a pattern: one that matches nothing does not hide the others' tables."""
    checks: list[Check] = []
    if selection.key_rules:
        checks.append(_tried("selection", PROPERTY, partial(selection.check_key_rules, instances)))
    if not selection.table_include:
        chosen = replace(selection, message_key="").tables(instances)
        return chosen, checks if chosen else [*checks, _failed("selection", "tables", nothing_chosen(asn_schema))]
    tables: set[TableId] = set()
    for pattern in selection.table_include:
        try:
            tables.update(Selection(table_include=(pattern,)).tables(instances))
            checks.append(Check("selection", pattern, True))
        except ConfigurationError as error:
            checks.append(_failed("selection", pattern, error))
    return sorted(tables), checks


def _check_mode(config: PipelineConfig) -> Iterator[Check]:
    if config.snapshot_mode == "custom":
        yield _tried("snapshot mode", CUSTOM, lambda: config.snapshotter)


def _check_snapshots(config: PipelineConfig, tables: Sequence[TableId]) -> Iterator[Check]:
    if config.snapshot_include:
        included = partial(check_included, SNAPSHOT_INCLUDE, config.snapshot_include, tables)
        yield _tried("selection", SNAPSHOT_INCLUDE, included)
    if config.snapshot_overrides:
        yield _tried("selection", override.PROPERTY, partial(override.selects_of, config.snapshot_overrides, tables))


def _check_signals(
    source: Source, config: PipelineConfig, instances: Mapping[TableId, CaptureInstance]
) -> Iterator[Check]:
    """Look at the table of signals, if there is one: its columns, that it can be read, and its capture for marks."""
    marks = config.watermarking != "read_only"
    if not config.signal_table:
        if marks:
            yield _judged("signal table", "signal.data.collection", False, f"{_MARKS} {config.watermarking}", _CAPTURED)
        return
    table = parse_table(config.signal_table, "signal.data.collection")
    yield _tried("signal table", str(table), lambda: read_signals(source, read_signal_table(source, table, instances)))
    if marks:
        capture = instances.get(table)
        is_captured = capture is not None and capture.state == "A"
        yield _judged("marks", str(table), is_captured, f"{_MARKS} {config.watermarking}", _CAPTURED)


def _check_tables(
    source: Source,
    config: PipelineConfig,
    captures: Sequence[CaptureInstance],
    offsets: OffsetStore | None,
    fence: Lsn | None,
) -> Iterator[Check]:
    schemas = read_schemas(source, captures, config.selection)
    conditions = read_conditions(source, config.asn_schema)
    indexes = read_indexes(source, [capture.change_table for capture in captures])
    reads_tables = _reads_tables(config)
    for capture in captures:
        schema, subject = schemas[capture.table], str(capture.table)
        found = problems(capture, schema, config)
        yield from (_result(name, subject, error) for name, error in found)
        yield from _check_conditions(schema, conditions.get(capture.table), config.asn_schema)
        yield _check_started(capture, config.asn_schema)
        if capture.cd_columns:
            yield _check_missing(schema)
            yield _check_unique(schema)
            yield _check_index(capture, indexes.get(capture.change_table, []))
            yield _tried("change table readable", subject, partial(source.rows, asn.probe(capture.change_table)))
        if schema.columns:
            readable = _tried("source table readable", subject, partial(source.rows, asn.probe(capture.table)))
            yield replace(readable, level="error" if reads_tables else "warning")
        if offsets is not None:
            yield _tried("offset", subject, partial(_check_offset, capture, offsets, fence))


def _reads_tables(config: PipelineConfig) -> bool:
    """Whether the mode itself takes snapshots; what is asked for by a signal is another matter."""
    if config.snapshot_mode == "custom":
        return True
    mode = config.snapshotter
    return mode.snapshot_data(known=False, in_progress=False) or mode.snapshot_on_gap()


def _check_conditions(schema: TableSchema, conditions: Conditions | None, asn_schema: str) -> Iterator[Check]:
    if conditions is None:
        return
    subject, is_long = str(schema.table), any(column.type.upper() in LONG_TYPES for column in schema.columns)
    capture = "DATA CAPTURE CHANGES" + (" INCLUDE LONGVAR COLUMNS" if is_long else "")
    again = f"Register the table again ({asn_schema}.REMOVETABLE, ADDTABLE), then reinit the capture agent."
    yield _judged(
        "prune control",
        subject,
        conditions.prune_controls > 0,
        f"{subject} has no row in {asn_schema}.IBMSNAP_PRUNCNTL, and the agent silently does not capture such a table",
        again,
    )
    yield _judged(
        "option flags",
        subject,
        conditions.option_flags == OPTION_FLAGS,
        f"{subject} is registered with OPTION_FLAGS {conditions.option_flags!r}, and the agent silently captures only "
        f"{OPTION_FLAGS!r}",
        again,
    )
    yield _judged(
        "data capture",
        subject,
        conditions.data_capture in (("L",) if is_long else ("Y", "L")),
        f"{subject} lacks {capture}: the agent {'misses its long columns, or ' if is_long else ''}stops",
        f"ALTER TABLE {subject} {capture}, then have it snapshotted anew (`db2cdc offset restart`).",
    )


def _check_missing(schema: TableSchema) -> Check:
    return _judged(
        "columns",
        str(schema.table),
        not schema.missing,
        f"{schema.table}: not replicated are {', '.join(schema.missing)}: the change table does not carry their values",
        "LOB, XML, BOOLEAN and BINARY columns never are. For others: register the table again after ALTER TABLE.",
        "warning",
    )


def _check_unique(schema: TableSchema) -> Check:
    return _judged(
        "unique rows",
        str(schema.table),
        bool(schema.key),
        f"{schema.table} has no key of captured columns: equal rows are counted, and one connection reads a snapshot",
        f"If some columns are unique, name them with {PROPERTY} before the first run; later its target begins anew.",
        "warning",
    )


def _check_started(capture: CaptureInstance, asn_schema: str) -> Check:
    return _judged(
        "capture started",
        str(capture.table),
        not capture.active or capture.has_captured,
        f"{capture.table} is active, but not one change of it was ever captured",
        f"This is well if it never changed since; else reinit the agent ({reinit_call(asn_schema)}).",
        "warning",
    )


def _check_index(capture: CaptureInstance, indexes: Sequence[Index]) -> Check:
    table = capture.change_table
    return _judged(
        "change table index",
        str(capture.table),
        any(index.columns[:2] == (COMMIT, INTENT) for index in indexes),
        f"the change table {table} has no index on ({COMMIT}, {INTENT}): every tick scans it whole",
        f"CREATE UNIQUE INDEX ... ON {table} ({COMMIT}, {INTENT}).",
        "warning",
    )


def _check_offset(capture: CaptureInstance, offsets: OffsetStore, fence: Lsn | None) -> None:
    offset = offsets.get(capture.table)
    if offset is None or offset.restart:
        return
    if offset.suspended:
        raise GapError(
            f"{capture.table}: its registration was not active for a while, and nobody captured what changed meanwhile",
            f"Have it snapshotted anew by {restart_of(capture.table)}. If nothing was changed, the next tick's error "
            "says how its offset is kept.",
        )
    if offset.is_placed and fence is not None:
        fence.check_comparable(offset.lsn)
    if offset.is_placed and is_pruned(offset.lsn, capture.floor):
        raise GapError(
            f"{capture.table}: changes up to {capture.floor} are pruned, and only those up to {offset.lsn} were read",
            f"Have it snapshotted anew by {restart_of(capture.table)}; raise RETENTION_LIMIT in IBMSNAP_CAPPARMS, or "
            "run the pipeline oftener.",
        )


def _judged(name: str, subject: str, ok: bool, problem: str, remedy: str, level: Level = "error") -> Check:
    return Check(name, subject, True, level=level) if ok else Check(name, subject, False, problem, remedy, level)


def _tried(name: str, subject: str, action: Callable[[], object]) -> Check:
    try:
        action()
    except Db2CdcError as error:
        return _failed(name, subject, error)
    return Check(name, subject, True)


def _failed(name: str, subject: str, error: Db2CdcError) -> Check:
    return Check(name, subject, False, error.problem, error.remedy)


def _result(name: str, subject: str, error: Db2CdcError | None) -> Check:
    return _failed(name, subject, error) if error else Check(name, subject, True)
