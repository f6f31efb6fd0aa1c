"""A batch's effects as the rows that are merged into the current state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import key_struct
from airflow_provider_db2cdc.spark.quoting import quoted, text_literal
from airflow_provider_db2cdc.sql.chunk import Bound, ChunkKey, chunk_predicate

BOUND_TEXT_LENGTH = 200


def effect_rows(effects: DataFrame, schema: TableSchema) -> DataFrame:
    """Return effects (key, commit, row) as state rows with `__commit_lsn` and `__present`.

    A row's own key comes first: keys that were grouped by have lost the sign of their zeros.
    """

    def value(name: str) -> Column:
        own = F.col("row").getField(name)
        return F.coalesce(own, F.col("key").getField(name)) if name in schema.key else own

    columns = [value(name).alias(name) for name in schema.names]
    return effects.select(*columns, F.col("commit").alias("__commit_lsn"), F.col("row").isNotNull().alias("__present"))


def staged_rows(staged: DataFrame, schema: TableSchema, mark: Lsn) -> DataFrame:
    """Return a snapshot's rows (column `row`) as state rows that stand at `mark`."""
    effects = staged.select(key_struct(schema, "row").alias("key"), F.lit(str(mark)).alias("commit"), "row")
    return effect_rows(effects, schema)


@dataclass(frozen=True)
class KeyBounds:
    """How many rows there are, and literal bounds of their keys for a merge condition: files beyond them stay unread.

    Only of key columns of types whose file statistics Delta compares; empty when there are none.
    """

    rows: int
    bounds: str


def key_bounds(rows: DataFrame, schema: TableSchema) -> KeyBounds:
    """Return the extent of the very rows (an action)."""
    ends = [end(F.col(quoted(name))).alias(f"{end.__name__}{at}") for end in (F.min, F.max) for at, name in _at(schema)]
    nulls = [F.max(F.col(quoted(name)).isNull()).alias(f"null{at}") for at, name in _at(schema)]
    found = rows.agg(F.count("*").alias("rows"), *ends, *nulls).collect()[0]
    terms = []
    for at, name in _at(schema):
        low, high = _literal(found[f"min{at}"]), _literal(found[f"max{at}"])
        if low and high:
            within = f"t.{quoted(name)} >= {low} AND t.{quoted(name)} <= {high}"
            # A null key lies between no two ends: without this its row of the target would not be found.
            terms.append(f"({within} OR t.{quoted(name)} IS NULL)" if found[f"null{at}"] else within)
    return KeyBounds(found["rows"], " AND ".join(terms))


def key_range(schema: TableSchema, low: Bound, high: Bound) -> str:
    """Return the condition on the state that keys lie beyond `low` and not beyond `high`, where these are given.

    For keys of numbers, whose literals are the source's, and which Spark sorts alike.
    """
    cut = ChunkKey(schema.table, tuple(map(schema.column, schema.key)))
    ends = [bound for bound in (low, high) if bound]
    text = chunk_predicate(cut.of_rows, ends, 1 if low else 0)
    for at, name in enumerate(schema.key):
        text = text.replace(f'"K{at}"', f"t.{quoted(name)}")
    return text


def _at(schema: TableSchema) -> list[tuple[int, str]]:
    return list(enumerate(schema.row_key))


def _literal(value: Any) -> str:
    match value:
        case bool():
            return ""
        case int():
            return f"{value}L"
        case Decimal():
            return f"{value:f}BD"
        case datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case str() if len(value) <= BOUND_TEXT_LENGTH:
            return text_literal(value)
        case _:
            return ""
