"""Rows that only batches which were given up have told of: they are in the change log, and neither state nor source.

A tick that dies behind its append leaves events that no merge has brought into the state. Where its table is begun anew
nobody finishes the batch; who follows the change log is told by the snapshot what became of these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.envelope import key_struct
from airflow_provider_db2cdc.spark.events.net_effect import count_batch, net_effects
from airflow_provider_db2cdc.spark.events.row_multiset import count_deltas


def abandoned_rows(replica: Replica, left: Sequence[int], batch: int) -> DataFrame:
    """Return the rows (`row`) of which a left batch was the last one to tell, up to `batch`, and the state lacks."""

    def told_by(number: int) -> DataFrame:
        own = replica.batch_events(number)
        effects = net_effects(own, replica.schema, count_batch(own)).where("row IS NOT NULL").select("row")
        rows = effects.unionByName(replica.read_rows(number))
        later = replica.window(number, batch).where("op IS NOT NULL").select("key")
        return _keyed(rows, replica.schema).join(later, "key", "left_anti")

    told = reduce(DataFrame.unionByName, map(told_by, left))
    return told.join(_keyed(replica.rows(), replica.schema), "key", "left_anti").select("row")


def abandoned_copies(replica: Replica, left: Sequence[int], read: DataFrame) -> DataFrame:
    """Return the rows (`row`) of a table without a key that left batches have told of and that were not `read`.

    At least so many copies of each as the change log has more than the state: its counts never fall below none.
    """

    def told_by(number: int) -> DataFrame:
        own = replica.batch_events(number)
        grown = count_deltas(own).where("delta > 0").withColumn("copy", F.explode(F.sequence(F.lit(1), "delta")))
        return grown.select(F.col("image").alias("row")).unionByName(replica.read_rows(number))

    told = reduce(DataFrame.unionByName, map(told_by, left))
    return told.join(read.select("row"), "row", "left_anti")


def _keyed(rows: DataFrame, schema: TableSchema) -> DataFrame:
    return rows.withColumn("key", key_struct(schema, "row"))
