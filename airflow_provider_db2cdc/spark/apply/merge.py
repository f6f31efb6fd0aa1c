"""The change that a batch makes to the current state, and its write."""

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
    """The change that a batch makes to the state, as rows of it: from changes and from reads. None if there are none.

    With `is_first` the state has no row yet. With `is_compared`, `read` holds only differences from the state: rows to
    write, and rows to delete.
    """

    changed: DataFrame | None
    read: DataFrame | None
    is_first: bool = False
    is_compared: bool = False

    @property
    def gone(self) -> DataFrame | None:
        """The rows that must leave the state, or None without a comparison."""
        return self.read.where("NOT __present") if self.read is not None and self.is_compared else None


@dataclass(frozen=True)
class StateDiff:
    """The differences between a chunk range's staged rows and the state. None: the state has no row there.

    `state_version` is the version of the state that was compared.
    """

    chunk_range: ChunkRange
    state_version: int
    differences: DataFrame | None


@dataclass(frozen=True)
class StateVersion:
    """The current state after a batch: its number of rows and its version."""

    rows: int
    version: int


@failpoint("compare_state")
def diff_state(replica: Replica, chunk_range: ChunkRange, last: AppliedBatch | None) -> StateDiff:
    """Compare the staged rows of a chunk range with the state's rows of its key range. It is an action.

    It does not need the window's changes, so it runs while the tick waits for capture. Keys with changes are excluded
    later, see `find_state_change`.
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
    """Return the change that a batch makes to the state.

    If its chunk range deletes by range, the reads are the differences from the state. `compared` is used for that if it
    is still valid, else the comparison is done again.
    """
    changed, read = _changed_rows(replica, planned, batch, counts, reads), _read_rows(replica, planned, reads)
    if changed is None and read is None:
        return StateChange(None, None)
    chunk_range = reads.chunk_range
    if read is not None and chunk_range is not None and chunk_range.deletes_by_range:
        compared = _valid_diff(replica, chunk_range, last, compared)
        if compared.differences is not None:
            changed = None if changed is None else changed.localCheckpoint()
            read = _without_changed_keys(replica, planned, reads, compared.differences)
            return StateChange(changed, read, is_compared=True)
    return StateChange(changed, read, replica.is_empty(last))


def apply_state_change(
    replica: Replica,
    planned: PlannedBatch,
    effects: StateChange,
    counts: BatchCounts,
    reads: PublishedRows,
    last: AppliedBatch | None,
) -> StateVersion:
    """Write a batch's effects to the state. Rows that were read and are unchanged are not written."""
    changed, read = effects.changed, effects.read
    # A state that is not empty although the last applied batch left 0 rows has rows of unknown origin: count them.
    before = None if last is None or not (last.rows or effects.is_first) else last.rows
    if changed is None and read is None:
        return _state_version(replica, planned, before, None if last is None else last.state_version)
    if effects.is_first:
        return _append_effects(replica, _union(changed, read), planned, counts, reads, 0)
    if planned.chunk_range is not None and planned.chunk_range.snapshot_kind == "initial" and not effects.is_compared:
        rows = _union(changed, read).localCheckpoint()
        bounds = key_bounds(rows, replica.schema).bounds
        if bounds and replica.has_no_rows(bounds):
            return _append_effects(replica, rows, planned, counts, reads, before)
    if read is not None and not effects.is_compared:
        read = missing_from_state(replica, read, key_bounds(read, replica.schema).bounds)
    rows = _union(changed, read)
    if not effects.is_compared:
        rows = rows.localCheckpoint()
    extent = key_bounds(rows, replica.schema)
    if read is not None and not extent.rows:
        # A first try may have written all rows already. So the target is asked for its rows and version.
        return _state_version(replica, planned, None, None)
    # Without the broadcast Spark, which overestimates the rows, would sort the keys of the whole state.
    growth, version = replica.merge(if_few_to_all(rows, extent.rows), planned.batch, extent.bounds, before)
    return _state_version(replica, planned, None if growth is None or before is None else before + growth, version)


