"""Tables without a key: cdc/copies.py's rule, set by set; an image is a struct of all columns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import signed_images
from airflow_provider_db2cdc.spark.events.net_effect import if_few_to_all

COPY = "__copy"
"""The state's column that numbers equal rows, from 1."""


def count_deltas(batch: DataFrame) -> DataFrame:
    """Return by how many copies (`delta`) each `image` of a batch of the change log grows, and the last `commit`."""
    at = F.struct("__commit_lsn", "__intent_lsn")
    signed = _changes(batch).select(at.alias("at"), signed_images().alias("one")).select("at", "one.*")
    counted = signed.groupBy(F.col("image").alias("__group")).agg(
        # An image that a group is made by comes out with its zeros unsigned; this one is as it was written.
        F.max_by("image", "at").alias("image"),
        F.sum("sign").alias("delta"),
        F.max("at.__commit_lsn").alias("commit"),
    )
    return counted.where("delta <> 0").select("image", "delta", "commit")


def copy_effects(deltas: DataFrame, count: int, state: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the state's rows to add and to remove (`__present`); `state` (`row`) holds the deltas' images at least.

    `count` is how many deltas there are: each brings a whole row along, so only a few may go to every executor.
    """
    images, changed = state.select(F.col("row").alias("image")), deltas.select("image")
    held = images.join(if_few_to_all(changed, count), "image", "left_semi").groupBy("image").count()
    before = F.coalesce(F.col("count"), F.lit(0))
    after = F.greatest(before + F.col("delta"), F.lit(0))
    added = F.when(after > before, F.sequence(before + 1, after))
    removed = F.when(after < before, F.sequence(after + 1, before))
    copies = deltas.join(held, "image", "left").select(
        "image", "commit", (after > before).alias("__present"), F.explode(F.coalesce(added, removed)).alias(COPY)
    )
    return _state_rows(copies, F.col("commit"), F.col("__present"), schema)


def staged_copies(staged: DataFrame, schema: TableSchema, mark: Lsn) -> DataFrame:
    """Return a snapshot's rows (`row`) as state rows that stand at `mark`, each with its number among its equals."""
    number = F.row_number().over(Window.partitionBy("row").orderBy(F.lit(1)))
    copies = staged.select(F.col("row").alias("image"), number.alias(COPY))
    return _state_rows(copies, F.lit(str(mark)), F.lit(True), schema)


def touched(log: DataFrame) -> DataFrame:
    """Return the distinct images that the source's events in a part of the change log made come or go."""
    changes = _changes(log).where("source.snapshot = 'false'")
    return changes.select(signed_images().alias("one")).select("one.image").distinct()


def settled(staged: DataFrame, moved: DataFrame, unknown: DataFrame | None) -> DataFrame:
    """Return the staged rows (`row`, `chunk`) that a read settles: of those unknown (None: all) the untouched ones."""
    rows = staged.withColumn("image", F.col("row"))
    return _settled(rows, moved, unknown).select("row", "chunk")


def surplus(state: DataFrame, staged: DataFrame, moved: DataFrame, unknown: DataFrame | None, whole: bool) -> DataFrame:
    """Return the rows (`row`) that the state (`row`) has too many of what a read settles, which are `staged`.

    `whole` says that all of the table was read; else only images that were met are compared.
    """
    held = _settled(state.select(F.col("row").alias("image")), moved, unknown).groupBy("image").count()
    read = staged.groupBy(F.col("row").alias("image")).agg(F.count("*").alias("read"))
    over = F.col("count") - F.coalesce(F.col("read"), F.lit(0))
    both = held.join(read, "image", "left" if whole else "inner").where(over > 0)
    return both.select(F.col("image").alias("row"), F.explode(F.sequence(F.lit(1), over))).select("row")


def _settled(rows: DataFrame, moved: DataFrame, unknown: DataFrame | None) -> DataFrame:
    calm = rows.join(moved, "image", "left_anti")
    return calm if unknown is None else calm.join(unknown, "image", "left_semi")


def _changes(log: DataFrame) -> DataFrame:
    return log.where("op IN ('c', 'u', 'd')")


def _state_rows(copies: DataFrame, commit: Column, present: Column, schema: TableSchema) -> DataFrame:
    columns = [F.col("image").getField(name).alias(name) for name in schema.names]
    at = (commit.alias("__commit_lsn"), present.alias("__present"))
    return copies.select(*columns, F.col(COPY).cast("int").alias(COPY), *at)
