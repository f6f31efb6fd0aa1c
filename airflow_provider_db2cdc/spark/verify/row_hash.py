"""Hashes of rows: two rows have the same hash if they are equal, and another one if they are not.

A hash has 64 bits, so of two rows that differ one pair in 2^64 looks equal. A checksum of many rows is the sum of their
hashes. It does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import float_names

HALF, LOW_HALF = 32, 0xFFFFFFFF


class Checksum(NamedTuple):
    """The number of some rows, and the sums of both halves of their hashes."""

    rows: int
    low: int
    high: int


def hashed(rows: DataFrame, schema: TableSchema, values: Sequence[Column], *more: str) -> DataFrame:
    """Return `key`, `hash` and the columns `more` of rows. `values` are the columns of the schema, in its order.

    They are columns, because a struct for each row takes as long as its hash.
    """
    named = dict(zip(schema.names, values, strict=True))
    key = F.struct(*(named[name].alias(name) for name in schema.key))
    return rows.select(key.alias("key"), row_hash(schema, named).alias("hash"), *more)


def row_hash(schema: TableSchema, named: Mapping[str, Column]) -> Column:
    """Return the hash of a row's columns by name.

    Spark's hash skips nulls, and takes -0.0 for 0.0. So nulls count by their place, and floating-point zeros by their
    text. The texts of all numbers would take long.
    """
    nulls = [named[column.name].isNull() for column in schema.columns if column.nullable]
    zeros = [F.when(named[name] == 0, named[name].cast("string")) for name in float_names(schema)]
    return F.xxhash64(*named.values(), *zeros, *nulls)


def checksum(rows: DataFrame) -> Checksum:
    """Return the checksum of hashed rows. It is an action.

    One sum of whole hashes would overflow.
    """
    low, high = F.col("hash").bitwiseAND(LOW_HALF), F.shiftrightunsigned("hash", HALF)
    [totals] = rows.agg(F.count("*"), F.sum(low), F.sum(high)).collect()
    return Checksum(*(int(total or 0) for total in totals))
