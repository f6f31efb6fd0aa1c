"""The whole table at the source and in the target, compared by count and by a sum of hashes of its rows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.table import TableId

READERS = 8


def check_equal(pipeline: Pipeline, table: TableId) -> int:
    """Compare each row and column. Return the number of rows.

    :raises AssertionError: when the tables differ.
    """
    state = pipeline.state(table)
    names = [name for name in state.columns if not name.startswith("__")]
    source, target = _sum(_source(pipeline, table), names), _sum(state, names)
    assert source == target, f"{table}: rows and hash are {source} at the source, {target} in the target"
    return int(source[0])


def _source(pipeline: Pipeline, table: TableId) -> DataFrame:
    box = pipeline.sandbox
    name = f'"{table.schema}"."{table.name}"'
    [(last,)] = pipeline.query(f"SELECT MAX(ID) FROM {name}")
    step = int(last) // READERS + 1
    ranges = [f"ID >= {at * step} AND ID < {(at + 1) * step}" for at in range(READERS)]
    login = {"user": box.user, "password": box.password, "driver": "com.ibm.db2.jcc.DB2Driver"}
    return pipeline.spark.read.jdbc(box.jdbc_url(), name, predicates=ranges, properties=login)


def _sum(frame: DataFrame, names: list[str]) -> tuple[Any, ...]:
    texts = (F.coalesce(F.col(f"`{name}`").cast("string"), F.lit("null")) for name in names)
    hashed = frame.select(F.xxhash64(*texts).cast("decimal(38,0)").alias("hash"))
    return tuple(hashed.agg(F.count("*"), F.sum("hash")).collect()[0])
