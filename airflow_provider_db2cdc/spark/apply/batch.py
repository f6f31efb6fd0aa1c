"""One batch of one table: first into the change log, then from the change log into the state.

The state is computed from the change log. So a retry after a crash between the two reads nothing from the source again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error
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
    """Apply one planned batch of one table and return it as applied. The replica must be prepared.

    A retry changes nothing: Delta skips each write that is there already. Rows that were staged under other columns are
    excluded, and read again later. What a first try published of them still goes into the state. If the table starts
    with the batch (`is_begun`), `last` says nothing about the state, which may have been moved away.
    `compared` is the earlier comparison of the chunk range with the state, if any.
    """
    chunk_range = _usable_chunk_range(replica, planned)
    is_excluded = chunk_range is None and planned.chunk_range is not None
    if is_excluded:
        replica.exclude_chunks(planned.batch)
    held = None if is_begun or is_excluded else last
    # Only a first try is compared beforehand. Without that, a first try may have published deletes: count the batch.
    is_redone = is_excluded or (chunk_range is not None and chunk_range.deletes_by_range and compared is None)
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
    commit = _applied_batch(replace(planned, chunk_range=reads.chunk_range), counts, reads.counts, after, last)
    # A commit from before a restart of the table may be of another history of the source.
    last_lsn = None if is_begun or last is None else last.commit_lsn
    return replace(commit, commit_lsn=commit.commit_lsn or last_lsn)


def max_rows(chunk_range: ChunkRange, held: int) -> int:
    """Return the greatest number of rows that a chunk range may add or delete. `held` is the state's row count.

    The number of deletes is not known beforehand. A deletion of missing rows has no limit.
    """
    return (
        sys.maxsize
        if chunk_range.delete_missing
        else sum(chunk.rows_read for chunk in chunk_range.counts) + (held if chunk_range.deletes_by_range else 0)
    )


@failpoint("check_readable")
def check_readable(replica: Replica, task: TableTask, planned: PlannedBatch, capture_lsn: Lsn) -> None:
    """Check that the changes of a batch to redo are still at the source, or in the change log already.

    `capture_lsn` is the capture position.

    :raises GapError: when the changes may be lost at the source, and the change log has fewer than were planned.
    """
    now = CapturePoint(capture_lsn, task.capture.identity, task.capture.pruned_upto)
    gap = find_gap(CapturePoint(planned.after, planned.capture), now)
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
    """Read a chunk span into the staging table, after the chunks of its range. Return the range with both.

    The source counts after the read and before the high watermark: so the window has every change between the two.
    If a key need not be unique and rows share one, the whole range is read again: a scan meets a moved row twice.
    It is also read again if another run has staged rows meanwhile.

    :raises SourceError: when several rows share a key in both reads.
    """

    def rows(span: ChunkSpan) -> DataFrame:
        fetch = Fetch(spec.settings.snapshot_fetch_rows, spec.settings.snapshot_isolation)
        return chunk_rows(replica.spark, source, replica.schema, part, span, fetch, readers)

    staging, whole = replica.staging, replace(span, first=chunk_range.first)
    version = staging.add(rows(span), chunk_range.staging_version) if chunk_range.counts else staging.write(rows(span))
    if version is None:
        span, chunk_range, version = whole, replace(chunk_range, counts=()), staging.write(rows(whole))
    if _may_share_keys(replica.schema, part) and not (doubled := staging.doubled(version)).isEmpty():
        span, chunk_range, version = whole, replace(chunk_range, counts=()), staging.write(rows(whole))
        _check_unique(replica, doubled, version)
    newest = staging.rows(version).where(F.col("chunk") >= span.first)
    read = {int(row[0]): int(row[1]) for row in newest.groupBy("chunk").count().collect()}
    counted = count_chunks(replica.spark, source, replica.schema, part, span, spec.settings.parallel_reads)
    counts = (
        ChunkCounts(*chunk_bounds(part, chunk), read.get(chunk, 0), count) for chunk, count in sorted(counted.items())
    )
    return replace(chunk_range, last=span.last, staging_version=version, counts=(*chunk_range.counts, *counts))


def _usable_chunk_range(replica: Replica, planned: PlannedBatch) -> ChunkRange | None:
    """Return the batch's chunk range. None if it was read under other columns, or a redo has excluded it."""
    chunk_range = with_same_columns(planned.chunk_range, replica.schema)
    return (
        None
        if chunk_range is not None and not chunk_range.delete_missing and replica.has_excluded_chunks(planned.batch)
        else chunk_range
    )


def _may_share_keys(schema: TableSchema, part: TableSnapshot) -> bool:
    """Whether rows that are read may share a key: Db2 does not enforce a unique key, or a select yields the rows."""
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
    """Append the batch's changes, and the deletes that its chunk range shows, to the change log.

    Returns the batch's events and their counts. With `is_redone` an earlier try may have appended more than the plan
    counted.
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
    # The session may be set for a snapshot's many rows, while there are few changes.
    with conf_for_row_count(replica.spark, rows):
        return batch, count_batch(batch)


def _check_unique(replica: Replica, doubled_first: DataFrame, second: int) -> None:
    """Refuse rows that share a key in both reads. A merge cannot tell several rows of one key apart.

    No batch is planned for them yet. So the next tick uses the corrected configuration.
    """
    doubled = doubled_first.intersect(replica.staging.doubled(second)).count()
    if doubled:
        key = ", ".join(replica.schema.key)
        raise SourceError(
            f"{replica.table}: its key ({key}) is not unique: {doubled} keys are each of several of the rows read",
            f"Name columns whose values are unique with {KEY_PROPERTY}, or correct its select in {SELECT_PROPERTY}.",
        )


def _applied_batch(
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
