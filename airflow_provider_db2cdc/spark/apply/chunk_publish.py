"""The events of a chunk range in a batch: `r` for rows that were read, `d` for rows that the read did not find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import BatchWindow, ChunkRange
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.abandoned_batch import abandoned_copies, abandoned_rows
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.envelope import read_envelopes, swept_envelopes
from airflow_provider_db2cdc.spark.events.net_effect import BatchCounts, count_batch, count_reads, net_effects
from airflow_provider_db2cdc.spark.events.row_multiset import settled, surplus, touched
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import surviving
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.session import conf_for_row_count

SNAPSHOT_FIELD: Mapping[SnapshotKind, str] = {"initial": "true", "blocking": "true", "incremental": "incremental"}
"""The value of `source.snapshot` in a snapshot's events, as in Debezium."""


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


def with_same_columns(chunk_range: ChunkRange | None, schema: TableSchema) -> ChunkRange | None:
    """Return a chunk range, or None if it was read under other columns. A deletion of missing rows has no rows."""
    return (
        chunk_range
        if chunk_range is not None and (chunk_range.delete_missing or chunk_range.fingerprint == schema.fingerprint)
        else None
    )


def has_own_window(chunk_range: ChunkRange, planned: PlannedBatch) -> bool:
    """Whether the window of a chunk range is its batch's range: no batch pulled changes since its low watermark."""
    return chunk_range.low_watermark == planned.after


@failpoint("append_found_deletes")
def append_found_deletes(
    replica: Replica, spec: JobSpec, planned: PlannedBatch, chunk_range: ChunkRange, last: AppliedBatch | None
) -> bool:
    """Append `d` events for rows that the chunk range shows to be missing. Return whether there may be any.

    A deletion of missing rows (`delete_missing`) deletes rows that no batch of its snapshot wrote. A read of a table
    without a key deletes surplus rows of the state, whose last applied batch is `last`. Both also delete rows that only
    abandoned batches published. A retry after the write of the state appends nothing.
    """
    if chunk_range.delete_missing:
        rows = replica.rows_to_delete(chunk_range.low_batch)
        rows = (
            rows.unionByName(abandoned_rows(replica, chunk_range.abandoned_batches, planned.batch))
            if chunk_range.abandoned_batches
            else rows
        )
    elif chunk_range.windows and (chunk_range.abandoned_batches or not replica.is_empty(last)):
        moved = _changed_images(replica, chunk_range.windows[-1])
        unknown = _unsettled_images(replica, chunk_range.windows[:-1])
        staged, held = replica.staging.rows(chunk_range.staging_version), replica.rows()
        held = (
            held.unionByName(abandoned_copies(replica, chunk_range.abandoned_batches, staged))
            if chunk_range.abandoned_batches and chunk_range.covers_key_range
            else held
        )
        rows = surplus(held, settled(staged, moved, unknown), moved, unknown, chunk_range.covers_key_range)
    else:
        return False
    _append_deletes(replica, spec, planned, chunk_range, rows)
    return True


def append_range_deletes(
    replica: Replica, spec: JobSpec, planned: PlannedBatch, reads: PublishedRows, batch: BatchCounts, gone: DataFrame
) -> BatchCounts:
    """Append `d` events for rows of the state that a chunk range did not find. Return the counts with them."""
    count = gone.count()
    if reads.chunk_range is not None and count:
        rows = gone.select(F.struct(*map(quoted, replica.schema.names)).alias("row"))
        _append_deletes(replica, spec, planned, reads.chunk_range, rows)
    # If an earlier try appended the reads, it may have appended these deletes, too. The state may lack the rows by now.
    return (
        replace(batch, deletes=batch.deletes + count)
        if reads.is_new
        else count_batch(replica.batch_events(planned.batch))
    )


