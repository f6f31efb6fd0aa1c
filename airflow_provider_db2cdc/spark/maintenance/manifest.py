"""The rows of the manifest whose versions readers can still open."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.spark.delta.table_io import load, table_exists


@dataclass(frozen=True)
class Manifest:
    """What is kept of the manifest: the rows from batch `oldest_batch` on. `oldest_age_s` is the age of that row.

    Both are None without rows. `is_trimmed`: older rows are to be deleted.
    """

    oldest_batch: int | None = None
    oldest_age_s: float | None = None
    is_trimmed: bool = False


def kept_manifest(spark: SparkSession, layout: Layout, at_ms: int, retained_s: float) -> Manifest:
    """Return what to keep: rows that are no older than the states keep removed files, and always the newest row.

    The versions of older rows cannot be read for certain any more.
    """
    name = layout.internal("manifest")
    if not table_exists(spark, name):
        return Manifest()
    is_young = F.col("written_at_ms") >= at_ms - int(retained_s * 1000)
    row = load(spark, name).agg(F.max("batch"), F.min(F.when(is_young, F.col("batch"))), F.min("batch")).first()
    if row is None or row[0] is None:
        return Manifest()
    oldest = int(row[0] if row[1] is None else row[1])
    written = load(spark, name).where(F.col("batch") == oldest).agg(F.min("written_at_ms")).first()
    age_s = max(0.0, (at_ms - int(written[0])) / 1000) if written is not None else None
    return Manifest(oldest, age_s, is_trimmed=int(row[2]) < oldest)
