"""The change log of a table as a repair reads it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.repair.repair import Repair, Replay
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.apply.log_replay import AT
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load

EVENT_ID = ("__commit_lsn", "change_lsn", "op")
"""What distinguishes the events of a table in the source's log. An update of a key may be two events of one row."""

IS_OF_SOURCE = "snapshot = 'false'"


def log_rows(replica: Replica, before: int) -> DataFrame:
    """Return the events in the change log of the batches before a number, see `events_of`."""
    log = load(replica.spark, replica.layout.changes(replica.table))
    lacking = [name for name in replica.schema.names if name not in log.select("after.*").columns]
    if lacking:
        raise TargetError(
            f"{replica.table}: its change log lacks {', '.join(lacking)}, which the source has gained",
            "Let a tick run first. It adds them.",
        )
    return events_of(log.where(F.col("__batch") < before), replica.schema)


def events_of(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the events among change log rows: their place, op, key, images, and the facts of their source."""

    def image(name: str) -> Column:
        fields = (F.col(name).getField(column).alias(column) for column in schema.names)
        return F.when(F.col(name).isNotNull(), F.struct(*fields)).alias(name)

    facts = (F.col(f"source.{name}").alias(name) for name in ("change_lsn", "snapshot", "ts_us"))
    return rows.where("op IS NOT NULL").select(*AT, "op", "key", image("before"), image("after"), *facts)


def in_interval(repair: Repair) -> Column:
    """Return whether an event belongs to the interval of a repair, as `Backfill.holds` says."""
    if isinstance(repair, Replay):
        return F.lit(True)
    commit, at_us = F.col("__commit_lsn"), F.col("ts_us")
    is_after = at_us > repair.begin_ms * 1000 if repair.after is None else commit > str(repair.after)
    return is_after & (at_us <= repair.end_ms * 1000 if repair.upto is None else commit <= str(repair.upto))
