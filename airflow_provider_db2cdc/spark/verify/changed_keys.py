"""The keys that a source has changed: those of all change rows in a range."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.spark.events.envelope import key_struct, row_struct, row_type
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch, JdbcSource
from airflow_provider_db2cdc.sql.changes import change_rows, has_before_images


def changed_keys(spark: SparkSession, source: JdbcSource, task: TableTask, window: LsnRange, fetch: Fetch) -> DataFrame:
    """Return each `key` once that a change row in the window names, by its before image or its after image.

    It is an action: the keys are as they were at the source before it returned.
    """
    schema, names = task.schema, ["C"]
    if has_before_images(schema, task.capture):
        names.append("B")
    rows = source.frame(spark, change_rows(schema, task.capture, window), fetch)
    images = F.explode(F.array(*(row_struct(schema, name).cast(row_type(schema)) for name in names)))
    # A before image of only nulls belongs to no row. As a key of nulls it would only leave out a row too many.
    keys = rows.select(images.alias("row")).select(key_struct(schema, "row").alias("key"))
    return keys.distinct().localCheckpoint()
