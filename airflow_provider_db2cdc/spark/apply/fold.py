"""The change log's order, made safe to fold: the rule of `cdc.event.fold`, applied to frames.

Most batches need no work. Only events of a key that was both created and deleted may be in a misleading order.
The state is queried only for keys whose events leave the outcome open.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.fold import MOVED
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.broadcast import if_few_to_all
from airflow_provider_db2cdc.spark.events.envelope import key_struct
from airflow_provider_db2cdc.spark.events.net_effect import (
    BatchCounts,
    commit_effects,
    events_in,
    recreated_keys,
)
from airflow_provider_db2cdc.spark.events.state_rows import key_bounds

PLACE = ("__commit_lsn", "__intent_lsn", "key")


def safe_to_fold(replica: Replica, rows: DataFrame, counts: BatchCounts) -> DataFrame:
    """Return a batch's change log rows in an order in which the last event of each key shows its outcome.

    `rows` are read several times, so they must be checkpointed. The state must not have the batch yet. Only the places
    of events change.
    """
    if not (counts.recreated_keys and replica.schema.key):
        return rows
    keys = if_few_to_all(recreated_keys(rows), counts.recreated_keys)
    effects = commit_effects(events_in(rows).join(keys, "key", "left_semi"), replica.schema)
    groups = _with_presence(effects).localCheckpoint()
    conditions = _move_conditions()
    moves = groups.where(conditions[0])
    open_groups = groups.where("present IS NULL")
    sums = (F.coalesce(F.sum(condition.cast("int")), F.lit(0)) for condition in conditions)
    totals = groups.agg(*sums).collect()[0]
    if totals[1]:
        held = _keys_in_state(replica, open_groups, counts).withColumn("present", F.lit(True))
        known = open_groups.drop("present").join(if_few_to_all(held, totals[1]), "key", "left_semi")
        moves = moves.unionByName(known.withColumn("present", F.lit(True))).localCheckpoint()
    return _with_moved_events(rows, moves, sum(totals)) if sum(totals) else rows


def _with_presence(groups: DataFrame) -> DataFrame:
    """Return groups (key, commit) with `present`: whether the key has a row after the commit. Null: ask the state.

    If a commit's outcome is unknown, the last known outcome of an earlier commit in the batch holds.
    """
    outcome = F.when(F.col("known"), F.col("row").isNotNull())
    before = Window.partitionBy("key").orderBy("commit").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    present = F.last(outcome, ignorenulls=True).over(before)
    return groups.select(
        "key",
        "commit",
        present.alias("present"),
        "last_at",
        F.coalesce("row_at", "came_at").alias("came_at"),
        "deleted_at",
    )


def _outcome_place() -> Column:
    """Return the place of the event that shows the outcome of the key."""
    return F.when(F.coalesce("present", F.lit(True)), F.col("came_at")).otherwise(F.col("deleted_at"))


def _move_conditions() -> tuple[Column, Column]:
    """Return whether an event of a group must move, and whether only the state can decide that."""
    is_open = F.col("present").isNull()
    return ~is_open & (_outcome_place() < F.col("last_at")), is_open


def _keys_in_state(replica: Replica, groups: DataFrame, counts: BatchCounts) -> DataFrame:
    """Return the keys (`key`) of groups that the state has."""
    keys = groups.select("key").distinct()
    within = key_bounds(keys.select("key.*"), replica.schema).bounds
    state = replica.rows(within).select(key_struct(replica.schema, "row").alias("key"))
    return state.join(if_few_to_all(keys, counts.recreated_keys), "key", "left_semi")


def _with_moved_events(rows: DataFrame, moves: DataFrame, count: int) -> DataFrame:
    """Return the rows with the events of `moves`, and their tombstones, after the last event of key and commit."""
    places = moves.select(
        F.col("commit").alias("__commit_lsn"),
        _outcome_place().alias("__intent_lsn"),
        "key",
        F.col("last_at").alias("__last"),
    )
    joined = rows.join(if_few_to_all(places, count), [*PLACE], "left")
    is_moved = F.col("__last").isNotNull()
    place = {
        "__intent_lsn": F.coalesce("__last", "__intent_lsn"),
        "__ordinal": F.when(is_moved, F.col("__ordinal") + MOVED).otherwise(F.col("__ordinal")),
    }
    return joined.withColumns(place).select(*rows.columns)
