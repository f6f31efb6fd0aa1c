"""The change that a batch makes to the current state, and its write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, TypeAlias

from pyspark.sql import DataFrame

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.chunk_publish import PublishedRows
from airflow_provider_db2cdc.spark.apply.state_diff import missing_from_state
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.events.broadcast import if_small_to_all
from airflow_provider_db2cdc.spark.events.net_effect import LoggedEvents, net_effects
from airflow_provider_db2cdc.spark.events.row_multiset import copy_effects, count_deltas, staged_copies
from airflow_provider_db2cdc.spark.events.state_rows import KeyBounds, effect_rows, key_bounds, staged_rows
from airflow_provider_db2cdc.spark.ledger.batch_log import check_not_applied


@dataclass(frozen=True)
class Unchanged:
    """The state holds the batch already, or the batch has no row for it.

    `rows` and `version` are the state's, None if a first try may have written it.
    `gone` is that of a merge.
    """

    rows: int | None = None
    version: int | None = None
    gone: DataFrame | None = None


@dataclass(frozen=True)
class Fill:
    """Rows to append: the state has none of their keys. It has `rows_after` rows then, None if that is unknown."""

    rows: DataFrame
    rows_after: int | None
    gone: ClassVar[None] = None


@dataclass(frozen=True)
class Merge:
    """Rows to merge, and the bounds of their keys.

    `gone` are the rows among them that a comparison by range deletes, None without one. Their `d` events must be in the
    change log before the merge.
    """

    rows: DataFrame
    bounds: KeyBounds
    gone: DataFrame | None = None


StateChange: TypeAlias = Unchanged | Fill | Merge
"""The change that a batch makes to the state, as rows of the state."""


@dataclass(frozen=True)
class StateVersion:
    """The current state after a batch: its number of rows and its version."""

    rows: int
    version: int


@failpoint("find_state_change")
def find_state_change(context: BatchContext, changes: LoggedEvents, reads: PublishedRows) -> StateChange:
    """Return the change that a batch makes to the state. Rows that were read and are unchanged are not part of it."""
    replica, held, kept = context.replica, context.held, context.rows_before
    changed, read = _changed_rows(context, changes, reads), _read_rows(context, reads)
    if (differences := reads.differences) is not None:
        rows = differences if changed is None else changed.localCheckpoint().unionByName(differences)
        return _merge(context, rows, differences, differences.where("NOT __present"))
    if changed is None and read is None:
        return Unchanged(kept, None if held is None else held.state_version)
    # The number of appended rows is known if all of them are reads.
    appended = sum(reads.counts.values()) if not changes.counts.events else None
    if replica.is_empty(held):
        return Fill(_union(changed, read), appended)
    if context.planned.chunk_range is not None and context.planned.chunk_range.snapshot_kind == "initial":
        rows = _union(changed, read).localCheckpoint()
        bounds = key_bounds(rows, replica.schema).bounds
        if bounds and replica.has_no_rows(bounds):
            return Fill(rows, None if kept is None or appended is None else kept + appended)
    if read is None:
        assert changed is not None
        return _merge_changes(changes, changed, replica.schema)
    read = missing_from_state(replica, read, key_bounds(read, replica.schema).bounds)
    return _merge(context, _union(changed, read).localCheckpoint(), read)


def write_state_change(context: BatchContext, change: StateChange) -> StateVersion:
    """Write a batch's change to the state."""
    replica = context.replica
    match change:
        case Unchanged(rows, version):
            return current_state(context, rows, version)
        case Fill(frame, rows):
            version = replica.append_rows(frame.where("__present").drop("__present"), context.planned.batch)
            return current_state(context, None if version is None else rows, version)
        case Merge(frame, bounds):
            # Without the broadcast Spark, which overestimates the rows, would sort the keys of the whole state.
            small, before = if_small_to_all(frame, bounds.rows, replica.schema), context.rows_before
            growth, version = replica.merge(small, context.planned.batch, bounds.bounds, before)
            return current_state(context, None if growth is None or before is None else before + growth, version)


def _merge_changes(changes: LoggedEvents, changed: DataFrame, schema: TableSchema) -> Merge:
    """Return the merge of a batch's net effects (`changed`). The bounds of their keys may be counted already.

    If each key has one event, the rows are no more than a projection of the checkpointed events.
    """
    is_cheap = bool(schema.key) and changes.is_kept and not changes.counts.hot_keys
    rows = changed if is_cheap else changed.localCheckpoint()
    return Merge(rows, changes.counts.keys or key_bounds(rows, schema))


def _merge(context: BatchContext, rows: DataFrame, read: DataFrame, gone: DataFrame | None = None) -> Unchanged | Merge:
    """Return the merge of these rows. `read` are those among them that were read."""
    bounds = key_bounds(rows, context.replica.schema)
    # A first try may have written all rows already. So the target is asked for its rows and version.
    return Merge(rows, bounds, gone) if bounds.rows else Unchanged(gone=gone)


def _changed_rows(context: BatchContext, changes: LoggedEvents, reads: PublishedRows) -> DataFrame | None:
    """Return the batch's net effects as rows of the state. Without a key, images are counted."""
    replica, schema = context.replica, context.replica.schema
    if not changes.counts.events:
        return None
    if schema.key:
        if reads.effects is not None and context.has_own_window:
            return effect_rows(reads.effects, schema)
        return effect_rows(net_effects(changes.rows, schema, changes.counts), schema)
    deltas = count_deltas(changes.rows).localCheckpoint()
    bounds = key_bounds(deltas.select("image.*"), schema)
    return copy_effects(deltas, bounds.rows, replica.rows(bounds.bounds), schema)


def _read_rows(context: BatchContext, reads: PublishedRows) -> DataFrame | None:
    """Return the rows that were read as rows of the state."""
    schema = context.replica.schema
    as_rows = staged_rows if schema.key else staged_copies
    return None if reads.rows is None else as_rows(reads.rows, schema, context.planned.upto)


def _union(changed: DataFrame | None, read: DataFrame | None) -> DataFrame:
    frames = [frame for frame in (changed, read) if frame is not None]
    return reduce(DataFrame.unionByName, frames)


def current_state(context: BatchContext, rows: int | None, version: int | None) -> StateVersion:
    """Return the rows and the version of the state after a batch. Unknown ones (None) are read from the target.

    A step that an earlier try did returns no version.

    :raises ConcurrentRunError: when the version is unknown and another run has finished the batch. The newest version
        may then have later batches, too.
    """
    replica = context.replica
    number = replica.newest_version() if version is None else version
    # A run that hung here, while another run applied this batch and the next, must not take the next one's version. So
    # check after the version is read: later batches are merged only once this one is applied. Version 0 has none.
    if version is None and number:
        check_not_applied(replica.spark, replica.layout, replica.table, context.planned.batch)
    return StateVersion(_count_rows(replica, number) if rows is None else rows, number)


def _count_rows(replica: Replica, version: int) -> int:
    """Return the number of rows of a version. Delta has it in its statistics. The version that creates it has none."""
    return load(replica.spark, replica.layout.state(replica.table), version).count() if version else 0
