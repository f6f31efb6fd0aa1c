"""The ranges that applied batches of a table pulled: the rule of `cdc.repair.pulled`, applied to the batch log."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.delta.table_io import load


@dataclass(frozen=True)
class PulledRanges:
    """What batches pulled since a table began with batch `begun`, at `begun_ms`, after the position `after`.

    `ranges` has a row for each of them: `covering` (the batch), `after_lsn`, `upto_lsn`.
    """

    after: Lsn
    begun: int
    begun_ms: int
    ranges: DataFrame

    def under_covering(self, events: DataFrame) -> DataFrame:
        """Return change log rows with the number of the batch that pulled their commit."""
        is_covered = (F.col("__commit_lsn") > F.col("after_lsn")) & (F.col("__commit_lsn") <= F.col("upto_lsn"))
        joined = events.join(F.broadcast(self.ranges), is_covered)
        return joined.withColumn("__batch", F.col("covering")).select(*events.columns)


def read_pulled_ranges(spark: SparkSession, layout: Layout, table: TableId) -> PulledRanges | None:
    """Return the ranges of a table's applied batches, None without a batch."""
    is_table = (F.col("schema") == table.schema) & (F.col("table") == table.name)
    batches, commits = (load(spark, layout.internal(name)).where(is_table) for name in ("batches", "commits"))
    pulled = batches.where("repair IS NULL").join(commits.select("batch"), "batch", "left_semi")
    facts = F.struct("batch", "after_lsn", "planned_at_ms")
    newest = F.max_by(facts, F.when(_begins(), F.col("batch"))).alias("newest")
    [row] = pulled.agg(newest, F.min_by(facts, "batch").alias("oldest")).collect()
    first = row["newest"] or row["oldest"]
    if first is None:
        return None
    since = pulled.where((F.col("batch") >= first["batch"]) & (F.col("after_lsn") < F.col("upto_lsn")))
    ranges = since.select(F.col("batch").alias("covering"), "after_lsn", "upto_lsn")
    return PulledRanges(Lsn.parse(first["after_lsn"]), first["batch"], first["planned_at_ms"], ranges)


def _begins() -> Column:
    """Return whether a batch begins its table, as `cdc.offset.batch_history.begins` says."""
    kind, number = (F.get_json_object("chunk_range", f"$.{name}") for name in ("snapshot_kind", "first"))
    is_first_group = (kind == "initial") & (number == "0")
    return F.when(F.col("chunk_range").isNull(), F.col("after_lsn") == F.col("upto_lsn")).otherwise(is_first_group)
