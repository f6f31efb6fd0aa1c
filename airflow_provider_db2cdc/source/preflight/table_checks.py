"""Preflight of the tables: what each needs to be replicated correctly and quickly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration, reinit_call
from airflow_provider_db2cdc.cdc.offset.offset import restart_hint
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.source.catalog import Conditions, Index, read_conditions, read_indexes
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.preflight.check import Check, advised, required, result, tried
from airflow_provider_db2cdc.source.preflight.offset_checks import check_offsets
from airflow_provider_db2cdc.source.preflight.table_requirements import failed_requirements
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.changes import COMMIT, INTENT
from airflow_provider_db2cdc.sql.quoting import quote_table

OPTION_FLAGS = "NNNN"


def check_tables(
    source: Source,
    config: PipelineConfig,
    captures: Sequence[CaptureRegistration],
    schemas: Mapping[TableId, TableSchema],
    offsets: KnownOffsets | None,
) -> Iterator[Check]:
    """Check each of the tables, and whether a tick can continue from the `offsets`, if given.

    The check of offsets needs a capture position, which is missing if capture never ran.
    """
    conditions = read_conditions(source, config.asn_schema)
    offset_checks = check_offsets(source, config, captures, offsets) if offsets is not None else {}
    indexes = read_indexes(source, [capture.change_table for capture in captures])
    reads_tables = _reads_tables(config)
    for capture in captures:
        schema, subject = schemas[capture.table], str(capture.table)
        requirements = failed_requirements(capture, schema, config)
        yield from (result(name, subject, error) for name, error in requirements)
        yield from _check_conditions(schema, conditions.get(capture.table), config.asn_schema)
        yield _check_started(capture, config.asn_schema)
        if capture.cd_columns:
            yield _check_missing(schema)
            yield _check_rows(schema, conditions.get(capture.table))
            yield _check_unique(schema)
            yield _check_index(capture, indexes.get(capture.change_table, []))
            yield tried("change table readable", subject, partial(source.rows, asn.probe(capture.change_table)))
        if schema.columns:
            readable = tried("source table readable", subject, partial(source.rows, asn.probe(capture.table)))
            yield replace(readable, level="error" if reads_tables else "warning")
        yield from offset_checks.get(capture.table, ())


def _reads_tables(config: PipelineConfig) -> bool:
    """Whether the snapshot mode reads tables by itself, without a signal."""
    if config.snapshot_mode == "custom":
        return True
    mode = config.snapshotter
    return mode.snapshot_data(known=False, in_progress=False) or mode.snapshot_on_gap()


def _check_conditions(schema: TableSchema, conditions: Conditions | None, asn_schema: str) -> Iterator[Check]:
    if conditions is None:
        return
    subject, capture = str(schema.table), "DATA CAPTURE CHANGES"
    again = f"Register the table again ({asn_schema}.REMOVETABLE, ADDTABLE), then reinit the capture agent."
    yield required(
        "prune control",
        subject,
        conditions.prune_controls > 0,
        f"{subject} has no row in {asn_schema}.IBMSNAP_PRUNCNTL, and the agent silently does not capture such a table",
        again,
    )
    yield required(
        "option flags",
        subject,
        conditions.option_flags == OPTION_FLAGS,
        f"{subject} is registered with OPTION_FLAGS {conditions.option_flags!r}, and the agent silently captures only "
        f"{OPTION_FLAGS!r}",
        again,
    )
    yield required(
        "data capture",
        subject,
        conditions.data_capture in ("Y", "L"),
        f"{subject} lacks {capture}: the agent stops",
        f"`ALTER TABLE {quote_table(schema.table)} {capture}`. Then have it snapshotted again by "
        f"{restart_hint(schema.table)}.",
    )


def _check_rows(schema: TableSchema, conditions: Conditions | None) -> Check:
    return advised(
        "row size",
        str(schema.table),
        conditions is None or not conditions.extended_rows,
        f"rows of {schema.table} may be longer than its pages (EXTENDED_ROW_SIZE 'Y'): Db2 keeps some of their texts "
        "as LOBs, whose values change tables do not carry; whether they carry these was not seen",
        "Try it: update another column of such a row and look at its texts in the change table; or move the table to "
        "larger pages.",
    )


def _check_missing(schema: TableSchema) -> Check:
    return advised(
        "columns",
        str(schema.table),
        not schema.uncaptured_columns,
        f"{schema.table}: not replicated are {', '.join(schema.uncaptured_columns)}: the change table does not carry "
        "their values",
        "LOB, XML, BOOLEAN and BINARY columns never are. For others: register the table again after ALTER TABLE.",
    )


def _check_unique(schema: TableSchema) -> Check:
    return advised(
        "unique rows",
        str(schema.table),
        bool(schema.key),
        f"{schema.table} has no key of captured columns: equal rows are counted, and one connection reads a snapshot",
        f"If some columns are unique, name them with {PROPERTY} before the first run; later its target begins again.",
    )


def _check_started(capture: CaptureRegistration, asn_schema: str) -> Check:
    return advised(
        "capture started",
        str(capture.table),
        not capture.is_active or capture.has_captured,
        f"{capture.table} is active, but not one change of it was ever captured",
        f"This is well if it never changed since; else reinit the agent ({reinit_call(asn_schema)}).",
    )


def _check_index(capture: CaptureRegistration, indexes: Sequence[Index]) -> Check:
    table = capture.change_table
    return advised(
        "change table index",
        str(capture.table),
        any(index.columns[:2] == (COMMIT, INTENT) for index in indexes),
        f"the change table {table} has no index on ({COMMIT}, {INTENT}): every tick scans it whole",
        f"CREATE UNIQUE INDEX ... ON {table} ({COMMIT}, {INTENT}).",
    )
