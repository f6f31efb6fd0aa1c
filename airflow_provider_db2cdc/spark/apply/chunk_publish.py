"""The events of a chunk range in a batch: `r` for rows that were read, `d` for rows that the read did not find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    BatchWindow,
    ChunkRange,
    DeleteMissing,
    KeyedChunks,
    KeylessRead,
)
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.log_replay import rows_to_delete
from airflow_provider_db2cdc.spark.apply.state_diff import CHUNK, StateDiff, diff_state
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.broadcast import if_few_to_all
from airflow_provider_db2cdc.spark.events.net_effect import (
    BatchCounts,
    LoggedEvents,
    count_batch,
    count_reads,
    net_effects,
)
from airflow_provider_db2cdc.spark.events.row_multiset import settled, surplus, touched, unequal
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import surviving
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.session import conf_for_row_count


@dataclass(frozen=True)
class PublishedRows:
    """A chunk range whose rows are published: the rows (`row`, or None) and their number per chunk (`counts`).

    `effects` are the net effects of its window, None without events or without a key. `differences` are rows to merge
    that a comparison with the state found, None without one.
    """

    chunk_range: ChunkRange | None
    rows: DataFrame | None = None
    counts: Mapping[int, int] = field(default_factory=dict)
    effects: DataFrame | None = None
    differences: DataFrame | None = None


@dataclass(frozen=True)
class RowsToPublish:
    """The rows (`row`, `chunk`) of a chunk range that become `r` events. With `is_all` they are all staged rows."""

    chunk_range: ChunkRange
    rows: DataFrame
    is_all: bool
    effects: DataFrame | None = None
    differences: DataFrame | None = None


@failpoint("append_found_deletes")
def append_found_deletes(context: BatchContext) -> bool:
    """Append `d` events for rows that the chunk range shows to be missing. Return whether there may be any.

    A deletion of missing rows deletes rows that no batch of its snapshot wrote. A read of a table without a key deletes
    surplus rows of the state. A retry after the write of the state appends nothing.
    """
    match context.chunk_range:
        case DeleteMissing() as deletion:
            _append_deletes(context, rows_to_delete(context.replica, deletion.low_batch))
            return True
        case KeylessRead() as read if not context.replica.is_empty(context.held):
            _append_deletes(context, _surplus_rows(context, read))
            return True
    return False


def append_range_deletes(context: BatchContext, changes: LoggedEvents, gone: DataFrame) -> LoggedEvents:
    """Append `d` events for rows (`gone`) that a chunk range did not find. Return the batch's events with them."""
    if count := gone.count():
        _append_deletes(context, gone.select(F.struct(*map(quoted, context.replica.schema.names)).alias("row")))
    return replace(changes, counts=replace(changes.counts, deletes=changes.counts.deletes + count))


def append_read_rows(context: BatchContext, changes: LoggedEvents) -> PublishedRows:
    """Append the staged rows that the window does not override as `r` events, and return them.

    A heal appends only those that differ from the state. For an excluded chunk range the function returns what a first
    try has appended.
    """
    chunk_range = context.chunk_range
    if context.excludes_chunks:
        return rows_of_first_try(context)
    if chunk_range is None or isinstance(chunk_range, DeleteMissing):
        return PublishedRows(chunk_range)
    window = changes if context.has_own_window else _window(context, chunk_range)
    if isinstance(chunk_range, KeylessRead):
        found = _keyless_rows(context, chunk_range, window)
    else:
        found = _keyed_rows(context, chunk_range, window)
    if not chunk_range.rows_read:
        return PublishedRows(found.chunk_range, effects=found.effects, differences=found.differences)
    context.replica.append_changes(context.envelopes.of_reads(found.rows), context.planned.batch, "reads")
    if found.is_all:
        rows = found.rows
        counts = {number: chunk.rows_read for number, chunk in enumerate(chunk_range.counts, chunk_range.first)}
    else:
        # The published rows are read back: computing them again takes several joins.
        rows, counts = context.replica.read_rows(context.planned.batch), dict(count_reads(context.events))
    return PublishedRows(found.chunk_range, rows, counts, found.effects, found.differences)


def _keyless_rows(context: BatchContext, read: KeylessRead, window: LoggedEvents) -> RowsToPublish:
    replica, staged = context.replica, context.staged_rows(read)
    rows, needs_another_read = _settled_rows(replica, read, staged, window.counts)
    if read.differences_only:
        rows = unequal(rows, replica.rows())
    is_all = not (window.counts.events or read.windows[1:] or read.differences_only)
    return RowsToPublish(replace(read, needs_another_read=needs_another_read), rows, is_all)


