"""The horizon of a change log: the first batch that it has complete. Maintenance moves it when it trims the log.

Code that needs old events asks `log_horizon` first, and refuses what lies before it.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.delta.row_deletion import delete_logged_rows
from airflow_provider_db2cdc.spark.delta.table_io import load, table_exists, table_properties

HORIZON = "db2cdc.logHorizon"
"""The change log's property with its horizon."""


def log_horizon(spark: SparkSession, layout: Layout, table: TableId) -> LogHorizon:
    """Return the horizon of a table's change log. A log that was never trimmed, or does not exist, has batch 0."""
    name = layout.changes(table)
    if not table_exists(spark, name):
        return LogHorizon()
    return LogHorizon.parse(table_properties(spark, name).get(HORIZON, ""))


def trim_log(spark: SparkSession, layout: Layout, table: TableId, horizon: LogHorizon) -> int:
    """Delete the events of batches before the horizon, and return how many there were.

    The horizon is stored before any event is deleted. So no reader takes a log for complete that is not. If the run
    dies, the next one deletes the rest.
    """
    name = layout.changes(table)
    return delete_logged_rows(spark, name, f"`__batch` < {horizon.batch}", {HORIZON: str(horizon)})


def has_rows_before(spark: SparkSession, layout: Layout, table: TableId, horizon: LogHorizon) -> bool:
    """Return whether a change log still has events of batches before a horizon."""
    return not load(spark, layout.changes(table)).where(f"`__batch` < {horizon.batch}").isEmpty()
