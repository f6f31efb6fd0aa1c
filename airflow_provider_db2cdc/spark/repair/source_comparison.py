"""The comparison of a table's change rows with its change log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange, synchpoint_of
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.change_pull import naming_bare_updates, read_changes
from airflow_provider_db2cdc.spark.apply.fold import safe_to_fold
from airflow_provider_db2cdc.spark.events.net_effect import count_batch
from airflow_provider_db2cdc.spark.jdbc.connection import driver_connection
from airflow_provider_db2cdc.spark.repair.log_rows import EVENT_ID, IS_OF_SOURCE, in_interval
from airflow_provider_db2cdc.spark.repair.pulled import PulledRanges, read_pulled_ranges
from airflow_provider_db2cdc.sql.asn import pruned_upto
from airflow_provider_db2cdc.sql.backfill import first_commit_time


@dataclass(frozen=True)
class SourceComparison:
    """What the log lacks: rows of the change log (`added`, None without any), each under the batch that covers it."""

    found: Findings
    added: DataFrame | None = None


def compare_with_source(context: BatchContext, work: Backfill, log: DataFrame) -> SourceComparison:
    """Compare the change rows of an interval that batches have pulled with the change log (`log_rows`)."""
    replica, last = context.replica, context.batch.last
    assert last is not None
    pulled = read_pulled_ranges(replica.spark, replica.layout, replica.table)
    after = None if pulled is None else max(work.after or pulled.after, pulled.after)
    upto = min(work.upto or last.upto, last.upto)
    is_same_capture = last.capture == context.batch.task.capture.identity
    if pulled is None or after is None or upto <= after or not is_same_capture:
        return SourceComparison(Findings())
    span = LsnRange(after, upto)
    rows = _change_rows(context, span, work)
    # The floor is read after the rows. A row that was pruned before the read is then below it.
    floor, kept_ms = _pruned(context, span)
    sides = _joined(rows, log.where(F.col("__batch") >= pulled.begun), span, work).localCheckpoint()
    found = replace(_counted(sides, floor), comparable_since_ms=_since(work, pulled, span, floor, kept_ms))
    return SourceComparison(found, _added(context, rows, sides, pulled) if found.events_added else None)


def _change_rows(context: BatchContext, span: LsnRange, work: Backfill) -> DataFrame:
    """Return the interval's change rows as rows of the change log."""
    count = context.batch.task.rows
    pull = replace(context.planned, after=span.after, upto=span.upto, rows=count or None, repair=None)
    reading = replace(context, batch=replace(context.batch, planned=pull))
    with naming_bare_updates(context):
        rows = read_changes(reading).localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    # A tombstone has no source. It belongs to its deletion, see `_added`.
    timed = rows.withColumn("ts_us", F.col("source.ts_us"))
    return timed.where(in_interval(work) | F.col("op").isNull()).select(*rows.columns)


def _joined(rows: DataFrame, log: DataFrame, span: LsnRange, work: Backfill) -> DataFrame:
    """Return the events of either side: EVENT_ID, `is_read`, and how often the log has it (`logged`)."""
    read = rows.where("op IS NOT NULL").select(
        "__commit_lsn", F.col("source.change_lsn").alias("change_lsn"), "op", F.lit(True).alias("is_read")
    )
    is_within = (F.col("__commit_lsn") > str(span.after)) & (F.col("__commit_lsn") <= str(span.upto))
    own = log.where(IS_OF_SOURCE).where(is_within & in_interval(work))
    return read.join(own.groupBy(*EVENT_ID).agg(F.count("*").alias("logged")), [*EVENT_ID], "full")


def _counted(sides: DataFrame, floor: Lsn | None) -> Findings:
    is_kept = F.lit(True) if floor is None else F.col("__commit_lsn") > str(floor)
    counts = {
        "events_added": F.col("logged").isNull(),
        "events_only_in_log": F.col("is_read").isNull() & is_kept,
    }
    columns = [F.coalesce(F.sum(is_so.cast("int")), F.lit(0)).alias(name) for name, is_so in counts.items()]
    doubled = F.coalesce(F.sum(F.col("logged") - 1), F.lit(0)).alias("events_doubled")
    [row] = sides.agg(*columns, doubled).collect()
    return Findings(**row.asDict())


def _added(context: BatchContext, rows: DataFrame, sides: DataFrame, pulled: PulledRanges) -> DataFrame:
    """Return the missing events, each at its place in its commit and with its tombstone."""
    missing = sides.where("logged IS NULL").select(*EVENT_ID)
    placed = safe_to_fold(context.replica, rows, count_batch(rows)).withColumn("change_lsn", F.col("source.change_lsn"))
    events = placed.where("op IS NOT NULL").join(missing, [*EVENT_ID], "left_semi")
    place = ["__commit_lsn", "__intent_lsn", "key", "__ordinal"]
    deleted = events.where("op = 'd'").withColumn("__ordinal", F.col("__ordinal") + 1).select(*place)
    tombstones = placed.where("op IS NULL").join(deleted, place, "left_semi")
    return pulled.under_covering(events.unionByName(tombstones).select(*rows.columns)).localCheckpoint()


def _pruned(context: BatchContext, span: LsnRange) -> tuple[Lsn | None, int | None]:
    """Return up to which commit change rows may be pruned, and the time of the first commit after it.

    The time is None where nothing of the range is pruned, or nothing is left.
    """
    spec, table = context.spec, context.replica.table
    with driver_connection(context.replica.spark, context.source) as connection:
        rows = connection.text_rows(pruned_upto(spec.source.asn_schema).text)
        floors = {TableId.in_catalog(row[0], row[1]): synchpoint_of(bytes.fromhex(row[2] or "")) for row in rows}
        floor = floors.get(table)
        if floor is None or len(floor.raw) != len(span.after.raw) or floor <= span.after:
            return floor, None
        [[commit, local]] = connection.text_rows(first_commit_time(spec.source.asn_schema, floor).text) or [[None] * 2]
    if commit is None or local is None:
        return floor, None
    time = spec.source_clock.utc(datetime.fromisoformat(local), Lsn.parse(commit))
    return floor, int(time.replace(tzinfo=UTC).timestamp() * 1000)


def _since(work: Backfill, pulled: PulledRanges, span: LsnRange, floor: Lsn | None, kept_ms: int | None) -> int | None:
    """Return from which time on change rows could be compared, None if all are pruned."""
    begun_ms = pulled.begun_ms if work.after is None or work.after < pulled.after else work.begin_ms
    if floor is None or floor <= span.after:
        return max(work.begin_ms, begun_ms)
    return None if kept_ms is None else max(work.begin_ms, begun_ms, kept_ms)