def _changed_rows(
    replica: Replica, planned: PlannedBatch, batch: DataFrame, counts: BatchCounts, reads: PublishedRows
) -> DataFrame | None:
    """Return the batch's net effects as rows of the state. Without a key, images are counted."""
    if not counts.events:
        return None
    schema = replica.schema
    if reads.chunk_range is not None and reads.effects is not None and has_own_window(reads.chunk_range, planned):
        return effect_rows(reads.effects, schema)
    if schema.key:
        return effect_rows(net_effects(batch, schema, counts), schema)
    deltas = count_deltas(batch).localCheckpoint()
    extent = key_bounds(deltas.select("image.*"), schema)
    return copy_effects(deltas, extent.rows, replica.rows(extent.bounds), schema)


def _read_rows(replica: Replica, planned: PlannedBatch, reads: PublishedRows) -> DataFrame | None:
    """Return the rows that were read as rows of the state."""
    as_rows = staged_rows if replica.schema.key else staged_copies
    return None if reads.rows is None else as_rows(reads.rows, replica.schema, planned.upto)


def _valid_diff(
    replica: Replica, chunk_range: ChunkRange, last: AppliedBatch | None, compared: StateDiff | None
) -> StateDiff:
    """Return `compared` if it has the same staged rows and the current state, else compare now.

    A redone batch was not compared, or was compared with another state.
    """
    if compared is None or compared.chunk_range.staging_version != chunk_range.staging_version:
        return diff_state(replica, chunk_range, last)
    return compared if compared.state_version == replica.newest_version() else diff_state(replica, chunk_range, last)


def _without_changed_keys(
    replica: Replica, planned: PlannedBatch, reads: PublishedRows, differences: DataFrame
) -> DataFrame:
    """Return the differences, as rows of the state, of keys that have no net effect in the window."""
    rows = differences.withColumn("__commit_lsn", F.when(F.col("__present"), F.lit(str(planned.upto))))
    if reads.effects is None:
        return rows
    key, changed_keys = [*replica.schema.key], reads.effects.select("key.*")
    rows = rows.join(if_few_to_all(changed_keys, reads.window.events), key, "left_anti")
    # A scan may have met a moved row twice. Both rows are equal.
    return rows.dropDuplicates(key).localCheckpoint()


def _append_effects(
    replica: Replica,
    effects: DataFrame,
    planned: PlannedBatch,
    counts: BatchCounts,
    reads: PublishedRows,
    before: int | None,
) -> StateVersion:
    """Append effects of keys that the state does not have. Their number is known if all of them are reads."""
    version = replica.append_rows(effects.where("__present").drop("__present"), planned.batch)
    if version is None or before is None or counts.events:
        return _state_version(replica, planned, None, version)
    return _state_version(replica, planned, before + sum(reads.counts.values()), version)


def _union(changed: DataFrame | None, read: DataFrame | None) -> DataFrame:
    frames = [frame for frame in (changed, read) if frame is not None]
    return reduce(DataFrame.unionByName, frames)


def _state_version(replica: Replica, planned: PlannedBatch, rows: int | None, version: int | None) -> StateVersion:
    """Return the rows and the version of the state after a batch. Unknown ones (None) are read from the target.

    A step that an earlier try did returns no version.

    :raises ConcurrentRunError: when the version is unknown and another run has finished the batch. The newest version
        may then have later batches, too.
    """
    number = replica.newest_version() if version is None else version
    # Check after the version is read. Later batches are merged only once this one is applied: so the version has none.
    if version is None:
        check_not_applied(replica.spark, replica.layout, replica.table, planned.batch)
    # Delta counts the rows of a version from its statistics, without reading them.
    row_count = load(replica.spark, replica.layout.state(replica.table), number).count() if rows is None else rows
    return StateVersion(row_count, number)
