"""Ranges of a change log whose begin retention may have deleted."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance.retention import PROPERTY, LogHorizon
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.read.change_range import BatchRange, ChangeRange, LsnRange
from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon
from airflow_provider_db2cdc.spark.delta.table_io import load


def check_kept(log: DataFrame, target: str, table: TableId, within: ChangeRange) -> None:
    """Check that a change log still has the begin of a range. Call it after the log's version is known.

    The horizon is stored before any event is deleted. So a version that was read earlier has all events after it.

    :raises TargetError: when retention has deleted events that the range may have.
    """
    spark, layout = log.sparkSession, Layout(target)
    horizon = log_horizon(spark, layout, table)
    if not horizon.is_trimmed:
        return
    match within:
        case BatchRange():
            is_kept, begin = within.after >= horizon.batch - 1, f"batches after {horizon.batch - 1}"
        case LsnRange():
            is_kept = horizon.has_commits_after(within.ends[0])
            begin = f"commits after {horizon.greatest or horizon.after}"
        case _:
            since_ms = _trimmed_until_ms(spark, layout, table, horizon, log)
            begin = f"commits after {datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec='milliseconds')}"
            is_kept = within.after is not None and within.after.timestamp() * 1000 >= since_ms
    if not is_kept:
        raise TargetError(
            f"{table}: the change log is complete only for {begin}, and the range begins earlier",
            f"Begin with `BatchRange({horizon.batch - 1})` or later, or take the rows from `read_state`. "
            f"{PROPERTY} decides how long events are kept.",
        )


def _trimmed_until_ms(spark: SparkSession, layout: Layout, table: TableId, horizon: LogHorizon, log: DataFrame) -> int:
    """Return a time that no deleted event is later than.

    Deleted `r` events have the times of earlier plans than the horizon's. Deleted commits are earlier than those that
    the log has, whatever the source's clock is.
    """
    is_own = (F.col("schema") == table.schema) & (F.col("table") == table.name) & (F.col("batch") >= horizon.batch)
    [(planned_ms,)] = load(spark, layout.internal("batches")).where(is_own).agg(F.min("planned_at_ms")).collect()
    [(commit_us,)] = log.where("op IN ('c', 'u', 'd')").agg(F.min("source.ts_us")).collect()
    return max(int(planned_ms or 0), -(-int(commit_us or 0) // 1000))
