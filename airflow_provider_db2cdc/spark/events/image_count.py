"""The copies of each image that a change log yields, by the rule of `cdc.event.row_multiset`."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.spark.events.envelope import signed_images


def image_counts(log: DataFrame, among: DataFrame | None = None) -> DataFrame:
    """Return each image of a table without a key: `image`, and `last` with its copies (`held`), `commit` and `__batch`.

    `r` rows of one batch replace an image's count, and no count falls below zero. With `among` (`image`) only these
    images are counted.
    """
    exploded = log.where("op IS NOT NULL").select("__batch", "__commit_lsn", "op", signed_images().alias("signed"))
    signed = exploded.select("__batch", "__commit_lsn", "op", "signed.*")
    is_read = F.col("op") == "r"
    batches = (
        (signed if among is None else signed.join(among, "image", "left_semi"))
        .groupBy("image", "__batch")
        .agg(
            F.sum(F.when(is_read, 1)).alias("read"),
            F.sum(F.when(~is_read, F.col("sign")).otherwise(0)).alias("delta"),
            F.max("__commit_lsn").alias("commit"),
        )
    )
    order = Window.partitionBy("image").orderBy("__batch")
    steps = batches.withColumn("reset", F.count("read").over(order))
    since = Window.partitionBy("image", "reset").orderBy("__batch")
    counts = steps.withColumn("sum", F.sum(F.coalesce("read", "delta")).over(since))
    lowest = F.least(F.lit(0), F.min("sum").over(since))
    counted = counts.withColumn("held", F.col("sum") - lowest)
    return counted.groupBy("image").agg(F.max_by(F.struct("held", "commit", "__batch"), "__batch").alias("last"))
