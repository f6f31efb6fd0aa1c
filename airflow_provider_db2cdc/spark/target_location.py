"""Where the target is, and the check that Spark's executors reach it, before anything is written there."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.target_reach import check_reach, is_one_machine


def require_reach(spark: SparkSession, layout: Layout, is_shared_mount: bool) -> None:
    """Check the target's path, or the path of its schema in the catalog.

    :raises ConfigurationError: when executors on other machines would write it to their own disks.
    """
    master = str(spark.sparkContext.master)
    if not is_one_machine(master) and (location := target_location(spark, layout)):
        check_reach(location, default_fs(spark), master, is_shared_mount)


def target_location(spark: SparkSession, layout: Layout) -> str:
    """Return the target's path, or the path of its schema. It is empty if there is no such schema, or none is known."""
    if layout.is_path:
        return layout.target
    schema = layout.target
    return spark.catalog.getDatabase(schema).locationUri or "" if spark.catalog.databaseExists(schema) else ""


def default_fs(spark: SparkSession) -> str:
    """Return Hadoop's default file system, in which a path without a scheme lies."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    return str(hadoop.get("fs.defaultFS", ""))