def append_read_events(
    replica: Replica,
    spec: JobSpec,
    planned: PlannedBatch,
    chunk_range: ChunkRange | None,
    batch: DataFrame,
    counts: BatchCounts,
) -> PublishedRows:
    """Append the staged rows that the window does not override as `r` events, and return them.

    `counts` are the batch's. For an excluded chunk range it returns what a first try has appended.
    """
    if chunk_range is None and planned.chunk_range is not None:
        return _rows_of_first_try(replica, planned.batch)
    if chunk_range is None or chunk_range.delete_missing:
        return PublishedRows(chunk_range)
    # If no batch pulled changes since, the batches between hold at most deletes that groups of other keys have found.
    has_same_window = has_own_window(chunk_range, planned)
    window = batch if has_same_window else replica.window(chunk_range.low_batch, planned.batch)
    counts = counts if has_same_window else count_batch(window)
    staged, effects = replica.staging.rows(chunk_range.staging_version), None
    is_whole, needs_another_read = not counts.events and len(chunk_range.windows) < 2, False
    if chunk_range.windows:
        rows, needs_another_read = _settled_rows(replica, chunk_range, staged, counts)
    elif counts.events:
        with conf_for_row_count(replica.spark, counts.events):
            effects = net_effects(window, replica.schema, counts).localCheckpoint()
        rows = surviving(staged, replica.schema, window, counts, effects)
    else:
        rows = staged
    snapshot = SNAPSHOT_FIELD[chunk_range.snapshot_kind]
    events = read_envelopes(rows, replica.schema, spec, planned.batch, planned.upto, snapshot, planned.planned_at_ms)
    is_new = replica.append_changes(events, planned.batch, "reads")
    chunk_range = replace(chunk_range, needs_another_read=needs_another_read)
    if is_whole:
        read = {number: chunk.rows_read for number, chunk in enumerate(chunk_range.counts, chunk_range.first)}
        return PublishedRows(chunk_range, staged, read, counts, is_new=is_new)
    # The published rows are read back: computing them again takes several joins.
    published, by_chunk = replica.read_rows(planned.batch), count_reads(replica.batch_events(planned.batch))
    return PublishedRows(chunk_range, published, by_chunk, counts, effects, is_new)


def _settled_rows(
    replica: Replica, chunk_range: ChunkRange, staged: DataFrame, counts: BatchCounts
) -> tuple[DataFrame, bool]:
    """Return the rows of a table without a key that the reads settle, and whether it needs another read."""
    moved = _changed_images(replica, chunk_range.windows[-1])
    unknown = _unsettled_images(replica, chunk_range.windows[:-1])
    needs_another_read = counts.events > 0 and not (moved if unknown is None else _in_both(moved, unknown)).isEmpty()
    return settled(staged, moved, unknown), needs_another_read


def _rows_of_first_try(replica: Replica, batch: int) -> PublishedRows:
    """Return the `r` rows that an earlier try of a batch appended before its chunk range was excluded."""
    counts = count_reads(replica.batch_events(batch))
    return PublishedRows(None, replica.read_rows(batch) if counts else None, counts)


def _append_deletes(
    replica: Replica, spec: JobSpec, planned: PlannedBatch, chunk_range: ChunkRange, rows: DataFrame
) -> None:
    snapshot = SNAPSHOT_FIELD[chunk_range.snapshot_kind]
    events = swept_envelopes(rows, replica.schema, spec, planned.batch, planned.upto, snapshot, planned.planned_at_ms)
    replica.append_changes(events, planned.batch, "deletes")


def _changed_images(replica: Replica, window: BatchWindow) -> DataFrame:
    return touched(replica.window(*window))


def _unsettled_images(replica: Replica, windows: tuple[BatchWindow, ...]) -> DataFrame | None:
    """Return the images that no read so far has settled; None (all images) before the first read."""
    return reduce(_in_both, (_changed_images(replica, window) for window in windows)) if windows else None


def _in_both(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.join(right, "image", "left_semi")
