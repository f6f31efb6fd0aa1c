"""Columns that a source table has gained, added to its Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.spark.delta import load, sql_name

Path = tuple[str, ...]
FIXED = ("key", "headers", "source", "transaction")
"""Fields of the change log that never grow: with another key it would be another table."""


def add_columns(spark: SparkSession, name: DeltaName, ddl: str) -> list[str]:
    """Add the columns that a table lacks, each behind the one that it follows in the source; return their names.

    Rows that are there hold null in them, until they change or are snapshotted.
    """
    have = {path for path, _ in _leaves(load(spark, name).schema)}
    wanted = [*_leaves(cast(StructType, StructType.fromDDL(ddl)))]
    added = []
    for at, (path, kind) in enumerate(wanted):
        if path in have or path[0] in FIXED:
            continue
        before = wanted[at - 1][0] if at else ()
        place = f"AFTER {_quoted(before[-1:])}" if before[:-1] == path[:-1] and before else "FIRST"
        spark.sql(f"ALTER TABLE {sql_name(name)} ADD COLUMNS ({_quoted(path)} {kind.simpleString()} {place})")
        added.append(path[-1])
    return list(dict.fromkeys(added))


def _leaves(struct: StructType, within: Path = ()) -> Iterator[tuple[Path, DataType]]:
    for field in struct.fields:
        path = (*within, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        else:
            yield path, field.dataType


def _quoted(path: Path) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)
