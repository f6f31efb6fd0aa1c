"""The change log of a table as a repair reads it."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.repair.repair import Repair
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.apply.log_replay import AT
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.envelope import key_struct, row_type

EVENT_ID = ("__commit_lsn", "change_lsn", "op")
"""What distinguishes the events of a table in the source's log. An update of a key may be two events of one row."""


def log_rows(replica: Replica, first_batch: int, before: int) -> DataFrame:
    """Return the events in the change log of the batches from `first_batch` on and before a number, see `events_of`.

    :raises TargetError: when the log has no column for one of the plan's.
    """
    log = load(replica.spark, replica.layout.changes(replica.table))
    lacking = [name for name in replica.schema.names if name not in log.select("after.*").columns]
    if lacking:
        raise TargetError(
            f"{replica.table}: its change log lacks {', '.join(lacking)}, which the source has gained",
            "Let a tick run first. It adds them.",
        )
    return events_of(log.where((F.col("__batch") >= first_batch) & (F.col("__batch") < before)), replica.schema)


def events_of(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the events among change log rows: their place, op, key, images, and the facts of their source.

    Images have the types of the plan: a log keeps an older type until the next tick.
    """

    def image(name: str) -> Column:
        fields = (F.col(name).getField(column).alias(column) for column in schema.names)
        return F.when(F.col(name).isNotNull(), F.struct(*fields).cast(row_type(schema))).alias(name)

    facts = (F.col(f"source.{name}").alias(name) for name in ("change_lsn", "ts_us"))
    is_pulled = F.coalesce(F.col("source.snapshot") == "false", F.lit(False)).alias("is_pulled")
    events = rows.where("op IS NOT NULL")
    typed = events.select(*AT, "op", image("before"), image("after"), "key", *facts, is_pulled)
    return typed.withColumn("key", _typed_key(schema))


def _typed_key(schema: TableSchema) -> Column:
    if not schema.key:
        return key_struct(schema, "key")
    key = F.struct(*(F.col("key").getField(name).alias(name) for name in schema.key))
    return key.cast(row_type(schema, schema.key))


def touched_parts(schema: TableSchema) -> Column:
    """Return what an event touches: its key, or without a key its images, as an array."""
    if schema.key:
        return F.array("key")
    return F.filter(F.array("before", "after"), lambda image: image.isNotNull())


def within_commits(repair: Repair) -> Column:
    """Return whether a commit may belong to the interval of a repair, as far as its ends are known as commits."""
    commit, ends = F.col("__commit_lsn"), [F.lit(True)]
    if repair.type == "backfill":
        ends += [] if repair.after is None else [commit > str(repair.after)]
        ends += [] if repair.upto is None else [commit <= str(repair.upto)]
    return reduce(and_, ends)


def within_times(repair: Repair) -> Column:
    """Return whether the time of an event is within the ends of a repair's interval that are not known as commits."""
    at_us, ends = F.col("ts_us"), [F.lit(True)]
    if repair.type == "backfill":
        ends += [at_us > repair.begin_ms * 1000] if repair.after is None else []
        ends += [at_us <= repair.end_ms * 1000] if repair.upto is None else []
    return reduce(and_, ends)
