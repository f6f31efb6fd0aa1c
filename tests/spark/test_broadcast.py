"""Rows are broadcast only if the driver can hold them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.events.broadcast import (
    BROADCAST_BYTES,
    BROADCAST_KEYS,
    if_few_to_all,
    if_small_to_all,
)

SCHEMA = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("A", "VARCHAR", 32_672)), ("ID",))
SENT = "strategy=broadcast"


@pytest.mark.parametrize(
    ("length", "count", "is_sent"),
    [
        (10, 1, True),
        (10, BROADCAST_KEYS, True),
        (10, BROADCAST_KEYS + 1, False),
        (32_000, 1000, True),
        (32_000, BROADCAST_BYTES // 32_000, False),
    ],
    ids=["few", "short texts", "too many", "few long texts", "long texts"],
)
def test_whole_rows_are_broadcast_if_they_are_small(
    spark: SparkSession, length: int, count: int, is_sent: bool
) -> None:
    text = F.repeat(F.lit("a"), F.lit(length)).alias("A")
    rows = spark.range(min(count, 2000)).select(F.col("id").cast("int").alias("ID"), text)
    plan = if_small_to_all(rows, count, SCHEMA)._jdf.queryExecution().analyzed().toString()
    assert (SENT in plan) is is_sent


def test_keys_are_broadcast_if_they_are_few(spark: SparkSession) -> None:
    for count in (BROADCAST_KEYS, BROADCAST_KEYS + 1):
        plan = if_few_to_all(spark.range(1), count)._jdf.queryExecution().analyzed().toString()
        assert (SENT in plan) is (count == BROADCAST_KEYS)