def _keyed_rows(context: BatchContext, chunk_range: KeyedChunks, window: LoggedEvents) -> RowsToPublish:
    """Return the rows of keys without a net effect in the window. Differences have no other keys either."""
    replica, staged, effects = context.replica, context.staged_rows(chunk_range), None
    if window.counts.events:
        with conf_for_row_count(replica.spark, window.counts.events):
            effects = net_effects(window.rows, replica.schema, window.counts).localCheckpoint()
    differences = _range_differences(context, chunk_range, window, effects)
    if chunk_range.differences_only and differences is not None:
        row = F.struct(*map(quoted, replica.schema.names)).alias("row")
        rows = differences.where("__present").select(row, F.col(CHUNK).alias("chunk"))
        return RowsToPublish(chunk_range, rows, False, effects, differences.drop(CHUNK))
    if effects is None:
        return RowsToPublish(chunk_range, staged, True, differences=differences)
    rows = surviving(staged, replica.schema, window.rows, window.counts, effects)
    return RowsToPublish(chunk_range, rows, False, effects, differences)


def _range_differences(
    context: BatchContext, chunk_range: KeyedChunks, window: LoggedEvents, effects: DataFrame | None
) -> DataFrame | None:
    """Return the rows to merge for a chunk range that is compared with the state, without keys that the window changed.

    None for any other chunk range, or if the state has no row in its key range.
    """
    if not chunk_range.is_compared:
        return None
    diff = context.batch.diff
    if not isinstance(diff, StateDiff) or not diff.is_valid(context.replica, chunk_range):
        # The state has changed since the comparison.
        diff = diff_state(context.replica, context.staged_rows(chunk_range), chunk_range, context.held)
    if diff.differences is None:
        return None
    rows = diff.differences.withColumn("__commit_lsn", F.when(F.col("__present"), F.lit(str(context.planned.upto))))
    if effects is None:
        return rows
    key, changed_keys = [*context.replica.schema.key], effects.select("key.*")
    rows = rows.join(if_few_to_all(changed_keys, window.counts.events), key, "left_anti")
    # A scan may have met a moved row twice. Both rows are equal.
    return rows.dropDuplicates(key).localCheckpoint()


def _window(context: BatchContext, chunk_range: ChunkRange) -> LoggedEvents:
    """Return the events of the batches since the low watermark.

    If no batch pulled changes since, the batches between hold at most deletes that groups of other keys have found.
    """
    rows = context.replica.window(chunk_range.low_batch, context.planned.batch)
    return LoggedEvents(rows, count_batch(rows))


def _surplus_rows(context: BatchContext, read: KeylessRead) -> DataFrame:
    """Return the rows that the target has and the read of a table without a key shows to be missing."""
    replica = context.replica
    moved, unknown = _changed_images(replica, read.windows[-1]), _unsettled_images(replica, read.windows[:-1])
    staged, held = context.staged_rows(read), replica.rows()
    return surplus(held, settled(staged, moved, unknown), moved, unknown, read.covers_table)


def _settled_rows(
    replica: Replica, read: KeylessRead, staged: DataFrame, counts: BatchCounts
) -> tuple[DataFrame, bool]:
    """Return the rows of a table without a key that the reads settle, and whether it needs another read."""
    moved, unknown = _changed_images(replica, read.windows[-1]), _unsettled_images(replica, read.windows[:-1])
    needs_another_read = counts.events > 0 and not (moved if unknown is None else _in_both(moved, unknown)).isEmpty()
    return settled(staged, moved, unknown), needs_another_read


def rows_of_first_try(context: BatchContext) -> PublishedRows:
    """Return the `r` rows that an earlier try of a batch appended, before its chunk range or the batch was given up."""
    counts = count_reads(context.events)
    return PublishedRows(None, context.replica.read_rows(context.planned.batch) if counts else None, counts)


def _append_deletes(context: BatchContext, rows: DataFrame) -> None:
    context.replica.append_changes(context.envelopes.of_deletes(rows), context.planned.batch, "deletes")


def _changed_images(replica: Replica, window: BatchWindow) -> DataFrame:
    return touched(replica.window(*window))


def _unsettled_images(replica: Replica, windows: tuple[BatchWindow, ...]) -> DataFrame | None:
    """Return the images that no read so far has settled; None (all images) before the first read."""
    return reduce(_in_both, (_changed_images(replica, window) for window in windows)) if windows else None


def _in_both(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.join(right, "image", "left_semi")
