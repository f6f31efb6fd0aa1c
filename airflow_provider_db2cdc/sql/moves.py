"""Statement that counts rows which changes may have moved into or out of a chunk.

Such moves may explain why a chunk's count differs from the rows that were read.
"""

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
    """Return the select of some chunks' moves (`chunk_moves`) in a range: one row with one column per chunk."""
    columns = (f"{expression} AS M{number}" for number, expression in enumerate(moves))
    return Query(f"SELECT {', '.join(columns)} FROM {change_table(capture)} WHERE {within(span)}")


def chunk_moves(schema: TableSchema, capture: CaptureRegistration, cut: ChunkKey, low: Bound, high: Bound) -> str:
    """Return the expression that counts how often changes may have taken a row out of a chunk, or put one in.

    The chunk lies between two bounds, as in `chunk_predicate`. An update captured as one row counts once for its old
    chunk, and once for its new one. A scan may meet a row twice that moves while it runs, or miss it. The before image
    says where the row was. Without one, a key is assumed to be unchanged (`accept.update.rows`). Any other column may
    have had any value.
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
