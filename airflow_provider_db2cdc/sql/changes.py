"""Statements that read change tables: the rows of a range, its commit times, and points at which to split it."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import map_type
from airflow_provider_db2cdc.sql.quoting import lsn_literal, quote, quote_table

COMMIT, INTENT, OPERATION = "IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION"


def change_rows(schema: TableSchema, capture: CaptureRegistration, span: LsnRange) -> str:
    """Return the select of a range's change rows.

    Columns: CC, CI, CO (commit, intent, operation), then C0..Cn, the captured columns in the schema's order. If the
    registration has a before image of every column, B0..Bn follow.
    """
    after = _aliased(schema, "C", "")
    before = _aliased(schema, "B", capture.before_prefix or "") if has_before_images(schema, capture) else []
    columns = ", ".join([f"{COMMIT} AS CC", f"{INTENT} AS CI", f"{OPERATION} AS CO", *after, *before])
    return f"SELECT {columns} FROM {change_table(capture)} WHERE {within(span)}"


def timed_change_rows(asn_schema: str, schema: TableSchema, capture: CaptureRegistration, span: LsnRange) -> str:
    """Return the select of `change_rows` with the column LOGMARKER: the commit's time, as the source's local time.

    It is null for a commit without a row in the unit-of-work table, which has the commits of all captured tables.
    """
    uow = quote_table(TableId(asn_schema, "IBMSNAP_UOW"))
    times = f"SELECT {COMMIT} AS TC, MIN(IBMSNAP_LOGMARKER) AS TT FROM {uow} WHERE {within(span)} GROUP BY {COMMIT}"
    rows = change_rows(schema, capture, span)
    return f"SELECT R.*, T.TT AS LOGMARKER FROM ({rows}) R LEFT JOIN ({times}) T ON T.TC = R.CC"


def commit_at_row(capture: CaptureRegistration, span: LsnRange, row: int) -> str:
    """Return the select of the commit that row number `row` (from 0) of the range belongs to, in commit order."""
    return (
        f"SELECT {COMMIT} FROM {change_table(capture)} WHERE {within(span)} "
        f"ORDER BY {COMMIT}, {INTENT} OFFSET {row} ROWS FETCH FIRST 1 ROW ONLY"
    )


def has_before_images(schema: TableSchema, capture: CaptureRegistration) -> bool:
    """Whether the change table holds a before image of every captured column."""
    prefix = capture.before_prefix
    return bool(prefix) and all(f"{prefix}{name}" in capture.cd_names for name in schema.names)


def pairing_schema(schema: TableSchema, capture: CaptureRegistration) -> TableSchema:
    """Return the key's columns if change rows with only these are paired as whole rows are, else all columns.

    An update in one row is known by its before image, unless that has only nulls.
    """
    key = replace(schema, columns=tuple(map(schema.column, schema.key)))
    has_same_images = has_before_images(key, capture) == has_before_images(schema, capture)
    return key if has_same_images and any(not column.nullable for column in key.columns) else schema


def change_table(capture: CaptureRegistration) -> str:
    """Return the change table's quoted name, as registered."""
    return quote_table(capture.change_table)


def within(span: LsnRange) -> str:
    """Return the predicate of a range, which excludes its start. The column is bare, so that its index serves."""
    return f"{COMMIT} > {lsn_literal(span.after)} AND {COMMIT} <= {lsn_literal(span.upto)}"


def split(span: LsnRange, cuts: list[Lsn]) -> list[LsnRange]:
    """Return the range, split after each of the given commits. These ascend and lie in the range."""
    ends = [*(cut for cut in cuts if cut < span.upto), span.upto]
    return [LsnRange(after, upto) for after, upto in zip([span.after, *ends], ends, strict=False)]


def _aliased(schema: TableSchema, alias: str, prefix: str) -> list[str]:
    selects = []
    for number, column in enumerate(schema.columns):
        expression = map_type(schema.table, column).select.format(c=quote(prefix + column.name))
        selects.append(f"{expression} AS {alias}{number}")
    return selects
