"""The comparison of one table: the change tables with the change log, and the log with the state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.repair.coverage import Coverage, check_replayable, find_coverage
from airflow_provider_db2cdc.cdc.repair.repair import Findings
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon
from airflow_provider_db2cdc.spark.events.state_rows import KeyBounds, key_bounds
from airflow_provider_db2cdc.spark.repair.change_rows import (
    ComparedRange,
    ReadRows,
    compared_range,
    missing_rows,
    read_rows,
    work_of,
)
from airflow_provider_db2cdc.spark.repair.interval_events import IntervalEvents, interval_events
from airflow_provider_db2cdc.spark.repair.last_words import Touched, differences, held_rows, logged_rows, touched_rows
from airflow_provider_db2cdc.spark.repair.log_rows import EVENT_ID, events_of, log_rows, touched_parts
from airflow_provider_db2cdc.spark.repair.pulled import PulledBatches, read_pulled_batches
from airflow_provider_db2cdc.spark.session import conf_for_many
from airflow_provider_db2cdc.sql.changes import pairing_schema


@dataclass(frozen=True)
class TableComparison:
    """What a comparison found. The frames are checkpointed.

    `added` are rows for the change log that it lacks, each under the batch that pulled its commit, None without any.
    `corrections` are rows to merge into the state, with the bounds of their keys, None without any.
    """

    found: Findings
    added: DataFrame | None = None
    corrections: tuple[DataFrame, KeyBounds] | None = None


@failpoint("compare_table")
def compare_table(context: BatchContext) -> TableComparison:
    """Compare a table as the repair of a batch says. The session must be one for few rows."""
    assert context.planned.repair is not None
    pulled = read_pulled_batches(context.replica, context.planned.repair.repair)
    if context.planned.repair.repair.type == "backfill":
        return _compare_interval(context, pulled)
    return _compare_all(context, pulled)


def _compare_all(context: BatchContext, pulled: PulledBatches) -> TableComparison:
    replica, last = context.replica, context.batch.last
    check_replayable(replica.table, log_horizon(replica.spark, replica.layout, replica.table))
    log = log_rows(replica, 0, context.planned.batch)
    with conf_for_many(replica.spark, max(pulled.logged, 0 if last is None else last.rows)):
        ids = {"commits": F.col("__commit_lsn"), "events": F.struct(*EVENT_ID)}
        [counts] = (
            log.where("is_pulled").agg(*(F.count_distinct(one).alias(name) for name, one in ids.items())).collect()
        )
        keys = log.select(F.explode(touched_parts(replica.schema))).distinct().count()
        found = Findings(**counts.asDict(), keys=keys)
        return _with_corrections(context, TableComparison(found), log, None)


def _compare_interval(context: BatchContext, pulled: PulledBatches) -> TableComparison:
    replica, covered = context.replica, _coverage(context, pulled)
    log = log_rows(replica, covered.first_batch, context.planned.batch)
    compared = compared_range(context, covered.span, pulled.beginning)
    with conf_for_many(replica.spark, max(pulled.logged, compared.count if compared else 0)):
        events, read, (found, first) = _compared_events(context, covered, log, compared)
        found = replace(found, comparable_since_ms=read.since_ms, note=covered.note)
        added = _added(context, pulled, events, read) if found.events_added else None
        touched = touched_rows(events.touched(), replica.schema)
        result = TableComparison(replace(found, keys=touched.count), added)
        if not (touched.count and covered.compares_rows):
            return result
        return _with_corrections(context, result, _since(log, replica.schema, added, first), touched)


def _compared_events(
    context: BatchContext, covered: Coverage, log: DataFrame, compared: ComparedRange | None
) -> tuple[IntervalEvents, ReadRows, tuple[Findings, int | None]]:
    """Return the events of the interval, the change rows, and the counts of both.

    If the log lacks an event, whole rows are read and compared: the source may have pruned some since the first read.
    """
    whole = context.replica.schema
    for schema in dict.fromkeys((pairing_schema(whole, context.batch.task.capture), whole)):
        read = ReadRows() if compared is None else read_rows(context, schema, compared)
        events = interval_events(work_of(context), covered, schema, log, read.rows)
        counts = events.count(read.floor)
        if not counts[0].events_added:
            break
    return events, read, counts


def _coverage(context: BatchContext, pulled: PulledBatches) -> Coverage:
    replica, last = context.replica, context.batch.last
    assert last is not None
    upto = last.upto if last.capture == context.batch.task.capture.identity else None
    horizon = log_horizon(replica.spark, replica.layout, replica.table)
    return find_coverage(work_of(context), pulled.beginning, horizon, upto, bool(replica.schema.key))


def _added(context: BatchContext, pulled: PulledBatches, events: IntervalEvents, read: ReadRows) -> DataFrame:
    assert read.rows is not None
    return pulled.under_covering(missing_rows(context, read.rows, events.missing)).localCheckpoint()


def _since(log: DataFrame, schema: TableSchema, added: DataFrame | None, first: int | None) -> DataFrame:
    """Return the log with the added events, without what no last word of an event of the interval can be in.

    With a key that is what batches before `first`, the first one that has such an event, have logged.
    """
    if schema.key and added is None and first is not None:
        log = log.where(F.col("__batch") >= first)
    return log if added is None else log.unionByName(events_of(added, schema))


def _with_corrections(
    context: BatchContext, compared: TableComparison, log: DataFrame, touched: Touched | None
) -> TableComparison:
    replica = context.replica
    rows = differences(
        logged_rows(log, replica.schema, touched), held_rows(replica, touched), replica
    ).localCheckpoint()
    bounds = key_bounds(rows, replica.schema)
    found = replace(compared.found, rows_corrected=bounds.rows)
    return replace(compared, found=found, corrections=(rows, bounds) if bounds.rows else None)
