"""Changes of a table, from its change log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, TargetError
from airflow_provider_db2cdc.read.change_range import BatchRange, ChangeRange, LsnRange, TimeRange
from airflow_provider_db2cdc.read.retention import check_kept
from airflow_provider_db2cdc.spark.apply.log_replay import AT
from airflow_provider_db2cdc.spark.delta.table_io import current_version, load, newest_version, table_exists

ORDER = AT
"""The columns that order a change log."""

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
EVERYTHING = BatchRange()


def read_changes(
    spark: SparkSession, target: str, table: TableId | str, within: ChangeRange = EVERYTHING, tombstones: bool = True
) -> DataFrame:
    """Return the events of a table within a range, in the order of the change log as it is now.

    Only applied batches are read, because another one may be half there. `tombstones` says whether to return them.

    :raises ConfigurationError: when the table is not in the target, or the range ends after its last applied batch.
    :raises TargetError: when the range belongs to another change log than the target now has, or begins before the
        events that retention has kept.
    """
    name = _table_id(table)
    last = last_batch(spark, target, name)
    changes = Layout(target).changes(name)
    log = load(spark, changes, newest_version(spark, changes)).where(F.col("__batch") <= last)
    if isinstance(within, BatchRange):
        _check_range(spark, target, name, within, last)
    check_kept(log, target, name, within)
    match within:
        case BatchRange():
            found = log.where(_between("__batch", within.after, within.upto))
        case LsnRange():
            after, upto = (end and str(end) for end in within.ends)
            found = log.where(_between("__commit_lsn", after, upto))
            # LSNs of another length are of another history. Their texts cannot be compared.
            if end := after or upto:
                found = found.where(F.length("__commit_lsn") == len(end))
        case TimeRange():
            found = _in_time(log, within, tombstones)
    return (found if tombstones else found.where("op IS NOT NULL")).orderBy(*ORDER)


def last_batch(spark: SparkSession, target: str, table: TableId | str) -> int:
    """Return the number of a table's last applied batch. All of its events up to there are in the change log.

    :raises ConfigurationError: when the table is not in the target, or no batch of it was applied yet.
    """
    name, commits = _table_id(table), Layout(target).internal("commits")
    if not table_exists(spark, commits):
        raise ConfigurationError(f"there is no pipeline's target at {target}", "Check the path or the schema's name.")
    is_table = (F.col("schema") == name.schema) & (F.col("table") == name.name)
    [(last,)] = load(spark, commits).where(is_table).agg(F.max("batch")).collect()
    if last is None:
        raise ConfigurationError(
            f"{name}: the target {target} has no applied batch of it",
            "Check the name, which is as in Db2's catalog. A new table needs a tick first.",
        )
    return int(last)


def _table_id(table: TableId | str) -> TableId:
    return table if isinstance(table, TableId) else parse_table(table, "table")


def _check_range(spark: SparkSession, target: str, table: TableId, within: BatchRange, last: int) -> None:
    if within.log_id and current_version(spark, Layout(target).changes(table)).id != within.log_id:
        raise TargetError(
            f"{table}: the range belongs to a change log that the target {target} no longer has",
            "The target was created again, or it is another pipeline's. Start again with `BatchRange()`.",
        )
    if max(within.after, within.upto or 0) > last:
        raise ConfigurationError(
            f"{table}: the range ends with batch {within.upto or within.after}, but the last applied one is {last}",
            "Read up to `last_batch(...)`, or leave the end out.",
        )


def _between(name: str, after: Any, upto: Any) -> Column:
    """Return whether a column is in a half-open range, whose ends may be None."""
    column, conditions = F.col(name), F.lit(True)
    if after is not None:
        conditions = conditions & (column > after)
    return conditions if upto is None else conditions & (column <= upto)


def _in_time(log: DataFrame, within: TimeRange, tombstones: bool) -> DataFrame:
    """Return events by the time of their commit. A tombstone has no time: it belongs to the delete before it."""
    after, upto = (None if time is None else (time - EPOCH) // MICROSECOND for time in (within.after, within.upto))
    events = log.where(F.col("op").isNotNull() & F.col("source.ts_us").isNotNull())
    events = events.where(_between("source.ts_us", after, upto))
    if not tombstones:
        return events
    place = ("__batch", "__commit_lsn", "__intent_lsn", "key", "__ordinal")
    deletes = events.where("op = 'd'").select(*place[:-1], (F.col("__ordinal") + 1).cast("int").alias("__ordinal"))
    return events.unionByName(log.where("op IS NULL").join(deletes, [*place], "left_semi").select(*log.columns))
