"""Rows that the change log holds, event by event, and the current state does not."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.envelope import signed_images
from airflow_provider_db2cdc.spark.events.row_multiset import COPY
from airflow_provider_db2cdc.spark.quoting import quoted

AT = ("__batch", "__commit_lsn", "__intent_lsn", "__ordinal")
"""The order of the change log. Batches come first: a source that was restored counts its LSNs again."""


def lost_rows(replica: Replica) -> DataFrame:
    """Return what the change log holds and the state lacks, as rows of the state with the batch that told of each."""
    log = load(replica.spark, replica.layout.changes(replica.table)).where("op IS NOT NULL")
    return _by_key(replica, log) if replica.schema.key else _by_copies(replica, log)


def _by_key(replica: Replica, log: DataFrame) -> DataFrame:
    """The last event of a key decides."""
    last = log.groupBy("key").agg(F.max_by(F.struct("op", "after", *AT[:2]), F.struct(*AT)).alias("last"))
    alive = last.where("last.op <> 'd'").select("last.*")
    names = replica.schema.names
    rows = alive.select(*(F.col("after").getField(name).alias(name) for name in names), "__commit_lsn", "__batch")
    state = load(replica.spark, replica.layout.state(replica.table))
    same = [F.col(f"s.{quoted(name)}").eqNullSafe(F.col(f"t.{quoted(name)}")) for name in replica.key_names]
    return rows.alias("s").join(state.alias("t"), reduce(and_, same), "left_anti")


def _by_copies(replica: Replica, log: DataFrame) -> DataFrame:
    """Copies are counted by `cdc/copies.py`'s rule: `r` rows of one batch replace a count, and none is below zero."""
    signed = log.select(*AT[:2], F.col("op"), signed_images().alias("one")).select(*AT[:2], "op", "one.*")
    is_read = F.col("op") == "r"
    batches = signed.groupBy("image", "__batch").agg(
        F.sum(F.when(is_read, 1)).alias("read"),
        F.sum(F.when(~is_read, F.col("sign")).otherwise(0)).alias("delta"),
        F.max("__commit_lsn").alias("commit"),
    )
    order = Window.partitionBy("image").orderBy("__batch")
    steps = batches.withColumn("reset", F.count("read").over(order))
    since = Window.partitionBy("image", "reset").orderBy("__batch")
    counts = steps.withColumn("sum", F.sum(F.coalesce("read", "delta")).over(since))
    lowest = F.least(F.lit(0), F.min("sum").over(since))
    counted = counts.withColumn("held", F.col("sum") - lowest)
    newest = counted.groupBy("image").agg(F.max_by(F.struct("held", "commit", "__batch"), "__batch").alias("last"))
    held = replica.rows().groupBy(F.col("row").alias("image")).agg(F.count("*").alias("there"))
    there: Column = F.coalesce("there", F.lit(0))
    short = newest.where("last.held > 0").join(held, "image", "left").where(F.col("last.held") > there)
    numbers = F.sequence((there + 1).cast("int"), F.col("last.held").cast("int"))
    copies = short.withColumn(COPY, F.explode(numbers))
    columns = [F.col("image").getField(name).alias(name) for name in replica.schema.names]
    at = (F.col("last.commit").alias("__commit_lsn"), F.col("last.__batch").alias("__batch"))
    return copies.select(*columns, COPY, *at)
