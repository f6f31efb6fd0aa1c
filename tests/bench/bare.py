"""The work done barely that several cases are measured against."""

from __future__ import annotations

from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import functions as F
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.table import TableId

from .stage import Stage


def reduced_rows(stage: Stage, pipeline: Pipeline, table: TableId, copy: str, number: int) -> Path:
    """Return a parquet folder with what differs between the copy and the state, one row a key."""
    state, old = pipeline.state(table), stage.spark.read.format("delta").load(copy)
    new = state.join(old.select("ID", "__commit_lsn"), ["ID", "__commit_lsn"], "left_anti").withColumn(
        "gone", F.lit(False)
    )
    gone = old.join(state.select("ID"), "ID", "left_anti").withColumn("gone", F.lit(True))
    path = stage.folder / f"reduced{number}"
    new.unionByName(gone).write.parquet(str(path))
    return path


def bare_merge(stage: Stage, copy: str, reduced: Path) -> None:
    """Merge rows that are already reduced to one a key."""
    spark = stage.bare
    source = spark.read.parquet(str(reduced))
    columns = {name: f"s.{name}" for name in source.columns if name != "gone"}
    merge = DeltaTable.forPath(spark, copy).alias("t").merge(source.alias("s"), "t.ID = s.ID")
    merge = merge.whenMatchedDelete("s.gone").whenMatchedUpdate(set=dict(columns))
    merge.whenNotMatchedInsert("NOT s.gone", values=dict(columns)).execute()
