"""A batch's effects, and how they come into the current state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.chunk_publish import PublishedRows, has_own_window
from airflow_provider_db2cdc.spark.apply.state_diff import diff_with_state, missing_from_state
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.net_effect import BatchCounts, if_few_to_all, net_effects
from airflow_provider_db2cdc.spark.events.row_multiset import copy_effects, count_deltas, staged_copies
from airflow_provider_db2cdc.spark.events.state_rows import effect_rows, key_bounds, key_range, staged_rows
from airflow_provider_db2cdc.spark.ledger.batch_log import check_not_applied


@dataclass(frozen=True)
class StateChange:
    """What a batch means for the state, as rows of it: by its changes and by its reads; None where there are none.

    `is_first`: the state has no row yet. `is_compared`: the reads are only what it has otherwise, or too much.
    """

    changed: DataFrame | None
    read: DataFrame | None
    is_first: bool = False
    is_compared: bool = False

    @property
    def gone(self) -> DataFrame | None:
        """The rows that the state has too much, as far as that is known."""
        return self.read.where("NOT __present") if self.read is not None and self.is_compared else None


@dataclass(frozen=True)
class StateDiff:
    """What a slice's staged rows and the state's of its range differ by; None: the state has nothing there.

    `state_version` is the state that they were compared with.
    """

    chunk_range: ChunkRange
    state_version: int
    differences: DataFrame | None


@dataclass(frozen=True)
class StateVersion:
    """The current state after a batch."""

    rows: int
    version: int


@failpoint("compare_state")
def diff_state(replica: Replica, chunk_range: ChunkRange, last: AppliedBatch | None) -> StateDiff:
    """Compare the staged rows of a slice that covers a range with what the state has there (an action).

    It asks nothing of the changes meanwhile, so it is done while capture is waited for; what they tell of is left out
    of it afterwards.
    """
    version = replica.newest_version()
    within = key_range(replica.schema, chunk_range.counts[0].low, chunk_range.counts[-1].high)
    if replica.is_empty(last) or (chunk_range.snapshot_kind == "initial" and replica.has_no_rows(within)):
        return StateDiff(chunk_range, version, None)
    rows = replica.staging.rows(chunk_range.staging_version).select("row.*")
    return StateDiff(
        chunk_range, version, diff_with_state(replica, rows, within, chunk_range.low_batch).localCheckpoint()
    )


@failpoint("find_state_change")
def find_state_change(
    replica: Replica,
    planned: PlannedBatch,
    batch: DataFrame,
    counts: BatchCounts,
    reads: PublishedRows,
    last: AppliedBatch | None,
    compared: StateDiff | None,
) -> StateChange:
    """Return a batch's effects; those of a slice that covers a range as it was `compared`, if that still holds."""
    changed, read = _changed(replica, planned, batch, counts, reads), _read(replica, planned, reads)
    if changed is None and read is None:
        return StateChange(None, None)
    chunk_range = reads.chunk_range
    if read is not None and chunk_range is not None and chunk_range.deletes_by_range:
        compared = _as_now(replica, chunk_range, last, compared)
        if compared.differences is not None:
            changed = None if changed is None else changed.localCheckpoint()
            return StateChange(changed, _undecided(replica, planned, reads, compared.differences), is_compared=True)
    return StateChange(changed, read, replica.is_empty(last))


def apply_state_change(
    replica: Replica,
    planned: PlannedBatch,
    effects: StateChange,
    counts: BatchCounts,
    reads: PublishedRows,
    last: AppliedBatch | None,
) -> StateVersion:
    """Bring a batch's effects into the state; rows that were read, and are there as they are, are left alone."""
    changed, read = effects.changed, effects.read
    # Of none that the ledger knows of there are some now, if the state is not taken for empty.
    before = None if last is None or not (last.rows or effects.is_first) else last.rows
    if changed is None and read is None:
        return _state(replica, planned, before, None if last is None else last.state_version)
    if effects.is_first:
        return _filled(replica, _both(changed, read), planned, counts, reads, 0)
    if planned.chunk_range is not None and planned.chunk_range.snapshot_kind == "initial" and not effects.is_compared:
        both = _both(changed, read).localCheckpoint()
        bounds = key_bounds(both, replica.schema).bounds
        if bounds and replica.has_no_rows(bounds):
            return _filled(replica, both, planned, counts, reads, before)
    if read is not None and not effects.is_compared:
        read = missing_from_state(replica, read, key_bounds(read, replica.schema).bounds)
    both = _both(changed, read)
    if not effects.is_compared:
        both = both.localCheckpoint()
    of_both = key_bounds(both, replica.schema)
    if read is not None and not of_both.rows:
        # Also when a first try has written them already; so the target is asked.
        return _state(replica, planned, None, None)
    # Else Spark, which does not know how few they are, sorts the keys of the whole state by them.
    grown, version = replica.merge(if_few_to_all(both, of_both.rows), planned.batch, of_both.bounds, before)
    return _state(replica, planned, None if grown is None or before is None else before + grown, version)


