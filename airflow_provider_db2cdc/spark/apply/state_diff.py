"""What rows that were read differ by from those of the state."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.envelope import float_names
from airflow_provider_db2cdc.spark.quoting import quoted


def missing_from_state(replica: Replica, rows: DataFrame, bounds: str) -> DataFrame:
    """Return the rows (columns of the state) within `bounds` that the state does not hold just as they are."""
    return _beside(replica, rows, bounds, "left").where(_is_unlike(replica.schema)).select("s.*")


@failpoint("compare_rows")
def diff_with_state(replica: Replica, rows: DataFrame, within: str, low_batch: int) -> DataFrame:
    """Return what is to be done that the state holds `rows`, and besides them no row of before within that range.

    With `__present`, as rows of a merge: those that it does not hold just as they are, and, not present, those of
    its own whose key none of them has, and that no batch behind `low_batch` wrote.
    """
    is_own = F.col("s.__present").isNull()
    values = [
        F.when(is_own, F.col(f"t.{quoted(name)}")).otherwise(F.col(f"s.{quoted(name)}")).alias(name)
        for name in replica.schema.names
    ]
    is_out = F.when(is_own, F.col("t.__batch") <= low_batch).otherwise(_is_unlike(replica.schema))
    beside = _beside(replica, rows.withColumn("__present", F.lit(True)), within, "full")
    return beside.where(is_out).select(*values, (~is_own).alias("__present"))


def _beside(replica: Replica, rows: DataFrame, bounds: str, how: str) -> DataFrame:
    """Return rows `s` beside those of the state `t` that have their keys."""
    state = load(replica.spark, replica.layout.state(replica.table)).alias("t")
    held = state.where(bounds) if bounds else state
    # Joined by the key alone: as an anti-join on all columns, all of them would be hashed and sorted by.
    return rows.alias("s").join(held, reduce(and_, [_same(quoted(name)) for name in replica.key_names]), how)


def _is_unlike(schema: TableSchema) -> Column:
    same = [_same(quoted(name)) for name in schema.names]
    texts = [_same(quoted(name), "string") for name in float_names(schema)]
    return F.col("t.__batch").isNull() | ~reduce(and_, same + texts)


def _same(name: str, as_type: str = "") -> Column:
    """Return whether a column of `s` and `t`, or what it is as another type, is equal; null equals null."""
    sides = [F.col(f"{side}.{name}") for side in ("s", "t")]
    one, other = (side.cast(as_type) for side in sides) if as_type else sides
    return one.eqNullSafe(other)
