"""The deletion of old rows of an append-only table."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.conflict import repeat_on_conflict
from airflow_provider_db2cdc.spark.delta.ownership import APPEND_ONLY
from airflow_provider_db2cdc.spark.delta.table_io import set_properties, sql_name, table_properties

REFUSED = "DELTA_CANNOT_MODIFY_APPEND_ONLY"
ATTEMPTS = 3


def delete_logged_rows(
    spark: SparkSession, name: DeltaName, condition: str, properties: Mapping[str, str] | None = None
) -> int:
    """Delete rows of an append-only table, and return how many. `properties` are set before.

    The table accepts deletes only meanwhile, so that deletes of others stay refused. If the run dies within,
    `ensure_append_only` repairs the table, and so does the next tick that prepares it. A tick may also do so in the
    middle. Then the deletion starts again. Appends of a tick that meet one of these commits are repeated there.
    """
    for attempt in range(ATTEMPTS):
        set_properties(spark, name, {**(properties or {}), APPEND_ONLY: "false"})
        try:
            deleted = repeat_on_conflict(lambda: delete_rows(spark, name, condition), name.name)
        except Exception as error:
            set_properties(spark, name, {APPEND_ONLY: "true"})
            if REFUSED not in str(error) or attempt + 1 == ATTEMPTS:
                raise
        else:
            set_properties(spark, name, {APPEND_ONLY: "true"})
            return deleted
    raise AssertionError("the last attempt returns or raises")


def ensure_append_only(spark: SparkSession, name: DeltaName) -> None:
    """Make a log append-only again, if a run died while it deleted rows."""
    if table_properties(spark, name).get(APPEND_ONLY) != "true":
        set_properties(spark, name, {APPEND_ONLY: "true"})


@failpoint("delete_rows")
def delete_rows(spark: SparkSession, name: DeltaName, condition: str) -> int:
    """Delete the rows of a table that a condition names, and return how many."""
    row = spark.sql(f"DELETE FROM {sql_name(name)} WHERE {condition}").first()
    return int(row["num_affected_rows"]) if row is not None else 0
