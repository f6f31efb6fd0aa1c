"""Rows of the current state compared with the change log: lost ones, doubled ones, and those to delete."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.envelope import key_struct
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


def kept_rows(replica: Replica, doubled: DataFrame) -> DataFrame | None:
    """Return the rows of doubled keys that stay, None if the log has all events. A trimmed log may not have theirs.

    Of a key without an event it is the row of the newest batch. Without a key, it is each distinct copy, numbered from
    1 without a gap.
    """
    if not log_horizon(replica.spark, replica.layout, replica.table).is_trimmed:
        return None
    state = load(replica.spark, replica.layout.state(replica.table)).alias("t")
    rows = state.join(doubled.alias("s"), same_row(doubled.columns), "left_semi")
    return _newest_rows(replica, rows) if replica.schema.key else _numbered_copies(replica, rows)


def _newest_rows(replica: Replica, rows: DataFrame) -> DataFrame:
    logged = load(replica.spark, replica.layout.changes(replica.table)).where("op IS NOT NULL").select("key")
    keyed = rows.select(F.struct("*").alias("row")).withColumn("key", key_struct(replica.schema, "row"))
    newest = F.max(F.struct("row.__batch", "row"))["row"]
    return keyed.join(logged, "key", "left_anti").groupBy("key").agg(newest.alias("row")).select("row.*")


def _numbered_copies(replica: Replica, rows: DataFrame) -> DataFrame:
    names = [quoted(name) for name in replica.schema.row_key]
    origin = F.max(F.struct("__batch", "__commit_lsn")).alias("origin")
    copies = rows.groupBy(*names, COPY).agg(origin).select(*names, COPY, "origin.*")
    return copies.withColumn(COPY, F.row_number().over(Window.partitionBy(*names).orderBy(COPY)))


def same_row(names: Iterable[str]) -> Column:
    """Return whether a row `s` and a row `t` have the same values in these columns."""
    return reduce(and_, (F.col(f"s.{quoted(name)}").eqNullSafe(F.col(f"t.{quoted(name)}")) for name in names))


def rows_to_delete(replica: Replica, low_batch: int) -> DataFrame:
    """Return the rows (`row`) of the state that no batch after `low_batch` wrote or published as `r`.

    A row that was read unchanged is published as `r`, but the state keeps its older batch number.
    """
    log = load(replica.spark, replica.layout.changes(replica.table))
    read_keys = log.where((F.col("__batch") > low_batch) & (F.col("op") == "r")).select("key")
    old = replica.rows(f"__batch <= {low_batch} OR __batch IS NULL")
    return old.withColumn("key", key_struct(replica.schema, "row")).join(read_keys, "key", "left_anti").select("row")


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
    return rows.alias("s").join(state.alias("t"), same_row(replica.key_names), "left_anti")


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
