"""A snapshot's rows: read in chunks at once, and which of them the log does not override."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.changes import key_struct, row_struct, row_type
from airflow_provider_db2cdc.spark.jdbc import DriverConnection, JdbcSource
from airflow_provider_db2cdc.spark.progress import say
from airflow_provider_db2cdc.sql.chunk import chunk_predicates, table_rows


def chunk_rows(
    spark: SparkSession, source: JdbcSource, connection: DriverConnection, schema: TableSchema, rows: int
) -> DataFrame:
    """Return the table's rows as one struct column `row`, a partition a chunk of about `rows` rows, read committed."""
    bounds = connection.chunk_bounds(schema, rows)
    say(f"table={schema.table} snapshot: reads {len(bounds) + 1} chunks")
    selects = [table_rows(schema, predicate) for predicate in chunk_predicates(schema, bounds)]
    return source.frames(spark, selects).select(row_struct(schema, "C").cast(row_type(schema)).alias("row"))


def surviving(staged: DataFrame, schema: TableSchema, window: DataFrame, effects: DataFrame) -> DataFrame:
    """Return the staged rows whose key has no net effect in the window, one a key.

    A key whose events cancel out keeps its staged row: the log says "unchanged", so that row alone knows its state. A
    scan may meet such a row twice, where it was deleted and inserted again as it was; both copies are equal.
    """
    keyed = staged.withColumn("key", key_struct(schema, "row"))
    touched = window.where(F.col("op").isNotNull()).select("key").distinct()
    calm = keyed.join(touched, "key", "left_anti")
    cancelled = keyed.join(touched, "key", "left_semi").join(effects.select("key"), "key", "left_anti")
    return calm.unionByName(cancelled.dropDuplicates(["key"])).select(F.col("row"))
