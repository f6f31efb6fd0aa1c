"""One batch of one table: into the change log, then from the change log into the state."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.capture.gap import find_gap, gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY as KEY_PROPERTY
from airflow_provider_db2cdc.cdc.selection.select_override import PROPERTY as SELECT_PROPERTY
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    ChunkSpan,
    TableSnapshot,
    chunk_bounds,
)
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.change_pull import pull, rows_behind
from airflow_provider_db2cdc.spark.apply.chunk_publish import (
    append_found_deletes,
    append_range_deletes,
    append_read_events,
    with_same_columns,
)
from airflow_provider_db2cdc.spark.apply.merge import StateDiff, StateVersion, apply_state_change, find_state_change
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import table_exists
from airflow_provider_db2cdc.spark.events.net_effect import BatchCounts, count_batch
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import chunk_rows, count_chunks
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch, JdbcSource
from airflow_provider_db2cdc.spark.session import conf_for_row_count
from airflow_provider_db2cdc.tick.log import log_progress


def apply_batch(
    replica: Replica,
    spec: JobSpec,
    source: JdbcSource,
    task: TableTask,
    planned: PlannedBatch,
    last: AppliedBatch | None,
    is_begun: bool,
    compared: StateDiff | None,
) -> AppliedBatch:
    """Bring one planned batch of one table into Delta and return what is there then; `target` is prepared.

    Doing it again changes nothing: each step's write is skipped when it is already there, and the state is computed
    from the change log, so after a crash between the two nothing is read from the source again. Rows that were staged
    under other columns than the table has now are left out, and their part of the snapshot is read anew; but what a
    first try has told of them in the change log, the state gets. Where the table begins with the batch (`is_begun`),
    the last commit does not tell what the state holds: it may have been moved away meanwhile. `compared` is what is
    known of its slice beforehand, if anything.
    """
    chunk_range = _slice_of(replica, planned)
    is_left_out = chunk_range is None and planned.chunk_range is not None
    if is_left_out:
        replica.exclude_chunks(planned.batch)
    held = None if is_begun or is_left_out else last
    # A first try, which alone was compared beforehand, may have told of rows that are gone: changes of the batch, too.
    is_redone = is_left_out or (chunk_range is not None and chunk_range.deletes_by_range and compared is None)
    batch, counts = _bring_changes(replica, spec, source, task, planned, chunk_range, held, is_redone)
    reads = append_read_events(replica, spec, planned, chunk_range, batch, counts)
    effects = find_state_change(replica, planned, batch, counts, reads, held, compared)
    if effects.gone is not None:
        counts = append_range_deletes(replica, spec, planned, reads, counts, effects.gone)
    log_progress(
        f"table={planned.table} batch={planned.batch} in the change log: {counts.events} events, "
        f"{sum(reads.counts.values())} reads"
    )
    after = apply_state_change(replica, planned, effects, counts, reads, held)
    commit = _committed(replace(planned, chunk_range=reads.chunk_range), counts, reads.counts, after, last)
    # What was applied before the table was begun anew may be of another history of the source.
    known = None if is_begun or last is None else last.commit_lsn
    return replace(commit, commit_lsn=commit.commit_lsn or known)


def max_rows(chunk_range: ChunkRange, held: int) -> int:
    """Return how many rows a slice may bring, or delete of those that are held, which nobody knows beforehand."""
    return (
        sys.maxsize
        if chunk_range.delete_missing
        else sum(chunk.rows_read for chunk in chunk_range.counts) + (held if chunk_range.deletes_by_range else 0)
    )


@failpoint("check_readable")
def check_readable(replica: Replica, task: TableTask, planned: PlannedBatch, fence: Lsn) -> None:
    """Refuse to redo a batch whose changes may be gone from the source and are not in the change log either.

    `fence` is how far capture stands.

    :raises GapError: that is so.
    """
    gap = find_gap(task.table, planned.after, planned.capture, task.capture.identity, task.capture.pruned_upto, fence)
    if gap is None or planned.span.empty:
        return
    is_there = table_exists(replica.spark, replica.layout.changes(replica.table))
    if not is_there or rows_behind(replica.batch_events(planned.batch), task) < (planned.rows or 1):
        raise gap_error(task.table, gap)


@failpoint("stage_chunks")
def stage_chunks(
    replica: Replica,
    spec: JobSpec,
    source: JdbcSource,
    part: TableSnapshot,
    chunk_range: ChunkRange,
    span: ChunkSpan,
    readers: int,
) -> ChunkRange:
    """Read some chunks of a table into its staging table, behind those of its slice, and return it with them.

    The source counts after the read and before the high mark, so that every change between the two is in the window.

    Where nobody sees to it that keys are unique, and rows share one, the whole slice is read once more: a scan may
    meet a row twice that was moved meanwhile. So it is where another run has staged rows between.

    :raises SourceError: several rows have the same key, both times.
    """

    def rows(span: ChunkSpan) -> DataFrame:
        how = Fetch(spec.settings.snapshot_fetch_rows, spec.settings.snapshot_isolation)
        return chunk_rows(replica.spark, source, replica.schema, part, span, how, readers)

    staging, whole = replica.staging, replace(span, first=chunk_range.first)
    version = staging.add(rows(span), chunk_range.staging_version) if chunk_range.counts else staging.write(rows(span))
    if version is None:
        span, chunk_range, version = whole, replace(chunk_range, counts=()), staging.write(rows(whole))
    if _may_double(replica.schema, part) and not (doubled := staging.doubled(version)).isEmpty():
        span, chunk_range, version = whole, replace(chunk_range, counts=()), staging.write(rows(whole))
        _check_unique(replica, doubled, version)
    newest = staging.rows(version).where(F.col("chunk") >= span.first)
    read = {int(row[0]): int(row[1]) for row in newest.groupBy("chunk").count().collect()}
    counted = count_chunks(replica.spark, source, replica.schema, part, span, spec.settings.parallel_reads)
    counts = (
        ChunkCounts(*chunk_bounds(part, chunk), read.get(chunk, 0), held) for chunk, held in sorted(counted.items())
    )
    return replace(chunk_range, last=span.last, staging_version=version, counts=(*chunk_range.counts, *counts))


def _slice_of(replica: Replica, planned: PlannedBatch) -> ChunkRange | None:
    """Return the slice that a batch brings; none where it was read under other columns, or redone without it once."""
    chunk_range = with_same_columns(planned.chunk_range, replica.schema)
    return (
        None
        if chunk_range is not None and not chunk_range.delete_missing and replica.has_excluded_chunks(planned.batch)
        else chunk_range
    )


def _may_double(schema: TableSchema, part: TableSnapshot) -> bool:
    """Whether rows that are read may share a key, as nobody sees to it that they do not."""
    return bool(schema.key) and (not schema.unique or bool(part.select))


def _bring_changes(
    replica: Replica,
    spec: JobSpec,
    source: JdbcSource,
    task: TableTask,
    planned: PlannedBatch,
    chunk_range: ChunkRange | None,
    held: AppliedBatch | None,
    is_redone: bool,
) -> tuple[DataFrame, BatchCounts]:
    """Bring a batch's changes into the change log, and what its slice says is gone; return the batch and its counts.

    What `is_redone` may have left more there than was counted when it was planned.
    """
    has_changes = planned.rows != 0 and not planned.span.empty
    batch, counts = (
        pull(replica, spec, source, task, planned) if has_changes else (replica.batch_events(planned.batch), None)
    )
    rows = None if is_redone else planned.rows
    if chunk_range is not None and append_found_deletes(replica, spec, planned, chunk_range, held):
        has_changes, batch, rows, counts = True, replica.batch_events(planned.batch), None, None
    if not (has_changes or is_redone):
        return batch, BatchCounts()
    if counts is not None and not is_redone:
        return batch, counts
    # The session may be set for a snapshot's many rows, beside which there are few changes.
    with conf_for_row_count(replica.spark, rows):
        return batch, count_batch(batch)


def _check_unique(replica: Replica, doubled_first: DataFrame, second: int) -> None:
    """Refuse what was staged twice of which the state would hold several rows of one key, which no merge tells apart.

    No batch is planned of it yet, so that what is corrected counts at the next tick.
    """
    doubled = doubled_first.intersect(replica.staging.doubled(second)).count()
    if doubled:
        key = ", ".join(replica.schema.key)
        raise SourceError(
            f"{replica.table}: its key ({key}) is not unique: {doubled} keys are each of several of the rows read",
            f"Name columns whose values are unique with {KEY_PROPERTY}, or correct its select in {SELECT_PROPERTY}.",
        )


def _committed(
    planned: PlannedBatch,
    counts: BatchCounts,
    published: Mapping[int, int],
    state: StateVersion,
    last: AppliedBatch | None,
) -> AppliedBatch:
    before_ms = None if last is None else last.commit_ts_ms
    return AppliedBatch(
        batch=planned.batch,
        table=planned.table,
        upto=planned.upto,
        capture=planned.capture,
        creates=counts.creates,
        updates=counts.updates,
        deletes=counts.deletes,
        reads=sum(published.values()),
        commit_ts_ms=before_ms if counts.last_commit_us is None else counts.last_commit_us // 1000,
        state_version=state.version,
        rows=state.rows,
        commit_lsn=None if counts.last_commit is None else Lsn.parse(counts.last_commit),
        snapshot=None if planned.chunk_range is None else planned.chunk_range.snapshot,
        chunk_range=planned.chunk_range,
        published=published,
    )
