"""One batch of one table: into the change log, then from the change log into the state."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.gap import find_gap, gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.key import PROPERTY as KEY_PROPERTY
from airflow_provider_db2cdc.cdc.ledger import Commit, Entry
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.override import PROPERTY as SELECT_PROPERTY
from airflow_provider_db2cdc.cdc.part import ChunkCounts, Part, Reading, Slice, ends
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta import table_exists
from airflow_provider_db2cdc.spark.effects import BatchCounts, count_batch
from airflow_provider_db2cdc.spark.jdbc import Fetch, JdbcSource
from airflow_provider_db2cdc.spark.merge import Compared, State, find_effects, merge_effects
from airflow_provider_db2cdc.spark.progress import say
from airflow_provider_db2cdc.spark.pull import pull, rows_behind
from airflow_provider_db2cdc.spark.session import set_for
from airflow_provider_db2cdc.spark.slice import as_read, delete_gone, delete_unread, publish_reads
from airflow_provider_db2cdc.spark.snapshot import chunk_rows, count_chunks
from airflow_provider_db2cdc.spark.target import Target


def apply_entry(
    target: Target,
    spec: JobSpec,
    source: JdbcSource,
    task: TableTask,
    entry: Entry,
    last: Commit | None,
    is_begun: bool,
    compared: Compared | None,
) -> Commit:
    """Bring one planned batch of one table into Delta and return what is there then; `target` is prepared.

    Doing it again changes nothing: each step's write is skipped when it is already there, and the state is computed
    from the change log, so after a crash between the two nothing is read from the source again. Rows that were staged
    under other columns than the table has now are left out, and their part of the snapshot is read anew; but what a
    first try has told of them in the change log, the state gets. Where the table begins with the batch (`is_begun`),
    the last commit does not tell what the state holds: it may have been moved away meanwhile. `compared` is what is
    known of its slice beforehand, if anything.
    """
    of = _slice_of(target, entry)
    is_left_out = of is None and entry.slice is not None
    if is_left_out:
        target.leave_out(entry.batch)
    held = None if is_begun or is_left_out else last
    # A first try, which alone was compared beforehand, may have told of rows that are gone: changes of the batch, too.
    is_redone = is_left_out or (of is not None and of.covers_range and compared is None)
    batch, counts = _bring_changes(target, spec, source, task, entry, of, held, is_redone)
    reads = publish_reads(target, spec, entry, of, batch, counts)
    effects = find_effects(target, entry, batch, counts, reads, held, compared)
    if effects.gone is not None:
        counts = delete_unread(target, spec, entry, reads, counts, effects.gone)
    say(
        f"table={entry.table} batch={entry.batch} in the change log: {counts.events} events, "
        f"{sum(reads.counts.values())} reads"
    )
    after = merge_effects(target, entry, effects, counts, reads, held)
    commit = _committed(replace(entry, slice=reads.of), counts, reads.counts, after, last)
    # What was applied before the table was begun anew may be of another history of the source.
    known = None if is_begun or last is None else last.commit_lsn
    return replace(commit, commit_lsn=commit.commit_lsn or known)


def unmoved(entry: Entry, last: Commit) -> Commit:
    """Return the commit of a range that held no change of the table: its offset moves, its tables do not."""
    moved = replace(last, batch=entry.batch, upto=entry.upto, capture=entry.capture)
    return replace(moved, creates=0, updates=0, deletes=0, reads=0, snapshot=None, slice=None, published={})


def rows_of(of: Slice, held: int) -> int:
    """Return how many rows a slice may bring, or delete of those that are held, which nobody knows beforehand."""
    return sys.maxsize if of.sweep else sum(chunk.read for chunk in of.counts) + (held if of.covers_range else 0)


@failpoint("check_readable")
def check_readable(target: Target, task: TableTask, entry: Entry, fence: Lsn) -> None:
    """Refuse to redo a batch whose changes may be gone from the source and are not in the change log either.

    `fence` is how far capture stands.

    :raises GapError: that is so.
    """
    gap = find_gap(task.table, entry.after, entry.capture, task.capture.identity, task.capture.floor, fence)
    if gap is None or entry.span.empty:
        return
    is_there = table_exists(target.spark, target.layout.changes(target.table))
    if not is_there or rows_behind(target.batch(entry.batch), task) < (entry.rows or 1):
        raise gap_error(task.table, gap)


@failpoint("stage_chunks")
def stage_chunks(
    target: Target, spec: JobSpec, source: JdbcSource, part: Part, of: Slice, reading: Reading, readers: int
) -> Slice:
    """Read some chunks of a table into its staging table, behind those of its slice, and return it with them.

    The source counts after the read and before the high mark, so that every change between the two is in the window.

    Where nobody sees to it that keys are unique, and rows share one, the whole slice is read once more: a scan may
    meet a row twice that was moved meanwhile. So it is where another run has staged rows between.

    :raises SourceError: several rows have the same key, both times.
    """

    def rows(reading: Reading) -> DataFrame:
        how = Fetch(spec.settings.snapshot_fetch_rows, spec.settings.snapshot_isolation)
        return chunk_rows(target.spark, source, target.schema, part, reading, how, readers)

    staging, whole = target.staging, replace(reading, first=of.first)
    version = staging.add(rows(reading), of.staging_version) if of.counts else staging.write(rows(reading))
    if version is None:
        reading, of, version = whole, replace(of, counts=()), staging.write(rows(whole))
    if _may_double(target.schema, part) and not (doubled := staging.doubled(version)).isEmpty():
        reading, of, version = whole, replace(of, counts=()), staging.write(rows(whole))
        _check_unique(target, doubled, version)
    newest = staging.rows(version).where(F.col("chunk") >= reading.first)
    read = {int(row[0]): int(row[1]) for row in newest.groupBy("chunk").count().collect()}
    counted = count_chunks(target.spark, source, target.schema, part, reading, spec.settings.parallel_reads)
    counts = (ChunkCounts(*ends(part, chunk), read.get(chunk, 0), held) for chunk, held in sorted(counted.items()))
    return replace(of, last=reading.last, staging_version=version, counts=(*of.counts, *counts))


def _slice_of(target: Target, entry: Entry) -> Slice | None:
    """Return the slice that a batch brings; none where it was read under other columns, or redone without it once."""
    of = as_read(entry.slice, target.schema)
    return None if of is not None and not of.sweep and target.has_left_out(entry.batch) else of


def _may_double(schema: TableSchema, part: Part) -> bool:
    """Whether rows that are read may share a key, as nobody sees to it that they do not."""
    return bool(schema.key) and (not schema.unique or bool(part.select))


def _bring_changes(
    target: Target,
    spec: JobSpec,
    source: JdbcSource,
    task: TableTask,
    entry: Entry,
    of: Slice | None,
    held: Commit | None,
    is_redone: bool,
) -> tuple[DataFrame, BatchCounts]:
    """Bring a batch's changes into the change log, and what its slice says is gone; return the batch and its counts.

    What `is_redone` may have left more there than was counted when it was planned.
    """
    has_changes = entry.rows != 0 and not entry.span.empty
    batch, counts = pull(target, spec, source, task, entry) if has_changes else (target.batch(entry.batch), None)
    rows = None if is_redone else entry.rows
    if of is not None and delete_gone(target, spec, entry, of, held):
        has_changes, batch, rows, counts = True, target.batch(entry.batch), None, None
    if not (has_changes or is_redone):
        return batch, BatchCounts()
    if counts is not None and not is_redone:
        return batch, counts
    # The session may be set for a snapshot's many rows, beside which there are few changes.
    with set_for(target.spark, rows):
        return batch, count_batch(batch)


def _check_unique(target: Target, doubled_first: DataFrame, second: int) -> None:
    """Refuse what was staged twice of which the state would hold several rows of one key, which no merge tells apart.

    No batch is planned of it yet, so that what is corrected counts at the next tick.
    """
    doubled = doubled_first.intersect(target.staging.doubled(second)).count()
    if doubled:
        key = ", ".join(target.schema.key)
        raise SourceError(
            f"{target.table}: its key ({key}) is not unique: {doubled} keys are each of several of the rows read",
            f"Name columns whose values are unique with {KEY_PROPERTY}, or correct its select in {SELECT_PROPERTY}.",
        )


def begins(entry: Entry) -> bool:
    """Whether a batch begins a table, with a snapshot or without one: no other is without changes and rows.

    A redo of such a batch does not know any more that the table was new.
    """
    of = entry.slice
    return entry.span.empty if of is None else of.kind == "initial" and of.first == 0


def _committed(
    entry: Entry, counts: BatchCounts, published: Mapping[int, int], state: State, last: Commit | None
) -> Commit:
    before_ms = None if last is None else last.commit_ts_ms
    return Commit(
        batch=entry.batch,
        table=entry.table,
        upto=entry.upto,
        capture=entry.capture,
        creates=counts.creates,
        updates=counts.updates,
        deletes=counts.deletes,
        reads=sum(published.values()),
        commit_ts_ms=before_ms if counts.last_commit_us is None else counts.last_commit_us // 1000,
        state_version=state.version,
        rows=state.rows,
        commit_lsn=None if counts.last_commit is None else Lsn.parse(counts.last_commit),
        snapshot=None if entry.slice is None else entry.slice.snapshot,
        slice=entry.slice,
        published=published,
    )
