"""The change log's order, made safe to fold: cdc/fold.py's rule, set by set.

Of most batches nothing is asked: only a key that was both created and deleted in it may have its events in an order
that misleads. The state is asked only for keys whose events leave open what became of them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.fold import MOVED
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.envelope import key_struct
from airflow_provider_db2cdc.spark.events.net_effect import (
    BatchCounts,
    commit_effects,
    events_in,
    if_few_to_all,
    recreated_keys,
)
from airflow_provider_db2cdc.spark.events.state_rows import key_bounds

PLACE = ("__commit_lsn", "__intent_lsn", "key")


def safe_to_fold(replica: Replica, rows: DataFrame, counts: BatchCounts) -> DataFrame:
    """Return a batch's rows of the change log, of which the last one of each key tells what the key holds.

    `rows` are kept, for they are read several times; the state is as it was before the batch. Only places change.
    """
    if not (counts.recreated_keys and replica.schema.key):
        return rows
    few = if_few_to_all(recreated_keys(rows), counts.recreated_keys)
    groups = _told(commit_effects(events_in(rows).join(few, "key", "left_semi"), replica.schema)).localCheckpoint()
    moves = groups.where(_kinds()[0])
    open_groups = groups.where("present IS NULL")
    found = groups.agg(*(F.coalesce(F.sum(is_one.cast("int")), F.lit(0)) for is_one in _kinds())).collect()[0]
    if found[1]:
        held = _held(replica, open_groups, counts).withColumn("present", F.lit(True))
        known = open_groups.drop("present").join(if_few_to_all(held, found[1]), "key", "left_semi")
        moves = moves.unionByName(known.withColumn("present", F.lit(True))).localCheckpoint()
    return _moved(rows, moves, sum(found)) if sum(found) else rows


def _told(groups: DataFrame) -> DataFrame:
    """Return groups with whether their key is `present` after them; None where only the state may know.

    Where a commit does not tell it, the key is as the last commit of the batch that does has left it.
    """
    own = F.when(F.col("known"), F.col("row").isNotNull())
    before = Window.partitionBy("key").orderBy("commit").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    present = F.last(own, ignorenulls=True).over(before)
    return groups.select(
        "key",
        "commit",
        present.alias("present"),
        "last_at",
        F.coalesce("row_at", "came_at").alias("came_at"),
        "deleted_at",
    )


def _place() -> Column:
    """Return the place of the event that tells what became of the key."""
    return F.when(F.coalesce("present", F.lit(True)), F.col("came_at")).otherwise(F.col("deleted_at"))


def _kinds() -> tuple[Column, Column]:
    """Return whether an event of a group is to move, and whether the state has to be asked for that."""
    is_open = F.col("present").isNull()
    return ~is_open & (_place() < F.col("last_at")), is_open


def _held(replica: Replica, groups: DataFrame, counts: BatchCounts) -> DataFrame:
    """Return the keys of groups that the state has."""
    keys = groups.select("key").distinct()
    within = key_bounds(keys.select("key.*"), replica.schema).bounds
    state = replica.rows(within).select(key_struct(replica.schema, "row").alias("key"))
    return state.join(if_few_to_all(keys, counts.recreated_keys), "key", "left_semi")


def _moved(rows: DataFrame, moves: DataFrame, count: int) -> DataFrame:
    """Return rows of which some have moved after the last one of their key in their commit, with their tombstones."""
    places = moves.select(
        F.col("commit").alias("__commit_lsn"), _place().alias("__intent_lsn"), "key", F.col("last_at").alias("__last")
    )
    beside = rows.join(if_few_to_all(places, count), [*PLACE], "left")
    is_moved = F.col("__last").isNotNull()
    place = {
        "__intent_lsn": F.coalesce("__last", "__intent_lsn"),
        "__ordinal": F.when(is_moved, F.col("__ordinal") + MOVED).otherwise(F.col("__ordinal")),
    }
    return beside.withColumns(place).select(*rows.columns)
