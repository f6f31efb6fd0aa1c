"""What a slice of a snapshot brings into a batch: rows that go out as `r`, and rows that are gone and go out as `d`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.ledger import Commit, Entry
from airflow_provider_db2cdc.cdc.part import Slice
from airflow_provider_db2cdc.cdc.part import Window as Batches
from airflow_provider_db2cdc.cdc.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.changes import read_envelopes, swept_envelopes
from airflow_provider_db2cdc.spark.copies import settled, surplus, touched
from airflow_provider_db2cdc.spark.delta import quoted
from airflow_provider_db2cdc.spark.effects import BatchCounts, count_batch, count_reads, net_effects
from airflow_provider_db2cdc.spark.session import set_for
from airflow_provider_db2cdc.spark.snapshot import surviving
from airflow_provider_db2cdc.spark.target import Target
from airflow_provider_db2cdc.spark.told import told_copies, told_rows

SNAPSHOT_FIELD: Mapping[SnapshotKind, str] = {"initial": "true", "blocking": "true", "incremental": "incremental"}
"""What source.snapshot says of a snapshot's rows, as Debezium has it."""


@dataclass(frozen=True)
class Reads:
    """A slice after its part of a batch: its rows that go out as `r`, if any, and how many they are by chunk.

    `window` counts the events of its window, `effects` are the net effects of these, None where there are none (and
    where there is no key); `fresh` says that the rows were not in the change log yet.
    """

    of: Slice | None
    rows: DataFrame | None = None
    counts: Mapping[int, int] = field(default_factory=dict)
    window: BatchCounts = field(default_factory=BatchCounts)
    effects: DataFrame | None = None
    fresh: bool = True


def as_read(of: Slice | None, schema: TableSchema) -> Slice | None:
    """Return a slice unless its rows were read under other columns; a sweep holds no rows of its own."""
    return of if of is not None and (of.sweep or of.fingerprint == schema.fingerprint) else None


def is_own_range(of: Slice, entry: Entry) -> bool:
    """Whether a slice's window is the range of the batch that publishes it: nothing was pulled since its low mark."""
    return of.low == entry.after


@failpoint("delete_gone")
def delete_gone(target: Target, spec: JobSpec, entry: Entry, of: Slice, last: Commit | None) -> bool:
    """Append `d` events for the rows that the slice says are gone; return whether there may be any.

    A sweep says so of what no batch of its snapshot wrote; a read of a table without a key, of what the state (of
    which `last` tells) has too many of; both of what nobody but left batches has told of. Doing it again, after the
    state was written, appends nothing.
    """
    if of.sweep:
        rows = target.swept(of.low_batch)
        rows = rows.unionByName(told_rows(target, of.left, entry.batch)) if of.left else rows
    elif of.windows and (of.left or not target.is_empty(last)):
        moved, unknown = _touched(target, of.windows[-1]), _unknown(target, of.windows[:-1])
        staged, held = target.staging.rows(of.staging_version), target.rows()
        held = held.unionByName(told_copies(target, of.left, staged)) if of.left and of.whole else held
        rows = surplus(held, settled(staged, moved, unknown), moved, unknown, of.whole)
    else:
        return False
    _append_deletes(target, spec, entry, of, rows)
    return True


def delete_unread(
    target: Target, spec: JobSpec, entry: Entry, reads: Reads, batch: BatchCounts, gone: DataFrame
) -> BatchCounts:
    """Append `d` events for rows of the state that a slice did not find in its range; return the counts with them."""
    count = gone.count()
    if reads.of is not None and count:
        rows = gone.select(F.struct(*map(quoted, target.schema.names)).alias("row"))
        _append_deletes(target, spec, entry, reads.of, rows)
    # Where the reads were there already, such deletions may be, too, and the state may have lost the rows.
    return replace(batch, deletes=batch.deletes + count) if reads.fresh else count_batch(target.batch(entry.batch))


def publish_reads(
    target: Target, spec: JobSpec, entry: Entry, of: Slice | None, batch: DataFrame, counts: BatchCounts
) -> Reads:
    """Append the staged rows that the window leaves alone as `r` events, and return them; `counts` are the batch's.

    Of a slice that is left out they are what a first try has appended; a sweep has none.
    """
    if of is None and entry.slice is not None:
        return _told_reads(target, entry.batch)
    if of is None or of.sweep:
        return Reads(of)
    # Where nothing was pulled since, batches between hold at most what groups of other keys have found gone.
    is_own = is_own_range(of, entry)
    window = batch if is_own else target.window(of.low_batch, entry.batch)
    counts = counts if is_own else count_batch(window)
    staged, again, effects = target.staging.rows(of.staging_version), False, None
    is_whole = not counts.events and len(of.windows) < 2
    if of.windows:
        moved, unknown = _touched(target, of.windows[-1]), _unknown(target, of.windows[:-1])
        rows = settled(staged, moved, unknown)
        again = counts.events > 0 and not (moved if unknown is None else _both(moved, unknown)).isEmpty()
    elif counts.events:
        with set_for(target.spark, counts.events):
            effects = net_effects(window, target.schema, counts).localCheckpoint()
        rows = surviving(staged, target.schema, window, counts, effects)
    else:
        rows = staged
    how = SNAPSHOT_FIELD[of.kind]
    events = read_envelopes(rows, target.schema, spec, entry.batch, entry.upto, how, entry.planned_at_ms)
    is_fresh = target.append_changes(events, entry.batch, "reads")
    of = replace(of, again=again)
    if is_whole:
        read = {at: chunk.read for at, chunk in enumerate(of.counts, of.first)}
        return Reads(of, staged, read, counts, fresh=is_fresh)
    # What went out is read back: to find once more which rows those are takes several joins.
    return Reads(of, target.reads(entry.batch), count_reads(target.batch(entry.batch)), counts, effects, is_fresh)


def _told_reads(target: Target, batch: int) -> Reads:
    counts = count_reads(target.batch(batch))
    return Reads(None, target.reads(batch) if counts else None, counts)


def _append_deletes(target: Target, spec: JobSpec, entry: Entry, of: Slice, rows: DataFrame) -> None:
    how = SNAPSHOT_FIELD[of.kind]
    events = swept_envelopes(rows, target.schema, spec, entry.batch, entry.upto, how, entry.planned_at_ms)
    target.append_changes(events, entry.batch, "sweep")


def _touched(target: Target, window: Batches) -> DataFrame:
    return touched(target.window(*window))


def _unknown(target: Target, windows: tuple[Batches, ...]) -> DataFrame | None:
    """Return the images that every read so far has left open; None before the first: all are."""
    return reduce(_both, (_touched(target, window) for window in windows)) if windows else None


def _both(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.join(other, "image", "left_semi")
