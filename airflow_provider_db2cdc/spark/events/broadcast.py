"""Rows that a join sends to every executor. The driver collects them first, so they must be few and small."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.quoting import quoted

BROADCAST_KEYS = 200_000
BROADCAST_BYTES = 64_000_000
"""The most bytes of whole rows that are broadcast. Four tables at once must fit into a driver's heap of 1 GB."""

VALUE_BYTES = 16
"""The bytes that a value takes in a row of Spark, besides its text."""


def if_few_to_all(keys: DataFrame, count: int) -> DataFrame:
    """Return keys for a join, broadcast to every executor if `count` is small. Spark would overestimate them."""
    return F.broadcast(keys) if count <= BROADCAST_KEYS else keys


def if_small_to_all(rows: DataFrame, count: int, schema: TableSchema) -> DataFrame:
    """Return whole rows for a join, broadcast to every executor if they are few and small. See `are_small`."""
    return F.broadcast(rows) if are_small(rows, count, schema) else rows


def are_small(rows: DataFrame, count: int, schema: TableSchema) -> bool:
    """Return whether rows with columns of a table are few and small enough to be broadcast.

    It measures them, by an action, only if the longest texts that the columns admit would be too large.
    """
    if count > BROADCAST_KEYS:
        return False
    longest = sum(VALUE_BYTES + column.length for column in schema.columns if column.name in rows.columns)
    return count * longest <= BROADCAST_BYTES or _bytes(rows, count) <= BROADCAST_BYTES


def _bytes(rows: DataFrame, count: int) -> int:
    texts = [name for name, kind in rows.dtypes if kind in ("string", "binary")]
    sums = rows.agg(*(F.sum(F.octet_length(quoted(name))) for name in texts)).collect()[0] if texts else ()
    return count * VALUE_BYTES * len(rows.columns) + sum(int(total) for total in sums if total)
