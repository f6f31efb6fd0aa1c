"""Rows that a replay of the change log yields and the current state lacks, and keys that the state has twice."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.image_count import image_counts
from airflow_provider_db2cdc.spark.events.row_multiset import COPY
from airflow_provider_db2cdc.spark.quoting import quoted

AT = ("__batch", "__commit_lsn", "__intent_lsn", "__ordinal")
"""The order of the change log. Batches come first: a restored source uses its LSNs again."""


def doubled_keys(replica: Replica) -> DataFrame:
    """Return the keys that several rows of the state share. A merge would keep each of these rows.

    Without a key, these are the images whose copies are not numbered from 1 without a gap.
    """
    names = [F.col(quoted(name)) for name in replica.schema.row_key]
    rows, state = F.count("*"), load(replica.spark, replica.layout.state(replica.table))
    misnumbered = (F.count_distinct(COPY) < rows) | (F.max(COPY) > rows)
    is_doubled = (rows > 1) if replica.schema.key else misnumbered
    return state.groupBy(*names).agg(is_doubled.alias("__doubled")).where("__doubled").drop("__doubled")


def lost_rows(replica: Replica) -> DataFrame:
    """Return rows (columns of the state) that the change log holds and the state lacks, with their last batch."""
    log = load(replica.spark, replica.layout.changes(replica.table)).where("op IS NOT NULL")
    return _by_key(replica, log) if replica.schema.key else _by_copies(replica, log)


def _by_key(replica: Replica, log: DataFrame) -> DataFrame:
    """Return the lost rows of a table with a key. The last event of a key decides."""
    last = log.groupBy("key").agg(F.max_by(F.struct("op", "after", *AT[:2]), F.struct(*AT)).alias("last"))
    alive = last.where("last.op <> 'd'").select("last.*")
    names = replica.schema.names
    rows = alive.select(*(F.col("after").getField(name).alias(name) for name in names), "__commit_lsn", "__batch")
    state = load(replica.spark, replica.layout.state(replica.table))
    same = [F.col(f"s.{quoted(name)}").eqNullSafe(F.col(f"t.{quoted(name)}")) for name in replica.key_names]
    return rows.alias("s").join(state.alias("t"), reduce(and_, same), "left_anti")


def _by_copies(replica: Replica, log: DataFrame) -> DataFrame:
    """Return the lost rows of a table without a key."""
    newest = image_counts(log)
    in_state = replica.rows().groupBy(F.col("row").alias("image")).agg(F.count("*").alias("in_state"))
    count_in_state: Column = F.coalesce("in_state", F.lit(0))
    short = newest.where("last.held > 0").join(in_state, "image", "left").where(F.col("last.held") > count_in_state)
    numbers = F.sequence((count_in_state + 1).cast("int"), F.col("last.held").cast("int"))
    copies = short.withColumn(COPY, F.explode(numbers))
    columns = [F.col("image").getField(name).alias(name) for name in replica.schema.names]
    origin = (F.col("last.commit").alias("__commit_lsn"), F.col("last.__batch").alias("__batch"))
    return copies.select(*columns, COPY, *origin)
