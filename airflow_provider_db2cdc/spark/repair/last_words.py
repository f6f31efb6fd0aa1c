"""What the change log says that the state holds, and where the state differs."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.apply.log_replay import AT, same_row
from airflow_provider_db2cdc.spark.apply.state_diff import is_different
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.broadcast import are_small
from airflow_provider_db2cdc.spark.events.envelope import row_type
from airflow_provider_db2cdc.spark.events.image_count import image_counts
from airflow_provider_db2cdc.spark.events.row_multiset import COPY
from airflow_provider_db2cdc.spark.events.state_rows import key_bounds
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.repair.log_rows import EVENT_ID

PLACE = ("__commit_lsn", "__batch")
DOUBLED = "__doubled"
"""Whether several rows of the state have a key. A merge would keep each of them."""


@dataclass(frozen=True)
class Touched:
    """The keys, or without a key the images, of an interval's events: `part`. They lie within `bounds` of the state."""

    rows: DataFrame
    count: int
    bounds: str
    is_small: bool

    def named(self, name: str) -> DataFrame:
        """Return the keys or images as one column, for a join."""
        rows = self.rows.withColumnRenamed("part", name)
        return F.broadcast(rows) if self.is_small else rows


def touched_rows(parts: DataFrame, schema: TableSchema) -> Touched:
    """Return the keys or images (`part`) of an interval. It is an action."""
    kept = parts.localCheckpoint(eager=False)
    values = kept.select("part.*")
    bounds = key_bounds(values, schema)
    return Touched(kept, bounds.rows, bounds.bounds, are_small(values, bounds.rows, schema))


def logged_rows(log: DataFrame, schema: TableSchema, touched: Touched | None) -> DataFrame:
    """Return the rows that events of the log (`log_rows`) leave, of all keys or of those that were touched.

    They have the columns of the state. A row has the batch and the commit of its last event.
    """
    return _last_of_keys(log, schema, touched) if schema.key else _copies(log, schema, touched)


def held_rows(replica: Replica, touched: Touched | None) -> DataFrame:
    """Return the rows of the state, one for each key, of all keys or of those that were touched. See DOUBLED."""
    state, schema = load(replica.spark, replica.layout.state(replica.table)).alias("t"), replica.schema
    within = state.where(touched.bounds) if touched is not None and touched.bounds else state
    row = F.struct(*(F.col(f"t.{quoted(name)}").alias(name) for name in schema.names)).cast(row_type(schema))
    rows = within.select(row.alias("row"), *copy_name(schema)).withColumn("part", _part(schema))
    if touched is not None:
        rows = rows.join(touched.named("part"), "part", "left_semi")
    by_key = rows.groupBy("part", *copy_name(schema)).agg(F.first("row").alias("row"), F.count("*").alias("copies"))
    return by_key.select("row.*", *copy_name(schema), F.lit(0).alias("__batch"), (F.col("copies") > 1).alias(DOUBLED))


def _part(schema: TableSchema) -> Column:
    """Return the key of a row of the state, or without a key its image."""
    key = F.struct(*(F.col("row").getField(name).alias(name) for name in schema.row_key))
    return key.cast(row_type(schema, schema.row_key))


def differences(logged: DataFrame, held: DataFrame, replica: Replica) -> DataFrame:
    """Return the merge rows (`__present`, DOUBLED) after which the state holds the logged rows instead of the held."""
    schema = replica.schema
    joined = (
        logged.withColumn("__present", F.lit(True))
        .alias("s")
        .join(held.alias("t"), same_row(replica.key_names), "full")
    )
    is_surplus, is_doubled = F.col("s.__present").isNull(), F.coalesce(f"t.{DOUBLED}", F.lit(False))
    is_to_merge = is_surplus | is_doubled | is_different(schema)
    columns = [_either(name, is_surplus) for name in (*schema.names, *copy_name(schema))]
    origin = [F.col(f"s.{name}").alias(name) for name in PLACE]
    flags = ((~is_surplus).alias("__present"), is_doubled.alias(DOUBLED))
    return joined.where(is_to_merge).select(*columns, *origin, *flags)


def copy_name(schema: TableSchema) -> tuple[str, ...]:
    """Return the column that numbers equal rows, where there is no key."""
    return () if schema.key else (COPY,)


def _either(name: str, is_surplus: Column) -> Column:
    return F.when(is_surplus, F.col(f"t.{quoted(name)}")).otherwise(F.col(f"s.{quoted(name)}")).alias(name)


def _last_of_keys(log: DataFrame, schema: TableSchema, touched: Touched | None) -> DataFrame:
    events = log if touched is None else log.join(touched.named("key"), "key", "left_semi")
    last = events.groupBy("key").agg(F.max_by(F.struct("op", "after", *PLACE), F.struct(*AT)).alias("last"))
    alive = last.where("last.op <> 'd'").select("last.*")
    return alive.select(*(F.col("after").getField(name).alias(name) for name in schema.names), *PLACE)


def _copies(log: DataFrame, schema: TableSchema, touched: Touched | None) -> DataFrame:
    # A doubled event counts once. Equal rows that a snapshot read are no copies of one event.
    pulled = log.where("is_pulled").dropDuplicates(["__batch", *EVENT_ID])
    events = pulled.unionByName(log.where("NOT is_pulled"))
    counts = image_counts(events, None if touched is None else touched.named("image")).where("last.held > 0")
    copies = counts.withColumn(COPY, F.explode(F.sequence(F.lit(1), F.col("last.held").cast("int"))))
    columns = (F.col("image").getField(name).alias(name) for name in schema.names)
    origin = (F.col("last.commit").alias("__commit_lsn"), F.col("last.__batch").alias("__batch"))
    return copies.select(*columns, COPY, *origin)
