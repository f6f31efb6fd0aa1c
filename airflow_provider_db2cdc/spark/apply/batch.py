"""One batch of one table: first into the change log, then from the change log into the state.

The state is computed from the change log. So a retry after a crash between the two reads nothing from the source again.
"""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.change_pull import pull
from airflow_provider_db2cdc.spark.apply.chunk_publish import (
    PublishedRows,
    append_found_deletes,
    append_range_deletes,
    append_read_rows,
)
from airflow_provider_db2cdc.spark.apply.merge import StateVersion, find_state_change, write_state_change
from airflow_provider_db2cdc.spark.events.net_effect import BatchCounts, LoggedEvents, count_batch
from airflow_provider_db2cdc.spark.session import conf_for_row_count
from airflow_provider_db2cdc.tick.log import log_progress, now_ms


def apply_batch(context: BatchContext) -> AppliedBatch:
    """Apply one planned batch of one table and return it as applied. The replica must be prepared.

    A retry changes nothing: Delta skips each write that is there already. Rows that another run has staged, or this one
    under other columns, are excluded and read again later. What a first try published of them still goes into the
    state.
    """
    if context.excludes_chunks:
        # It comes first. A first try that hangs before it publishes rows must not do so after they are counted here.
        context.replica.exclude_chunks(context.planned.batch)
    changes = append_changes(context)
    reads = append_read_rows(context, changes)
    state_change = find_state_change(context, changes, reads)
    if state_change.gone is not None:
        changes = append_range_deletes(context, changes, state_change.gone)
    events, read = changes.counts.events, sum(reads.counts.values())
    log_progress(
        f"table={context.planned.table} batch={context.planned.batch} in the change log: {events} events, {read} reads"
    )
    state = write_state_change(context, state_change)
    return _applied_batch(context, changes.counts, reads, state)


def append_changes(context: BatchContext) -> LoggedEvents:
    """Append the batch's changes, and the deletes that its chunk range shows, to the change log. Return its events."""
    planned = context.planned
    has_changes = planned.rows != 0 and not planned.span.empty
    pulled = pull(context) if has_changes else LoggedEvents(context.events, BatchCounts())
    # An earlier try may have appended more than the plan counted.
    has_more = append_found_deletes(context) or context.excludes_chunks
    if pulled is not None and not has_more:
        return pulled
    # The session may be set for a snapshot's many rows, while there are few changes.
    with conf_for_row_count(context.replica.spark, None if has_more else planned.rows):
        return LoggedEvents(context.events, count_batch(context.events))


def _applied_batch(
    context: BatchContext, counts: BatchCounts, reads: PublishedRows, state: StateVersion
) -> AppliedBatch:
    planned, last = context.planned, context.batch.last
    # A commit from before a restart of the table may be of another history of the source.
    last_lsn = None if last is None or context.batch.is_begun else last.commit_lsn
    last_ms = None if last is None else last.commit_ts_ms
    return AppliedBatch(
        batch=planned.batch,
        table=planned.table,
        upto=planned.upto,
        capture=planned.capture,
        creates=counts.creates,
        updates=counts.updates,
        deletes=counts.deletes,
        reads=sum(reads.counts.values()),
        commit_ts_ms=last_ms if counts.last_commit_us is None else counts.last_commit_us // 1000,
        as_of_ms=_as_of_ms(context, counts),
        state_version=state.version,
        rows=state.rows,
        commit_lsn=last_lsn if counts.last_commit is None else Lsn.parse(counts.last_commit),
        snapshot=None if reads.chunk_range is None else reads.chunk_range.snapshot,
        chunk_range=reads.chunk_range,
        published={} if reads.chunk_range is None else reads.counts,
    )


def _as_of_ms(context: BatchContext, counts: BatchCounts) -> int:
    """Return a time in epoch milliseconds. The source committed nothing later of what the state shows."""
    last = context.batch.last
    if last is None or context.planned.chunk_range is not None or counts.untimed:
        return now_ms()
    return max(last.as_of_ms, -(-(counts.greatest_us or 0) // 1000))
