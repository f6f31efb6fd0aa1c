"""A batch's net effects as rows to merge into the current state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import key_struct
from airflow_provider_db2cdc.spark.quoting import quoted, text_literal
from airflow_provider_db2cdc.sql.chunk import Bound, ChunkKey, chunk_predicate

BOUND_TEXT_LENGTH = 200


def effect_rows(effects: DataFrame, schema: TableSchema) -> DataFrame:
    """Return effects (key, commit, row) as state rows with `__commit_lsn` and `__present`.

    Key columns come from `row` if there is one: keys that were grouped by have lost the sign of their zeros.
    """

    def value(name: str) -> str:
        in_row, in_key = f"row.{quoted(name)}", f"key.{quoted(name)}"
        return f"coalesce({in_row}, {in_key})" if name in schema.key else in_row

    columns = [f"{value(name)} AS {quoted(name)}" for name in schema.names]
    return effects.selectExpr(*columns, "commit AS __commit_lsn", "row IS NOT NULL AS __present")


def staged_rows(staged: DataFrame, schema: TableSchema, mark: Lsn) -> DataFrame:
    """Return a snapshot's rows (column `row`) as state rows at the commit LSN `mark`."""
    effects = staged.select(key_struct(schema, "row").alias("key"), F.lit(str(mark)).alias("commit"), "row")
    return effect_rows(effects, schema)


@dataclass(frozen=True)
class KeyBounds:
    """A number of rows, and literal bounds of their keys for a merge condition. Delta skips files outside of them.

    `bounds` covers only key columns whose type has comparable file statistics in Delta. It is empty if there are none.
    """

    rows: int
    bounds: str


def key_bounds(rows: DataFrame, schema: TableSchema) -> KeyBounds:
    """Return the number of rows and the bounds of their keys. It is an action."""
    totals = rows.agg(F.count("*").alias("rows"), *bound_sums(schema.row_key)).collect()[0]
    return KeyBounds(totals["rows"], bounds_of_sums(totals, schema.row_key))


def bound_sums(names: Sequence[str], prefix: str = "") -> list[Column]:
    """Return the aggregates that `bounds_of_sums` needs, of columns or of the fields of a struct (`prefix`)."""
    texts = {"min": "min({})", "max": "max({})", "null": "max({} IS NULL)"}
    return [
        F.expr(f"{text.format(prefix + quoted(name))} AS {end}{index}")
        for end, text in texts.items()
        for index, name in enumerate(names)
    ]


def bounds_of_sums(totals: Row, names: Sequence[str]) -> str:
    """Return the condition on the state, by the aggregates of `bound_sums`. It is empty if there is none."""
    terms = []
    for index, name in enumerate(names):
        low, high = _literal(totals[f"min{index}"]), _literal(totals[f"max{index}"])
        if low and high:
            within = f"t.{quoted(name)} >= {low} AND t.{quoted(name)} <= {high}"
            # A null key lies between no two ends. Without this term the merge would not find its row of the target.
            terms.append(f"({within} OR t.{quoted(name)} IS NULL)" if totals[f"null{index}"] else within)
    return " AND ".join(terms)


def key_range(schema: TableSchema, low: Bound, high: Bound) -> str:
    """Return the condition on the state that keys are greater than `low` and at most `high`. An empty bound is open.

    The key must be of numbers: their literals are the source's, and Spark sorts them as the source does.
    """
    cut = ChunkKey(schema.table, tuple(map(schema.column, schema.key)))
    ends = [bound for bound in (low, high) if bound]
    text = chunk_predicate(cut.of_rows, ends, 1 if low else 0)
    for index, name in enumerate(schema.key):
        text = text.replace(f'"K{index}"', f"t.{quoted(name)}")
    return text


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
