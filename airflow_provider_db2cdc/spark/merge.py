"""A batch's effects, and how they come into the current state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.ledger import Commit, Entry
from airflow_provider_db2cdc.cdc.part import Slice
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.comparison import lacking, unlike
from airflow_provider_db2cdc.spark.copies import copy_effects, count_deltas, staged_copies
from airflow_provider_db2cdc.spark.delta import load
from airflow_provider_db2cdc.spark.effects import BatchCounts, if_few_to_all, net_effects
from airflow_provider_db2cdc.spark.ledger import check_not_applied
from airflow_provider_db2cdc.spark.slice import Reads, is_own_range
from airflow_provider_db2cdc.spark.state import effect_rows, extent, key_range, staged_rows
from airflow_provider_db2cdc.spark.target import Target


@dataclass(frozen=True)
class Effects:
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
class Compared:
    """What a slice's staged rows and the state's of its range differ by; None: the state has nothing there.

    `state_version` is the state that they were compared with.
    """

    of: Slice
    state_version: int
    unlike: DataFrame | None


@dataclass(frozen=True)
class State:
    """The current state after a batch."""

    rows: int
    version: int


@failpoint("compare_state")
def compare(target: Target, of: Slice, last: Commit | None) -> Compared:
    """Compare the staged rows of a slice that covers a range with what the state has there (an action).

    It asks nothing of the changes meanwhile, so it is done while capture is waited for; what they tell of is left out
    of it afterwards.
    """
    version = target.newest_version()
    within = key_range(target.schema, of.counts[0].low, of.counts[-1].high)
    if target.is_empty(last) or (of.kind == "initial" and target.lacks(within)):
        return Compared(of, version, None)
    rows = target.staging.rows(of.staging_version).select("row.*")
    return Compared(of, version, unlike(target, rows, within, of.low_batch).localCheckpoint())


@failpoint("find_effects")
def find_effects(
    target: Target,
    entry: Entry,
    batch: DataFrame,
    counts: BatchCounts,
    reads: Reads,
    last: Commit | None,
    compared: Compared | None,
) -> Effects:
    """Return a batch's effects; those of a slice that covers a range as it was `compared`, if that still holds."""
    changed, read = _changed(target, entry, batch, counts, reads), _read(target, entry, reads)
    if changed is None and read is None:
        return Effects(None, None)
    of = reads.of
    if read is not None and of is not None and of.covers_range:
        compared = _as_now(target, of, last, compared)
        if compared.unlike is not None:
            changed = None if changed is None else changed.localCheckpoint()
            return Effects(changed, _undecided(target, entry, reads, compared.unlike), is_compared=True)
    return Effects(changed, read, target.is_empty(last))


def merge_effects(
    target: Target, entry: Entry, effects: Effects, counts: BatchCounts, reads: Reads, last: Commit | None
) -> State:
    """Bring a batch's effects into the state; rows that were read, and are there as they are, are left alone."""
    changed, read = effects.changed, effects.read
    # Of none that the ledger knows of there are some now, if the state is not taken for empty.
    before = None if last is None or not (last.rows or effects.is_first) else last.rows
    if changed is None and read is None:
        return _state(target, entry, before, None if last is None else last.state_version)
    if effects.is_first:
        return _filled(target, _both(changed, read), entry, counts, reads, 0)
    if entry.slice is not None and entry.slice.kind == "initial" and not effects.is_compared:
        both = _both(changed, read).localCheckpoint()
        bounds = extent(both, target.schema).bounds
        if bounds and target.lacks(bounds):
            return _filled(target, both, entry, counts, reads, before)
    if read is not None and not effects.is_compared:
        read = lacking(target, read, extent(read, target.schema).bounds)
    both = _both(changed, read)
    if not effects.is_compared:
        both = both.localCheckpoint()
    of_both = extent(both, target.schema)
    if read is not None and not of_both.rows:
        # Also when a first try has written them already; so the target is asked.
        return _state(target, entry, None, None)
    # Else Spark, which does not know how few they are, sorts the keys of the whole state by them.
    grown, version = target.merge(if_few_to_all(both, of_both.rows), entry.batch, of_both.bounds, before)
    return _state(target, entry, None if grown is None or before is None else before + grown, version)


def _changed(target: Target, entry: Entry, batch: DataFrame, counts: BatchCounts, reads: Reads) -> DataFrame | None:
    """Return the batch's net effects as rows of the state, without a key by how many of each image there are."""
    if not counts.events:
        return None
    schema = target.schema
    if reads.of is not None and reads.effects is not None and is_own_range(reads.of, entry):
        return effect_rows(reads.effects, schema)
    if schema.key:
        return effect_rows(net_effects(batch, schema, counts), schema)
    deltas = count_deltas(batch).localCheckpoint()
    of_them = extent(deltas.select("image.*"), schema)
    return copy_effects(deltas, of_them.rows, target.rows(of_them.bounds), schema)


def _read(target: Target, entry: Entry, reads: Reads) -> DataFrame | None:
    """Return the rows that were read as rows of the state."""
    as_rows = staged_rows if target.schema.key else staged_copies
    return None if reads.rows is None else as_rows(reads.rows, target.schema, entry.upto)


def _as_now(target: Target, of: Slice, last: Commit | None, compared: Compared | None) -> Compared:
    """Return what a slice was compared to, or compare it now: a batch that is redone was not, or with another state."""
    if compared is None or compared.of.staging_version != of.staging_version:
        return compare(target, of, last)
    return compared if compared.state_version == target.newest_version() else compare(target, of, last)


def _undecided(target: Target, entry: Entry, reads: Reads, unlike: DataFrame) -> DataFrame:
    """Return the differences of keys of which the changes in the window decide nothing, as rows of the state."""
    marked = unlike.withColumn("__commit_lsn", F.when(F.col("__present"), F.lit(str(entry.upto))))
    if reads.effects is None:
        return marked
    key, keys = [*target.schema.key], reads.effects.select("key.*")
    marked = marked.join(if_few_to_all(keys, reads.window.events), key, "left_anti")
    # A scan may have met a row twice that was moved meanwhile; both are equal.
    return marked.dropDuplicates(key).localCheckpoint()


def _filled(
    target: Target, effects: DataFrame, entry: Entry, counts: BatchCounts, reads: Reads, before: int | None
) -> State:
    """Append effects of keys that the state does not have; how many they are is known where they are all reads."""
    version = target.fill(effects.where("__present").drop("__present"), entry.batch)
    if version is None or before is None or counts.events:
        return _state(target, entry, None, version)
    return _state(target, entry, before + sum(reads.counts.values()), version)


def _both(one: DataFrame | None, other: DataFrame | None) -> DataFrame:
    some = [frame for frame in (one, other) if frame is not None]
    return reduce(DataFrame.unionByName, some)


def _state(target: Target, entry: Entry, rows: int | None, version: int | None) -> State:
    """Return what is there, asked of the target where the step did not tell, as one that was done before does not.

    :raises TickLostError: then, another run has done more: what is there now is no longer the batch's.
    """
    at = target.newest_version() if version is None else version
    # In this order: what comes behind the batch is merged once that is applied.
    if version is None:
        check_not_applied(target.spark, target.layout, target.table, entry.batch)
    # Delta knows how many rows a version has without reading any.
    known = load(target.spark, target.layout.state(target.table), at).count() if rows is None else rows
    return State(known, at)
