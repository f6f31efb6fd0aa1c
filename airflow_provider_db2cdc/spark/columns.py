"""Columns of the source table in its Delta tables: those that it gained are added, the others must be as they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.offset import restart_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta import load, quoted, sql_name

Path = tuple[str, ...]
FIXED = ("key", "headers", "source", "transaction")
"""Fields of the change log that never grow: with another key it would be another table."""


def fit_columns(spark: SparkSession, table: TableId, name: DeltaName, ddl: str) -> list[str]:
    """Add the columns that a Delta table lacks, each behind the one that it follows in the source; return their names.

    Rows that are there hold null in them, until they change or are snapshotted.

    :raises TargetError: a column of the Delta table has another type than the source table's.
    """
    wanted = cast(StructType, StructType.fromDDL(ddl))
    have = load(spark, name).schema
    added = _add(spark, name, have, wanted)
    _check(table, name, load(spark, name).schema if added else have, wanted)
    return added


def _add(spark: SparkSession, name: DeltaName, have: StructType, wanted: StructType) -> list[str]:
    known = {path for path, _ in _leaves(have)}
    leaves = [*_leaves(wanted)]
    added = []
    for at, (path, kind) in enumerate(leaves):
        if path in known or path[0] in FIXED:
            continue
        before = leaves[at - 1][0] if at else ()
        place = f"AFTER {quoted(before[-1])}" if before[:-1] == path[:-1] and before else "FIRST"
        column = ".".join(map(quoted, path))
        spark.sql(f"ALTER TABLE {sql_name(name)} ADD COLUMNS ({column} {kind.simpleString()} {place})")
        added.append(path[-1])
    return list(dict.fromkeys(added))


def _check(table: TableId, name: DeltaName, have: StructType, wanted: StructType) -> None:
    types = {field.name: field.dataType for field in have}
    for field in wanted.fields:
        if types.get(field.name) != field.dataType:
            found = types[field.name].simpleString()[:200] if field.name in types else "no such column"
            raise TargetError(
                f"{table}: {name.name} needs column {field.name} {field.dataType.simpleString()[:200]}, it has {found}",
                "The source table's columns changed: change the column in the target, or move the target's "
                f"tables of it away and have it snapshotted anew by {restart_of(table)}.",
            )


def _leaves(struct: StructType, within: Path = ()) -> Iterator[tuple[Path, DataType]]:
    for field in struct.fields:
        path = (*within, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        else:
            yield path, field.dataType
