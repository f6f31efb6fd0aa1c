"""Rows of abandoned batches: they are in the change log, but not in the state, and may not be in the source.

A tick that dies after its append leaves events in the change log that no merge brings into the state. If the table then
starts again, no run finishes that batch. The snapshot publishes deletes of these rows for readers of the change log.
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


def abandoned_rows(replica: Replica, abandoned: Sequence[int], batch: int) -> DataFrame:
    """Return the rows (`row`) that the state lacks and whose last event up to `batch` is of an abandoned batch."""

    def last_rows_of(number: int) -> DataFrame:
        events = replica.batch_events(number)
        effects = net_effects(events, replica.schema, count_batch(events)).where("row IS NOT NULL").select("row")
        rows = effects.unionByName(replica.read_rows(number))
        later = replica.window(number, batch).where("op IS NOT NULL").select("key")
        return _with_key(rows, replica.schema).join(later, "key", "left_anti")

    rows = reduce(DataFrame.unionByName, map(last_rows_of, abandoned))
    return rows.join(_with_key(replica.rows(), replica.schema), "key", "left_anti").select("row")


def abandoned_copies(replica: Replica, abandoned: Sequence[int], read: DataFrame) -> DataFrame:
    """Return the rows (`row`) of a table without a key that abandoned batches have published and `read` lacks.

    It has at least as many copies of each row as the change log has more than the state. More copies do no harm: a
    count of the change log never falls below zero.
    """

    def copies_of(number: int) -> DataFrame:
        events = replica.batch_events(number)
        added = count_deltas(events).where("delta > 0").withColumn("copy", F.explode(F.sequence(F.lit(1), "delta")))
        return added.select(F.col("image").alias("row")).unionByName(replica.read_rows(number))

    copies = reduce(DataFrame.unionByName, map(copies_of, abandoned))
    return copies.join(read.select("row"), "row", "left_anti")


def _with_key(rows: DataFrame, schema: TableSchema) -> DataFrame:
    return rows.withColumn("key", key_struct(schema, "row"))
