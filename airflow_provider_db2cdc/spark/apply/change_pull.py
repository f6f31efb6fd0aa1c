"""The pull of a range of a change table into the change log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error
from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.offset.offset import restart_hint
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.fold import safe_to_fold
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import table_exists
from airflow_provider_db2cdc.spark.events.net_effect import LoggedEvents, count_batch
from airflow_provider_db2cdc.spark.events.pairing import BARE_UPDATE, Pairing, paired
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch, driver_connection
from airflow_provider_db2cdc.spark.ledger.batch_log import check_not_applied
from airflow_provider_db2cdc.spark.session import SMALL_ROWS, conf_for_row_count, kept_level
from airflow_provider_db2cdc.sql.asn import count_changes
from airflow_provider_db2cdc.sql.changes import commit_at_row, has_before_images, split, timed_change_rows


def pull(context: BatchContext) -> LoggedEvents | None:
    """Append the changes of a planned batch to the change log. Return its events, None if a first try appended them.

    A retry neither reads nor appends nor counts a batch that is there already. The rows are checkpointed while they are
    counted, ordered and appended. A small batch is also returned from the checkpoint: opening the table's new version
    takes longer than writing those rows.

    :raises GapError: when change rows were pruned before they were read.
    :raises SourceError: when an update has no before image, so that the changed row is unknown. Nothing is appended.
    """
    replica, planned = context.replica, context.planned
    is_small = planned.rows is not None and planned.rows <= SMALL_ROWS
    events, counts = context.events, None
    with naming_bare_updates(context), conf_for_row_count(replica.spark, planned.rows):
        if not replica.has_written("changes", planned.batch):
            level = kept_level(str(replica.spark.sparkContext.master), is_small)
            events = read_changes(context).localCheckpoint(storageLevel=level)
            counts = count_batch(events, replica.schema.key)
            events = safe_to_fold(replica, events, counts)
        is_new = replica.append_changes(events.limit(0) if counts is None else events, planned.batch, "changes")
    if planned.rows:
        _check_all_read(context, planned.rows)
    if not is_new or counts is None:
        return None
    return LoggedEvents(events if is_small else context.events, counts, is_kept=is_small)


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


def read_changes(context: BatchContext) -> DataFrame:
    """Return the batch's change rows as envelopes. Each reader has a sub-range of whole commits, in order."""
    spark, spec, source, task = context.replica.spark, context.spec, context.source, context.batch.task
    pairing = _pairing(spec, task)
    events: DataFrame | None = None
    for span in _spans(context):
        fetch = Fetch(spec.settings.query_fetch_rows)
        select = timed_change_rows(spec.source.asn_schema, task.schema, task.capture, span)
        rows = source.frame(spark, select, fetch).coalesce(1)
        span_events = paired(rows, task.schema, pairing)
        events = span_events if events is None else events.unionAll(span_events)
    assert events is not None
    return context.envelopes.of_changes(events)


def _pairing(spec: JobSpec, task: TableTask) -> Pairing:
    before_images = has_before_images(task.schema, task.capture)
    return Pairing(
        spec.settings.key_change_detection,
        before_images,
        bare_updates=spec.settings.accept_update_rows and bool(task.schema.key),
        one_row=task.capture.update_as == "U" and before_images,
    )


@contextmanager
def naming_bare_updates(context: BatchContext) -> Iterator[None]:
    """Explain the error of a read that meets an update row without its before image."""
    task = context.batch.task
    try:
        yield
    except Exception as error:
        # A read raises it as Spark's error, a Delta write as py4j's.
        if BARE_UPDATE not in str(error):
            raise
        if task.capture.update_as == "DI":
            why, reinit = "although it is registered with CHG_UPD_TO_DEL_INS = 'Y'", _reinit(context.spec)
        else:
            nulls = " (or of which each column was null)" if all(c.nullable for c in task.schema.columns) else ""
            why, reinit = f"which are older than its columns for before images{nulls}", ""
        raise SourceError(
            f"the change table of {task.table} holds updates as single rows (U) without a before image, {why}: an "
            "update of a key, or of a row without one, leaves no trace of the old row there",
            f"{reinit}Have the table snapshotted again by {restart_hint(task.table)}.",
        ) from error


def _reinit(spec: JobSpec) -> str:
    """Return the remedy for an agent that does not know a registration: it reads registrations only at its start."""
    where = f"capture_server={spec.source.database} capture_schema={spec.source.asn_schema}"
    return f"Have the capture agent read its registrations again (asnccmd {where} reinit). "


@failpoint("check_all_read")
def _check_all_read(context: BatchContext, rows: int) -> None:
    """Check that this try, or an earlier one, read all change rows that were counted.

    The count comes after the read. If the source still has all rows, the read was complete. If rows are pruned by now,
    the events in the change log show whether they were read before.

    :raises ConcurrentRunError: when another run has finished the batch.
    :raises GapError: when rows were pruned before they were read.
    """
    replica, task, planned = context.replica, context.batch.task, context.planned
    with driver_connection(replica.spark, context.source) as connection:
        [[_, count]] = connection.text_rows(count_changes([(task.capture, planned.span)]).text)
    if int(count or 0) >= rows:
        return
    if rows_behind(context.events, task) < rows:
        # Without this check a run that another one has overtaken would have the table snapshotted again for a gap.
        check_not_applied(replica.spark, replica.layout, task.table, planned.batch)
        raise gap_error(
            task.table, f"of {rows} change rows up to {planned.upto} some were pruned before they were read"
        )


def rows_behind(batch: DataFrame, task: TableTask) -> int:
    """Return the least number of change rows that yield the events of a batch.

    An update of two rows (D and I) yields one event. An update in one row that changes a key yields two events with the
    same LSNs. With columns for before images an update may be in either form. So there only distinct LSNs are counted.
    """
    places = F.count_distinct("source.commit_lsn", "source.change_lsn")
    rows = F.sum(F.when((F.col("op") == "u") & F.col("before").isNotNull(), 2).otherwise(1))
    [total] = _source_events(batch).agg(places if has_before_images(task.schema, task.capture) else rows).collect()
    return int(total[0] or 0)


def _source_events(batch: DataFrame) -> DataFrame:
    """Return the events of a batch that come from change rows of the source."""
    return batch.where("op IN ('c', 'u', 'd') AND source.snapshot = 'false'")


def _spans(context: BatchContext) -> list[LsnRange]:
    task, planned = context.batch.task, context.planned
    settings, span = context.spec.settings, planned.span
    # A snapshot's window, or a batch of an older plan, has its own count instead of the plan's.
    counted = task.rows if planned.rows is None else planned.rows
    if counted <= settings.rows_per_read:
        return [span]
    rows = max(settings.rows_per_read, -(-counted // settings.parallel_reads))
    cuts: list[Lsn] = []
    with driver_connection(context.replica.spark, context.source) as connection:
        while len(cuts) < settings.parallel_reads:
            rest = LsnRange(cuts[-1] if cuts else span.after, span.upto)
            commit_rows = connection.text_rows(commit_at_row(task.capture, rest, rows - 1))
            if not commit_rows or commit_rows[0][0] is None:
                break
            cuts.append(Lsn.parse(commit_rows[0][0]))
    return split(span, cuts)