def _changed(
    replica: Replica, planned: PlannedBatch, batch: DataFrame, counts: BatchCounts, reads: PublishedRows
) -> DataFrame | None:
    """Return the batch's net effects as rows of the state, without a key by how many of each image there are."""
    if not counts.events:
        return None
    schema = replica.schema
    if reads.chunk_range is not None and reads.effects is not None and has_own_window(reads.chunk_range, planned):
        return effect_rows(reads.effects, schema)
    if schema.key:
        return effect_rows(net_effects(batch, schema, counts), schema)
    deltas = count_deltas(batch).localCheckpoint()
    of_them = key_bounds(deltas.select("image.*"), schema)
    return copy_effects(deltas, of_them.rows, replica.rows(of_them.bounds), schema)


def _read(replica: Replica, planned: PlannedBatch, reads: PublishedRows) -> DataFrame | None:
    """Return the rows that were read as rows of the state."""
    as_rows = staged_rows if replica.schema.key else staged_copies
    return None if reads.rows is None else as_rows(reads.rows, replica.schema, planned.upto)


def _as_now(
    replica: Replica, chunk_range: ChunkRange, last: AppliedBatch | None, compared: StateDiff | None
) -> StateDiff:
    """Return what a slice was compared to, or compare it now: a batch that is redone was not, or with another state."""
    if compared is None or compared.chunk_range.staging_version != chunk_range.staging_version:
        return diff_state(replica, chunk_range, last)
    return compared if compared.state_version == replica.newest_version() else diff_state(replica, chunk_range, last)


def _undecided(replica: Replica, planned: PlannedBatch, reads: PublishedRows, unlike: DataFrame) -> DataFrame:
    """Return the differences of keys of which the changes in the window decide nothing, as rows of the state."""
    marked = unlike.withColumn("__commit_lsn", F.when(F.col("__present"), F.lit(str(planned.upto))))
    if reads.effects is None:
        return marked
    key, keys = [*replica.schema.key], reads.effects.select("key.*")
    marked = marked.join(if_few_to_all(keys, reads.window.events), key, "left_anti")
    # A scan may have met a row twice that was moved meanwhile; both are equal.
    return marked.dropDuplicates(key).localCheckpoint()


def _filled(
    replica: Replica,
    effects: DataFrame,
    planned: PlannedBatch,
    counts: BatchCounts,
    reads: PublishedRows,
    before: int | None,
) -> StateVersion:
    """Append effects of keys that the state does not have; how many they are is known where they are all reads."""
    version = replica.append_rows(effects.where("__present").drop("__present"), planned.batch)
    if version is None or before is None or counts.events:
        return _state(replica, planned, None, version)
    return _state(replica, planned, before + sum(reads.counts.values()), version)


def _both(one: DataFrame | None, other: DataFrame | None) -> DataFrame:
    some = [frame for frame in (one, other) if frame is not None]
    return reduce(DataFrame.unionByName, some)


def _state(replica: Replica, planned: PlannedBatch, rows: int | None, version: int | None) -> StateVersion:
    """Return what is there, asked of the target where the step did not tell, as one that was done before does not.

    :raises TickLostError: then, another run has done more: what is there now is no longer the batch's.
    """
    at = replica.newest_version() if version is None else version
    # In this order: what comes behind the batch is merged once that is applied.
    if version is None:
        check_not_applied(replica.spark, replica.layout, replica.table, planned.batch)
    # Delta knows how many rows a version has without reading any.
    known = load(replica.spark, replica.layout.state(replica.table), at).count() if rows is None else rows
    return StateVersion(known, at)
