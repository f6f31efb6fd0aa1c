"""Hashes of rows: equal for equal rows, and for no others that the tests know of."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.verify.row_hash import checksum, hashed

pytestmark = pytest.mark.spark
SCHEMA = TableSchema(
    TableId("S", "T"),
    (
        Column("A b", "INTEGER", 4, 0, False),
        Column("V", "VARCHAR", 9),
        Column("W", "VARCHAR", 9),
        Column("D", "DOUBLE", 8),
    ),
    ("A b",),
)
ROW = (1, "v", "w", 0.0)
OTHERS: list[tuple[Any, ...]] = [
    (1, "w", "v", 0.0), (1, "v", None, 0.0), (1, None, "w", 0.0), (1, "v", "", 0.0), (1, "", "v", 0.0),
    (1, None, "v", 0.0),
    (1, "v", "w", -0.0), (1, "v", "w", None), (1, "v", "w", float("nan")), (1, "vw", "", 0.0), (1, "", "vw", 0.0),
    (1, None, None, None), (2, "v", "w", 0.0),
]  # fmt: skip


def hashes(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """Return hashed rows."""
    ddl = "`A b` int, V string, W string, D double"
    frame = spark.createDataFrame(list(rows), ddl)
    return hashed(frame, SCHEMA, [F.col(f"`{name}`") for name in SCHEMA.names])


def test_rows_that_differ_have_different_hashes(spark: SparkSession) -> None:
    rows = [ROW, *OTHERS]
    found = [row["hash"] for row in hashes(spark, *rows, ROW).collect()]
    assert found[0] == found[-1]
    assert not [(a, b) for (a, one), (b, other) in combinations(zip(rows, found, strict=False), 2) if one == other]


def test_a_checksum_shows_each_row_and_no_order(spark: SparkSession) -> None:
    totals = checksum(hashes(spark, ROW, *OTHERS))
    assert totals.rows == 1 + len(OTHERS)
    assert checksum(hashes(spark, *reversed(OTHERS), ROW).repartition(3)) == totals
    swapped = [checksum(hashes(spark, *[row for row in (ROW, *OTHERS) if row is not lost], ROW)) for lost in OTHERS]
    assert len({*swapped, totals}) == 1 + len(OTHERS)
    assert checksum(hashes(spark)) == (0, 0, 0)
