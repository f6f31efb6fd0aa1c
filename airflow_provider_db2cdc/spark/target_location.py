"""The check that Spark's executors reach the target, before anything is written there."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.target_reach import check_reach, is_one_machine


def require_reach(spark: SparkSession, layout: Layout, is_shared_mount: bool) -> None:
    """Check the target's path, or the path of its schema in the catalog.

    :raises ConfigurationError: when executors on other machines would write it to their own disks.
    """
    master = str(spark.sparkContext.master)
    if not is_one_machine(master):
        location = layout.target if layout.is_path else _location_of(spark, layout.target)
        if location:
            check_reach(location, _default_fs(spark), master, is_shared_mount)


def _location_of(spark: SparkSession, schema: str) -> str:
    """Return the path of a catalog's schema. It is empty if there is no such schema, or the catalog does not say."""
    return spark.catalog.getDatabase(schema).locationUri or "" if spark.catalog.databaseExists(schema) else ""


def _default_fs(spark: SparkSession) -> str:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    return str(hadoop.get("fs.defaultFS", ""))
