"""The ranges that applied batches of a table pulled: the rule of `cdc.repair.pulled`, applied to the batch log."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.repair.pulled import Beginning
from airflow_provider_db2cdc.cdc.repair.repair import Repair
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.ledger.batch_rows import begins_table


@dataclass(frozen=True)
class PulledBatches:
    """The applied batches of a table that pulled changes: `batch`, `after_lsn`, `upto_lsn`, and what began it.

    `beginning` is None without such a batch. `logged` is how many events an interval may have in the change log.
    """

    rows: DataFrame
    beginning: Beginning | None
    logged: int

    def under_covering(self, events: DataFrame) -> DataFrame:
        """Return change log rows, each with the number of the newest batch whose range holds its commit."""
        assert self.beginning is not None
        since = self.rows.where(F.col("batch") >= self.beginning.batch).withColumnRenamed("batch", "covering")
        is_covered = (F.col("__commit_lsn") > F.col("after_lsn")) & (F.col("__commit_lsn") <= F.col("upto_lsn"))
        commits = events.select("__commit_lsn").distinct().join(F.broadcast(since), is_covered)
        covering = commits.groupBy("__commit_lsn").agg(F.max("covering").alias("covering"))
        return events.join(covering, "__commit_lsn").withColumn("__batch", F.col("covering")).select(*events.columns)


def read_pulled_batches(replica: Replica, work: Repair) -> PulledBatches:
    """Return the applied batches of a table that are no repairs, by one query."""
    table, spark = replica.table, replica.spark
    is_table = (F.col("schema") == table.schema) & (F.col("table") == table.name)
    planned, applied = (load(spark, replica.layout.internal(name)).where(is_table) for name in ("batches", "commits"))
    events = (F.col("creates") + F.col("updates") + F.col("deletes") + F.col("reads")).alias("events")
    # A batch may be recorded as applied twice.
    counted = applied.select("batch", events).groupBy("batch").agg(F.max("events").alias("events"))
    batches = planned.where("repair IS NULL").join(counted, "batch")
    facts = F.struct("batch", "after_lsn", "planned_at_ms")
    newest = F.max_by(facts, F.when(begins_table(), F.col("batch"))).alias("newest")
    logged = F.sum(F.when(_overlaps(work), F.col("events"))).alias("logged")
    [row] = batches.agg(newest, F.min_by(facts, "batch").alias("oldest"), logged).collect()
    first = row["newest"] or row["oldest"]
    beginning = (
        None if first is None else Beginning(Lsn.parse(first["after_lsn"]), first["batch"], first["planned_at_ms"])
    )
    return PulledBatches(batches.select("batch", "after_lsn", "upto_lsn"), beginning, row["logged"] or 0)


def _overlaps(work: Repair) -> Column:
    """Return whether a batch may have events of the interval. A snapshot's events are at the end of its range."""
    if work.type == "replay":
        return F.lit(True)
    is_later = F.lit(True) if work.after is None else F.col("upto_lsn") > str(work.after)
    return is_later if work.upto is None else is_later & (F.col("after_lsn") <= str(work.upto))
