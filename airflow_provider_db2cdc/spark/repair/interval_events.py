"""The events of an interval, in the change log and at the source."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.repair.coverage import Coverage
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.repair.log_rows import (
    EVENT_ID,
    events_of,
    touched_parts,
    within_commits,
    within_times,
)

IS_MISSING = "is_pulled AND is_read AND compared = 0"


@dataclass(frozen=True)
class IntervalEvents:
    """One row for each event of an interval (checkpointed).

    EVENT_ID; `is_pulled`: it is not a snapshot's; `parts`: what it touches; `is_read`: the source has it; `compared`:
    how often the change log has it where that is compared with the source; `batch`: the first batch that has it.
    """

    rows: DataFrame

    @property
    def missing(self) -> DataFrame:
        """The events (EVENT_ID) that the change log lacks."""
        return self.rows.where(IS_MISSING).select(*EVENT_ID)

    def touched(self) -> DataFrame:
        """Return what the events touch: `part`, a key or an image."""
        return self.rows.select(F.explode("parts").alias("part")).distinct()

    def count(self, floor: Lsn | None) -> tuple[Findings, int | None]:
        """Return the counts of events, and the first batch that the change log has of them. It is an action.

        An event that only the log has counts if its change row is not pruned: it is after `floor`.
        """
        is_kept = F.lit(True) if floor is None else F.col("__commit_lsn") > str(floor)
        is_only_in_log = F.expr("is_pulled AND NOT is_read AND compared > 0") & is_kept
        is_pulled = F.col("is_pulled")
        commits = F.count_distinct(F.when(is_pulled, F.col("__commit_lsn"))).alias("commits")
        is_so = {"events": is_pulled, "events_added": F.expr(IS_MISSING), "events_only_in_log": is_only_in_log}
        sums = [_sum(F.when(one, 1)).alias(name) for name, one in is_so.items()]
        doubled = _sum(F.when(F.col("compared") > 1, F.col("compared") - 1)).alias("events_doubled")
        [row] = self.rows.agg(commits, *sums, doubled, F.min("batch").alias("batch")).collect()
        counts = row.asDict()
        return Findings(**{name: counts[name] for name in counts if name != "batch"}), counts["batch"]


def interval_events(
    work: Backfill, covered: Coverage, schema: TableSchema, log: DataFrame, read: DataFrame | None
) -> IntervalEvents:
    """Return the events of an interval in the log (`log_rows`), and in change log rows that were read. It is an action.

    An event that both have is of the interval if either has its time there: the source prunes the times of commits.
    """
    sides = _side(log.where(within_commits(work)), schema, F.lit(False), _is_compared(covered))
    if read is not None:
        sides = sides.unionByName(_side(events_of(read, schema), schema, F.lit(True), F.lit(False)))
    # A snapshot's events have no place of their own in the source's log.
    own = F.when(~F.col("is_pulled"), F.col("parts")).alias("own")
    events = sides.groupBy(*EVENT_ID, "is_pulled", own).agg(
        F.first("parts").alias("parts"),
        F.max("is_read").alias("is_read"),
        F.sum("compared").alias("compared"),
        F.max("ts_us").alias("ts_us"),
        F.min("batch").alias("batch"),
    )
    return IntervalEvents(events.where(within_times(work)).drop("own", "ts_us").localCheckpoint())


def _side(events: DataFrame, schema: TableSchema, is_read: Column, is_compared: Column) -> DataFrame:
    batch = F.when(~is_read, F.col("__batch")).alias("batch")
    facts = (touched_parts(schema).alias("parts"), is_read.alias("is_read"), is_compared.cast("int").alias("compared"))
    return events.select(*EVENT_ID, "is_pulled", "ts_us", batch, *facts)


def _is_compared(covered: Coverage) -> Column:
    span, commit = covered.span, F.col("__commit_lsn")
    if span is None:
        return F.lit(False)
    is_since = F.col("is_pulled") & (F.col("__batch") >= covered.pulled_since)
    return is_since & (commit > str(span.after)) & (commit <= str(span.upto))


def _sum(value: Column) -> Column:
    return F.coalesce(F.sum(value), F.lit(0))
