"""Statement that tells by how much changes may explain that a chunk's rows were counted unlike they were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_db2cdc.cdc.capture.registration import CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.sql.changes import OPERATION, change_table, has_before_images, within
from airflow_provider_db2cdc.sql.chunk import Bound, ChunkKey, chunk_predicate
from airflow_provider_db2cdc.sql.query import Query, count_of


def count_moves(capture: CaptureRegistration, span: LsnRange, moves: Sequence[str]) -> Query:
    """Return the select of some chunks' moves (`chunk_moves`) by the range's changes: one row, a column a chunk."""
    columns = (f"{one} AS M{at}" for at, one in enumerate(moves))
    return Query(f"SELECT {', '.join(columns)} FROM {change_table(capture)} WHERE {within(span)}")


def chunk_moves(schema: TableSchema, capture: CaptureRegistration, cut: ChunkKey, low: Bound, high: Bound) -> str:
    """Return the count of how many times changes may have taken a row out of a chunk, or put one in.

    The chunk lies between two bounds, as `chunk_predicate` has them. An update as one row does so once where it comes
    from and once where it goes to: a scan may meet a row twice that is moved beside it, or miss it. Where it comes from
    its before image tells. Without one a key is taken to stay (`accept.update.rows`), another column to have been
    anything.
    """
    after = before = _between(cut, low, high)
    if has_before_images(schema, capture):
        prefix = capture.before_prefix or ""
        images = tuple(replace(column, name=f"{prefix}{column.name}") for column in cut.columns)
        before = _between(replace(cut, columns=images), low, high)
    elif [column.name for column in cut.columns] != [*schema.key]:
        before = "1 = 1"
    into, out_of = f"CASE WHEN {after} THEN 1 END", f"CASE WHEN {OPERATION} = 'U' AND {before} THEN 1 END"
    return f"{count_of(into)} + {count_of(out_of)}"


def _between(cut: ChunkKey, low: Bound, high: Bound) -> str:
    ends = [bound for bound in (low, high) if bound]
    return f"({chunk_predicate(replace(cut, condition=''), ends, 1 if low else 0)})"
