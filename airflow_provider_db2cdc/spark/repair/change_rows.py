"""The change rows of an interval as a repair reads them, and up to where the source has pruned them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange, synchpoint_of
from airflow_provider_db2cdc.cdc.repair.pulled import Beginning
from airflow_provider_db2cdc.cdc.repair.repair import Backfill
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.change_pull import naming_bare_updates, read_changes
from airflow_provider_db2cdc.spark.apply.fold import safe_to_fold
from airflow_provider_db2cdc.spark.events.net_effect import count_batch
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection, driver_connection
from airflow_provider_db2cdc.spark.repair.log_rows import EVENT_ID
from airflow_provider_db2cdc.sql.asn import count_changes, pruned_upto
from airflow_provider_db2cdc.sql.units_of_work import first_commit_time


@dataclass(frozen=True)
class ReadRows:
    """The change rows of a range as rows of the change log (`rows`, checkpointed), None if there are none.

    Those up to `floor` may be pruned. The first commit that can be compared is at `since_ms`, None without any.
    """

    rows: DataFrame | None = None
    floor: Lsn | None = None
    since_ms: int | None = None


@dataclass(frozen=True)
class ComparedRange:
    """The range of change rows that a backfill compares, how many the source has in it, and what began the table."""

    span: LsnRange
    count: int
    begun: Beginning


def compared_range(context: BatchContext, span: LsnRange | None, begun: Beginning | None) -> ComparedRange | None:
    """Return the range with its count at the source, None if there is nothing to compare."""
    if span is None or begun is None:
        return None
    with driver_connection(context.replica.spark, context.source) as connection:
        [[_, count]] = connection.text_rows(count_changes([(context.batch.task.capture, span)]).text)
    return ComparedRange(span, int(count or 0), begun)


def read_rows(context: BatchContext, schema: TableSchema, compared: ComparedRange) -> ReadRows:
    """Read these columns of the change rows of a range, and pair the rows as a tick does."""
    rows, span = None, compared.span
    if compared.count:
        pull = replace(context.planned, after=span.after, upto=span.upto, rows=compared.count, repair=None)
        batch = replace(context.batch, planned=pull, task=replace(context.batch.task, schema=schema))
        reading = replace(context, batch=batch, replica=replace(context.replica, schema=schema))
        with naming_bare_updates(context):
            rows = read_changes(reading).localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    # The floor is read after the rows. A row that was pruned before the read is then below it.
    with driver_connection(context.replica.spark, context.source) as connection:
        found = connection.text_rows(pruned_upto(context.spec.source.asn_schema).text)
        floors = {TableId.in_catalog(row[0], row[1]): synchpoint_of(bytes.fromhex(row[2] or "")) for row in found}
        floor = floors.get(context.replica.table)
        floor = floor if floor is not None and len(floor.raw) == len(span.after.raw) else None
        first_after = partial(_first_commit_ms, context, connection)
        return ReadRows(rows, floor, _since_ms(work_of(context), compared, floor, first_after))


def missing_rows(context: BatchContext, rows: DataFrame, missing: DataFrame) -> DataFrame:
    """Return those change log rows whose events are missing (EVENT_ID), each with its tombstone.

    An event is at the place in its commit that it had, or would have had, when a tick pulled the commit.
    """
    placed = safe_to_fold(context.replica, rows, count_batch(rows)).withColumn("change_lsn", F.col("source.change_lsn"))
    events = placed.where("op IS NOT NULL").join(missing, [*EVENT_ID], "left_semi")
    place = ["__commit_lsn", "__intent_lsn", "key", "__ordinal"]
    deleted = events.where("op = 'd'").withColumn("__ordinal", F.col("__ordinal") + 1).select(*place)
    tombstones = placed.where("op IS NULL").join(deleted, place, "left_semi")
    return events.unionByName(tombstones).select(*rows.columns)


def work_of(context: BatchContext) -> Backfill:
    """Return the backfill that a batch carries out."""
    assert context.planned.repair is not None
    work = context.planned.repair.repair
    assert isinstance(work, Backfill)
    return work


def _since_ms(
    work: Backfill, compared: ComparedRange, floor: Lsn | None, first_after: Callable[[Lsn], int | None]
) -> int | None:
    """Return from which time on change rows could be compared, None if all are pruned."""
    span, begun = compared.span, compared.begun
    position = span.after if floor is None else max(floor, span.after)
    if position == work.after:
        return work.begin_ms
    since = begun.at_ms if position == begun.after else first_after(position)
    return None if since is None else max(work.begin_ms, since)


def _first_commit_ms(context: BatchContext, connection: DriverConnection, after: Lsn) -> int | None:
    """Return the time of the first commit after a position, None if there is none."""
    rows = connection.text_rows(first_commit_time(context.spec.source.asn_schema, after).text)
    [commit, local] = rows[0] if rows else (None, None)
    if commit is None or local is None:
        return None
    time = context.spec.source_clock.utc(datetime.fromisoformat(local), Lsn.parse(commit))
    return int(time.replace(tzinfo=UTC).timestamp() * 1000)
