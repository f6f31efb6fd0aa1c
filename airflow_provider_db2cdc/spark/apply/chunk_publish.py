"""What a slice of a snapshot brings into a batch: rows that go out as `r`, and rows that are gone and go out as `d`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import BatchWindow as Batches
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
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
"""What source.snapshot says of a snapshot's rows, as Debezium has it."""


@dataclass(frozen=True)
class PublishedRows:
    """A slice after its part of a batch: its rows that go out as `r`, if any, and how many they are by chunk.

    `window` counts the events of its window, `effects` are the net effects of these, None where there are none (and
    where there is no key); `is_new` says that the rows were not in the change log yet.
    """

    chunk_range: ChunkRange | None
    rows: DataFrame | None = None
    counts: Mapping[int, int] = field(default_factory=dict)
    window: BatchCounts = field(default_factory=BatchCounts)
    effects: DataFrame | None = None
    is_new: bool = True


def with_same_columns(chunk_range: ChunkRange | None, schema: TableSchema) -> ChunkRange | None:
    """Return a slice unless its rows were read under other columns; a sweep holds no rows of its own."""
    return (
        chunk_range
        if chunk_range is not None and (chunk_range.delete_missing or chunk_range.fingerprint == schema.fingerprint)
        else None
    )


def has_own_window(chunk_range: ChunkRange, planned: PlannedBatch) -> bool:
    """Whether a slice's window is the range of the batch that publishes it: nothing was pulled since its low mark."""
    return chunk_range.low_watermark == planned.after


@failpoint("append_found_deletes")
def append_found_deletes(
    replica: Replica, spec: JobSpec, planned: PlannedBatch, chunk_range: ChunkRange, last: AppliedBatch | None
) -> bool:
    """Append `d` events for the rows that the slice says are gone; return whether there may be any.

    A sweep says so of what no batch of its snapshot wrote; a read of a table without a key, of what the state (of
    which `last` tells) has too many of; both of what nobody but left batches has told of. Doing it again, after the
    state was written, appends nothing.
    """
    if chunk_range.delete_missing:
        rows = replica.rows_to_delete(chunk_range.low_batch)
        rows = (
            rows.unionByName(abandoned_rows(replica, chunk_range.abandoned_batches, planned.batch))
            if chunk_range.abandoned_batches
            else rows
        )
    elif chunk_range.windows and (chunk_range.abandoned_batches or not replica.is_empty(last)):
        moved, unknown = _touched(replica, chunk_range.windows[-1]), _unknown(replica, chunk_range.windows[:-1])
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
    """Append `d` events for rows of the state that a slice did not find in its range; return the counts with them."""
    count = gone.count()
    if reads.chunk_range is not None and count:
        rows = gone.select(F.struct(*map(quoted, replica.schema.names)).alias("row"))
        _append_deletes(replica, spec, planned, reads.chunk_range, rows)
    # Where the reads were there already, such deletions may be, too, and the state may have lost the rows.
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
    """Append the staged rows that the window leaves alone as `r` events, and return them; `counts` are the batch's.

    Of a slice that is left out they are what a first try has appended; a sweep has none.
    """
    if chunk_range is None and planned.chunk_range is not None:
        return _told_reads(replica, planned.batch)
    if chunk_range is None or chunk_range.delete_missing:
        return PublishedRows(chunk_range)
    # Where nothing was pulled since, batches between hold at most what groups of other keys have found gone.
    is_own = has_own_window(chunk_range, planned)
    window = batch if is_own else replica.window(chunk_range.low_batch, planned.batch)
    counts = counts if is_own else count_batch(window)
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
    how = SNAPSHOT_FIELD[chunk_range.snapshot_kind]
    events = read_envelopes(rows, replica.schema, spec, planned.batch, planned.upto, how, planned.planned_at_ms)
    is_fresh = replica.append_changes(events, planned.batch, "reads")
    chunk_range = replace(chunk_range, needs_another_read=needs_another_read)
    if is_whole:
        read = {at: chunk.rows_read for at, chunk in enumerate(chunk_range.counts, chunk_range.first)}
        return PublishedRows(chunk_range, staged, read, counts, is_new=is_fresh)
    # What went out is read back: to find once more which rows those are takes several joins.
    published, by_chunk = replica.read_rows(planned.batch), count_reads(replica.batch_events(planned.batch))
    return PublishedRows(chunk_range, published, by_chunk, counts, effects, is_fresh)


def _settled_rows(
    replica: Replica, chunk_range: ChunkRange, staged: DataFrame, counts: BatchCounts
) -> tuple[DataFrame, bool]:
    """Return the rows of a table without a key that its windows leave alone, and whether it needs another read."""
    moved, unknown = _touched(replica, chunk_range.windows[-1]), _unknown(replica, chunk_range.windows[:-1])
    is_open = counts.events > 0 and not (moved if unknown is None else _both(moved, unknown)).isEmpty()
    return settled(staged, moved, unknown), is_open


def _told_reads(replica: Replica, batch: int) -> PublishedRows:
    counts = count_reads(replica.batch_events(batch))
    return PublishedRows(None, replica.read_rows(batch) if counts else None, counts)


def _append_deletes(
    replica: Replica, spec: JobSpec, planned: PlannedBatch, chunk_range: ChunkRange, rows: DataFrame
) -> None:
    how = SNAPSHOT_FIELD[chunk_range.snapshot_kind]
    events = swept_envelopes(rows, replica.schema, spec, planned.batch, planned.upto, how, planned.planned_at_ms)
    replica.append_changes(events, planned.batch, "deletes")


def _touched(replica: Replica, window: Batches) -> DataFrame:
    return touched(replica.window(*window))


def _unknown(replica: Replica, windows: tuple[Batches, ...]) -> DataFrame | None:
    """Return the images that every read so far has left open; None before the first: all are."""
    return reduce(_both, (_touched(replica, window) for window in windows)) if windows else None


def _both(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.join(other, "image", "left_semi")
