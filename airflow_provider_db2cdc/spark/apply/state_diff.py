"""Differences between rows that were read and rows of the state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import KeyedChunks
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.envelope import float_names
from airflow_provider_db2cdc.spark.events.state_rows import key_bounds, key_range
from airflow_provider_db2cdc.spark.quoting import quoted

CHUNK = "__chunk"
"""The chunk of a difference that a heal publishes."""


@dataclass(frozen=True)
class StateDiff:
    """The differences between a chunk range's staged rows and the state. None: the state has no row there.

    `state_version` is the version of the state that was compared.
    """

    chunk_range: KeyedChunks
    state_version: int
    differences: DataFrame | None

    def is_valid(self, replica: Replica, chunk_range: KeyedChunks) -> bool:
        """Whether the chunk range has the same staged rows, and the state is still the one that was compared."""
        has_same_rows = self.chunk_range.read_id == chunk_range.read_id
        return has_same_rows and self.state_version == replica.newest_version()


@failpoint("compare_state")
def diff_state(replica: Replica, staged: DataFrame, chunk_range: KeyedChunks, last: AppliedBatch | None) -> StateDiff:
    """Compare the staged rows of a chunk range with the state's rows of its key range. It is an action.

    It does not need the window's changes, so it runs while the tick waits for capture. Keys with changes are excluded
    later, see `apply.chunk_publish`. A heal needs the chunks of the differences, too.
    """
    version = replica.newest_version()
    rows = staged.select("row.*", *([F.col("chunk").alias(CHUNK)] if chunk_range.differences_only else []))
    if chunk_range.deletes_by_range:
        within = key_range(replica.schema, chunk_range.counts[0].low, chunk_range.counts[-1].high)
    else:
        within = key_bounds(rows, replica.schema).bounds
    if replica.is_empty(last) or (chunk_range.snapshot_kind == "initial" and replica.has_no_rows(within)):
        return StateDiff(chunk_range, version, None)
    low_batch = chunk_range.low_batch if chunk_range.deletes_by_range else None
    return StateDiff(chunk_range, version, diff_with_state(replica, rows, within, low_batch).localCheckpoint())


def missing_from_state(replica: Replica, rows: DataFrame, bounds: str) -> DataFrame:
    """Return the rows (columns of the state) that the state, within `bounds`, lacks or holds with other values."""
    return _joined_with_state(replica, rows, bounds, "left").where(is_different(replica.schema)).select("s.*")


@failpoint("compare_rows")
def diff_with_state(replica: Replica, rows: DataFrame, within: str, low_batch: int | None) -> DataFrame:
    """Return the merge rows (`__present`) after which the state holds `rows`, and no other old row, within a range.

    They are rows that the state lacks or holds with other values, and deletes (`__present` false) of rows whose key
    `rows` lacks. A row that a batch after `low_batch` wrote is not deleted: it may be newer than the read. Without a
    low batch no row is deleted. A chunk in `rows` is kept.
    """
    is_only_in_state = F.col("s.__present").isNull()
    values = [
        F.when(is_only_in_state, F.col(f"t.{quoted(name)}")).otherwise(F.col(f"s.{quoted(name)}")).alias(name)
        for name in replica.schema.names
    ]
    # A row that another writer has added may have no batch.
    is_old = F.lit(False) if low_batch is None else F.coalesce(F.col("t.__batch") <= low_batch, F.lit(True))
    is_to_merge = F.when(is_only_in_state, is_old).otherwise(is_different(replica.schema))
    join_type = "left" if low_batch is None else "full"
    joined = _joined_with_state(replica, rows.withColumn("__present", F.lit(True)), within, join_type)
    chunk = [F.col(f"s.{name}") for name in rows.columns if name == CHUNK]
    return joined.where(is_to_merge).select(*values, *chunk, (~is_only_in_state).alias("__present"))


def _joined_with_state(replica: Replica, rows: DataFrame, bounds: str, join_type: str) -> DataFrame:
    """Return rows `s` joined with the rows `t` of the state that have the same key."""
    state = load(replica.spark, replica.layout.state(replica.table)).alias("t")
    within = state.where(bounds) if bounds else state
    # Joined only by the key. An anti-join on all columns would hash and sort by all of them.
    return rows.alias("s").join(within, reduce(and_, [_is_same(quoted(name)) for name in replica.key_names]), join_type)


def is_different(schema: TableSchema) -> Column:
    """Return whether the row `t` of the state is missing, or has other values than the row `s`."""
    same = [_is_same(quoted(name)) for name in schema.names]
    texts = [_is_same(quoted(name), "string") for name in float_names(schema)]
    return F.col("t.__batch").isNull() | ~reduce(and_, same + texts)


def _is_same(name: str, as_type: str = "") -> Column:
    """Return whether a column of `s` and `t`, cast to `as_type` if given, is equal. Null equals null."""
    sides = [F.col(f"{side}.{name}") for side in ("s", "t")]
    left, right = (side.cast(as_type) for side in sides) if as_type else sides
    return left.eqNullSafe(right)
