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
    KeylessRead,
)
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.abandoned_batch import abandoned_copies, abandoned_rows
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.net_effect import (
    BatchCounts,
    LoggedEvents,
    count_batch,
    count_reads,
    net_effects,
)
from airflow_provider_db2cdc.spark.events.row_multiset import settled, surplus, touched
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import surviving
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.session import conf_for_row_count


@dataclass(frozen=True)
class PublishedRows:
    """A chunk range whose rows are published: the rows (`row`, or None) and their number per chunk (`counts`).

    `window` counts the events of its window. `effects` are their net effects, None without events or without a key.
    With `is_new` the rows were not in the change log before.
    """

    chunk_range: ChunkRange | None
    rows: DataFrame | None = None
    counts: Mapping[int, int] = field(default_factory=dict)
    window: BatchCounts = field(default_factory=BatchCounts)
    effects: DataFrame | None = None
    is_new: bool = True


@failpoint("append_found_deletes")
def append_found_deletes(context: BatchContext) -> bool:
    """Append `d` events for rows that the chunk range shows to be missing. Return whether there may be any.

    A deletion of missing rows deletes rows that no batch of its snapshot wrote. A read of a table without a key deletes
    surplus rows of the state. Both also delete rows that only abandoned batches published. A retry after the write of
    the state appends nothing.
    """
    match context.chunk_range:
        case DeleteMissing() as deletion:
            _append_deletes(context, _missing_rows(context, deletion))
            return True
        case KeylessRead() as read if read.abandoned_batches or not context.replica.is_empty(context.held):
            _append_deletes(context, _surplus_rows(context.replica, read))
            return True
    return False


def append_range_deletes(
    context: BatchContext, changes: LoggedEvents, reads: PublishedRows, gone: DataFrame
) -> LoggedEvents:
    """Append `d` events for rows (`gone`) that a chunk range did not find. Return the batch's events with them."""
    if count := gone.count():
        _append_deletes(context, gone.select(F.struct(*map(quoted, context.replica.schema.names)).alias("row")))
    # If an earlier try appended the reads, it may have appended these deletes, too. The state may lack the rows by now.
    counts = replace(changes.counts, deletes=changes.counts.deletes + count) if reads.is_new else None
    return replace(changes, counts=counts or count_batch(context.events))


def append_read_rows(context: BatchContext, changes: LoggedEvents) -> PublishedRows:
    """Append the staged rows that the window does not override as `r` events, and return them.

    For an excluded chunk range it returns what a first try has appended.
    """
    chunk_range = context.chunk_range
    if context.excludes_chunks:
        return _rows_of_first_try(context)
    if chunk_range is None or isinstance(chunk_range, DeleteMissing):
        return PublishedRows(chunk_range)
    window = changes if context.has_own_window else _window(context, chunk_range)
    staged, effects = context.replica.staging.rows(chunk_range.staging_version), None
    is_whole = not window.counts.events
    if isinstance(chunk_range, KeylessRead):
        is_whole = is_whole and len(chunk_range.windows) < 2
        rows, needs_another_read = _settled_rows(context.replica, chunk_range, staged, window.counts)
        chunk_range = replace(chunk_range, needs_another_read=needs_another_read)
    elif window.counts.events:
        with conf_for_row_count(context.replica.spark, window.counts.events):
            effects = net_effects(window.rows, context.replica.schema, window.counts).localCheckpoint()
        rows = surviving(staged, context.replica.schema, window.rows, window.counts, effects)
    else:
        rows = staged
    is_new = context.replica.append_changes(context.envelopes.of_reads(rows), context.planned.batch, "reads")
    if is_whole:
        read = {number: chunk.rows_read for number, chunk in enumerate(chunk_range.counts, chunk_range.first)}
        return PublishedRows(chunk_range, staged, read, window.counts, is_new=is_new)
    # The published rows are read back: computing them again takes several joins.
    published, by_chunk = context.replica.read_rows(context.planned.batch), count_reads(context.events)
    return PublishedRows(chunk_range, published, by_chunk, window.counts, effects, is_new)


def _window(context: BatchContext, chunk_range: ChunkRange) -> LoggedEvents:
    """Return the events of the batches since the low watermark.

    If no batch pulled changes since, the batches between hold at most deletes that groups of other keys have found.
    """
    rows = context.replica.window(chunk_range.low_batch, context.planned.batch)
    return LoggedEvents(rows, count_batch(rows))


def _missing_rows(context: BatchContext, deletion: DeleteMissing) -> DataFrame:
    rows, abandoned = context.replica.rows_to_delete(deletion.low_batch), deletion.abandoned_batches
    return rows.unionByName(abandoned_rows(context.replica, abandoned, context.planned.batch)) if abandoned else rows


def _surplus_rows(replica: Replica, read: KeylessRead) -> DataFrame:
    """Return the rows that the target has and the read of a table without a key shows to be missing."""
    moved, unknown = _changed_images(replica, read.windows[-1]), _unsettled_images(replica, read.windows[:-1])
    staged, held = replica.staging.rows(read.staging_version), replica.rows()
    if read.abandoned_batches and read.covers_table:
        held = held.unionByName(abandoned_copies(replica, read.abandoned_batches, staged))
    return surplus(held, settled(staged, moved, unknown), moved, unknown, read.covers_table)


def _settled_rows(
    replica: Replica, read: KeylessRead, staged: DataFrame, counts: BatchCounts
) -> tuple[DataFrame, bool]:
    """Return the rows of a table without a key that the reads settle, and whether it needs another read."""
    moved, unknown = _changed_images(replica, read.windows[-1]), _unsettled_images(replica, read.windows[:-1])
    needs_another_read = counts.events > 0 and not (moved if unknown is None else _in_both(moved, unknown)).isEmpty()
    return settled(staged, moved, unknown), needs_another_read


def _rows_of_first_try(context: BatchContext) -> PublishedRows:
    """Return the `r` rows that an earlier try of a batch appended before its chunk range was excluded."""
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
