"""Events and rows of tables without a key: the rule of `cdc.event.row_multiset`, applied to frames.

An image is a struct of all columns.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.broadcast import are_small
from airflow_provider_db2cdc.spark.events.envelope import signed_images

COPY = "__copy"
"""The state's column that numbers equal rows, from 1."""


def count_deltas(batch: DataFrame) -> DataFrame:
    """Return how many more copies a batch of the change log makes of each image: image, delta, last commit."""
    place = F.struct("__commit_lsn", "__intent_lsn")
    signed = _changes(batch).select(place.alias("place"), signed_images().alias("signed")).select("place", "signed.*")
    counted = signed.groupBy(F.col("image").alias("__group")).agg(
        # An image that is grouped by loses the sign of its zeros. This one is as it was written.
        F.max_by("image", "place").alias("image"),
        F.sum("sign").alias("delta"),
        F.max("place.__commit_lsn").alias("commit"),
    )
    return counted.where("delta <> 0").select("image", "delta", "commit")


def copy_effects(deltas: DataFrame, count: int, state: DataFrame, schema: TableSchema) -> DataFrame:
    """Return state rows to add (`__present` true) and to remove (false).

    `state` (`row`) must hold at least the images of the deltas. `count` is the number of deltas: each has a whole row,
    so only few and small ones may be broadcast.
    """
    images, changed = state.select(F.col("row").alias("image")), deltas.select("image")
    if are_small(deltas.select("image.*"), count, schema):
        changed = F.broadcast(changed)
    held = images.join(changed, "image", "left_semi").groupBy("image").count()
    before = F.coalesce(F.col("count"), F.lit(0))
    after = F.greatest(before + F.col("delta"), F.lit(0))
    added = F.when(after > before, F.sequence(before + 1, after))
    removed = F.when(after < before, F.sequence(after + 1, before))
    copies = deltas.join(held, "image", "left").select(
        "image", "commit", (after > before).alias("__present"), F.explode(F.coalesce(added, removed)).alias(COPY)
    )
    return _state_rows(copies, F.col("commit"), F.col("__present"), schema)


def staged_copies(staged: DataFrame, schema: TableSchema, mark: Lsn) -> DataFrame:
    """Return a snapshot's rows (`row`) as state rows at the commit LSN `mark`, with equal rows numbered from 1."""
    number = F.row_number().over(Window.partitionBy("row").orderBy(F.lit(1)))
    copies = staged.select(F.col("row").alias("image"), number.alias(COPY))
    return _state_rows(copies, F.lit(str(mark)), F.lit(True), schema)


def touched(log: DataFrame) -> DataFrame:
    """Return the distinct images (`image`) that events of the source added or removed in a part of the change log."""
    changes = _changes(log).where("source.snapshot = 'false'")
    return changes.select(signed_images().alias("signed")).select("signed.image").distinct()


def settled(staged: DataFrame, moved: DataFrame, unknown: DataFrame | None) -> DataFrame:
    """Return the staged rows (`row`, `chunk`) that a read settles.

    They are those whose image is `unknown` (None: any) and did not move during the read.
    """
    rows = staged.withColumn("image", F.col("row"))
    return _settled(rows, moved, unknown).select("row", "chunk")


def unequal(staged: DataFrame, state: DataFrame) -> DataFrame:
    """Return the settled rows (`row`, `chunk`) whose image the state (`row`) holds in another number."""
    read = staged.groupBy(F.col("row").alias("image")).agg(F.count("*").alias("read"))
    held = state.groupBy(F.col("row").alias("image")).agg(F.count("*").alias("held"))
    differing = read.join(held, "image", "left").where("held IS NULL OR held <> read")
    return staged.join(differing.select(F.col("image").alias("row")), "row", "left_semi").select("row", "chunk")


def surplus(state: DataFrame, staged: DataFrame, moved: DataFrame, unknown: DataFrame | None, whole: bool) -> DataFrame:
    """Return the surplus rows (`row`) of the state (`row`), as far as a read settles it. `staged` are settled rows.

    With `whole` the read covered the table. Else only images that the read met are compared.
    """
    held = _settled(state.select(F.col("row").alias("image")), moved, unknown).groupBy("image").count()
    read = staged.groupBy(F.col("row").alias("image")).agg(F.count("*").alias("read"))
    excess = F.col("count") - F.coalesce(F.col("read"), F.lit(0))
    compared = held.join(read, "image", "left" if whole else "inner").where(excess > 0)
    return compared.select(F.col("image").alias("row"), F.explode(F.sequence(F.lit(1), excess))).select("row")


def _settled(rows: DataFrame, moved: DataFrame, unknown: DataFrame | None) -> DataFrame:
    unmoved = rows.join(moved, "image", "left_anti")
    return unmoved if unknown is None else unmoved.join(unknown, "image", "left_semi")


def _changes(log: DataFrame) -> DataFrame:
    return log.where("op IN ('c', 'u', 'd')")


def _state_rows(copies: DataFrame, commit: Column, present: Column, schema: TableSchema) -> DataFrame:
    columns = [F.col("image").getField(name).alias(name) for name in schema.names]
    commit_and_presence = (commit.alias("__commit_lsn"), present.alias("__present"))
    return copies.select(*columns, F.col(COPY).cast("int").alias(COPY), *commit_and_presence)
