"""Statement that tells by how much changes may explain that a chunk's rows were counted unlike they were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.sql.changes import OPERATION, change_table, has_before_images, within
from airflow_provider_db2cdc.sql.chunk import Bound, Cut, chunk_predicate
from airflow_provider_db2cdc.sql.query import Query, count_of


def count_moves(capture: CaptureInstance, span: LsnRange, touching: Mapping[int, str]) -> Query:
    """Return the select of how many times the range's changes may have taken a row out of a chunk or put one in.

    `touching` holds, by the chunk's number, the predicate of the change rows that are about rows of it. Columns: the
    number, then the count. A U row may do both: a scan may miss a row that is moved beside it, or meet it twice.
    """
    updates = count_of(f"CASE WHEN {OPERATION} = 'U' THEN 1 END")
    counts = (
        f"SELECT {chunk} AS CHUNK, {count_of()} + {updates} AS MOVES FROM {change_table(capture)} "
        f"WHERE {within(span)} AND ({predicate})"
        for chunk, predicate in touching.items()
    )
    return Query(" UNION ALL ".join(counts))


def touching(schema: TableSchema, capture: CaptureInstance, cut: Cut, low: Bound, high: Bound) -> str:
    """Return the predicate of the change rows that are about rows between two bounds (as `chunk_predicate` has them).

    Where an update came from is told by its before image; without one it may have come from anywhere.
    """
    within_chunk = _between(cut, low, high)
    update = f"{OPERATION} = 'U'"
    if has_before_images(schema, capture):
        prefix = capture.before_prefix or ""
        before = tuple(replace(column, name=f"{prefix}{column.name}") for column in cut.columns)
        update = f"{update} AND {_between(replace(cut, columns=before), low, high)}"
    return f"({within_chunk}) OR ({update})"


def _between(cut: Cut, low: Bound, high: Bound) -> str:
    ends = [bound for bound in (low, high) if bound]
    return chunk_predicate(replace(cut, condition=""), ends, 1 if low else 0)
