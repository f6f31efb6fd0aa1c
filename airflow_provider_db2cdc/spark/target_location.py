"""Where the target is, and the check that Spark's executors reach it, before anything is written there."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.spark_master import is_one_machine
from airflow_provider_db2cdc.cdc.target_reach import check_reach
from airflow_provider_db2cdc.errors import ConfigurationError


def require_reach(spark: SparkSession, layout: Layout, is_shared_mount: bool) -> None:
    """Check the target's path, or that its schema exists, and that schema's path.

    :raises ConfigurationError: when the catalog has no such schema, or executors on other machines would write the
        target to their own disks.
    """
    if not layout.is_path and not spark.catalog.databaseExists(layout.target):
        raise ConfigurationError(
            f"the catalog has no schema {layout.target}, which is the target",
            f"Name the catalog in spark.conf (docs/how-to/use-a-catalog.md), and run CREATE SCHEMA {layout.target}.",
        )
    master = str(spark.sparkContext.master)
    if not is_one_machine(master) and (location := target_location(spark, layout)):
        check_reach(location, default_fs(spark), master, is_shared_mount)


def target_location(spark: SparkSession, layout: Layout) -> str:
    """Return the target's path, or the path of its schema, which must exist. It is empty if the catalog knows none."""
    return layout.target if layout.is_path else spark.catalog.getDatabase(layout.target).locationUri or ""


def default_fs(spark: SparkSession) -> str:
    """Return Hadoop's default file system, in which a path without a scheme lies."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    return str(hadoop.get("fs.defaultFS", ""))
