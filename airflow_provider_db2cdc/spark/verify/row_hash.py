"""Hashes of rows: two rows have the same hash if they are equal, and another one if they are not.

A hash has 64 bits, so of two rows that differ one pair in 2^64 looks equal. A checksum of many rows is the sum of their
hashes. It does not depend on their order.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import float_names, key_struct

HALF, LOW_HALF = 32, 0xFFFFFFFF


class Checksum(NamedTuple):
    """The number of some rows, and the sums of both halves of their hashes."""

    rows: int
    low: int
    high: int


def hashed(rows: DataFrame, schema: TableSchema, *more: str) -> DataFrame:
    """Return `key`, `hash` and the columns `more` of rows (`row`)."""
    return rows.select(key_struct(schema, "row").alias("key"), row_hash(schema, "row").alias("hash"), *more)


def row_hash(schema: TableSchema, row: str) -> Column:
    """Return the hash of a row struct.

    Spark's hash skips nulls, and takes -0.0 for 0.0. So nulls count by their place, and floating-point numbers by their
    text.
    """
    fields = {column.name: F.col(row).getField(column.name) for column in schema.columns}
    nulls = [value.isNull() for column, value in zip(schema.columns, fields.values(), strict=True) if column.nullable]
    texts = [fields[name].cast("string") for name in float_names(schema)]
    return F.xxhash64(*fields.values(), *texts, *nulls)


def checksum(rows: DataFrame) -> Checksum:
    """Return the checksum of hashed rows. It is an action.

    One sum of whole hashes would overflow.
    """
    low, high = F.col("hash").bitwiseAND(LOW_HALF), F.shiftrightunsigned("hash", HALF)
    [totals] = rows.agg(F.count("*"), F.sum(low), F.sum(high)).collect()
    return Checksum(*(int(total or 0) for total in totals))
