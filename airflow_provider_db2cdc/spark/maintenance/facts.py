"""What the pipeline's own tables say before maintenance: tables, ages of batches, and what is still needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceSpec
from airflow_provider_db2cdc.cdc.maintenance.retention import LogAge
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta.ownership import Owner, owner_of
from airflow_provider_db2cdc.spark.delta.table_io import load, table_exists, table_properties
from airflow_provider_db2cdc.spark.ledger.batch_rows import begins_table, planned_batch
from airflow_provider_db2cdc.spark.ledger.journal import Journal

NAME = ("schema", "table")


@dataclass(frozen=True)
class TableFacts:
    """What the logs know of a table. `kept` are batches whose rows of the batch log always stay, by the reason.

    `published` is the last chunk range that a batch has published.
    """

    age: LogAge
    kept: Mapping[str, int | None]
    published: ChunkRange | None


@dataclass(frozen=True)
class LedgerFacts:
    """The batch log and the journal, as far as maintenance needs them.

    `journal_seq` is the newest row of the journal. `snapshots` are open, or were not reported so far.
    """

    owner: Owner
    tables: Mapping[TableId, TableFacts]
    pending: tuple[PlannedBatch, ...]
    snapshots: tuple[Snapshot, ...]
    first_batch: int
    journal_seq: int


def read_facts(spark: SparkSession, layout: Layout, spec: MaintenanceSpec) -> LedgerFacts:
    """Read what the pipeline's own tables know.

    :raises TargetError: when no tick has written the target, or another pipeline owns it.
    """
    owner = _owner(spark, layout, spec.pipeline)
    # The batch log is read before the journal, as in a tick: a snapshot is journalled before it publishes.
    tables, pending, first = _read_batches(spark, layout, spec.cutoff_ms)
    journal = Journal(spark, layout, owner, spec.run_id)
    queue = journal.read(spec.reported_seq, spec.reported_seq)
    return LedgerFacts(owner, tables, pending, queue.snapshots, first, journal.seq)


def positions_before(spark: SparkSession, layout: Layout, table: TableId, batch: int) -> list[Lsn]:
    """Return the greatest positions of a table's batches before a batch, one of each width, and the last position."""
    commits = load(spark, layout.internal("commits")).where((F.col("batch") < batch) & _is(table))
    widths = commits.groupBy(F.length("upto_lsn")).agg(
        F.max("upto_lsn").alias("greatest"), F.max(F.struct("batch", "upto_lsn")).alias("last")
    )
    rows = sorted(widths.collect(), key=lambda row: int(row["last"]["batch"]))
    return [Lsn.parse(text) for row in rows for text in (row["greatest"], row["last"]["upto_lsn"])]


def _owner(spark: SparkSession, layout: Layout, pipeline: str) -> Owner:
    name = layout.internal("batches")
    owner = owner_of(table_properties(spark, name)) if table_exists(spark, name) else None
    if owner is None:
        raise TargetError(f"no tick has written the target {layout.target}", "Check `target`, or run a tick first.")
    if owner.pipeline != pipeline:
        raise TargetError(f"the target belongs to pipeline {owner.pipeline!r}", f"{pipeline!r} has another target.")
    return owner


def _read_batches(
    spark: SparkSession, layout: Layout, cutoff_ms: int | None
) -> tuple[dict[TableId, TableFacts], tuple[PlannedBatch, ...], int]:
    batches, commits = (load(spark, layout.internal(name)) for name in ("batches", "commits"))
    is_young = F.lit(True) if cutoff_ms is None else F.col("applied_at_ms") >= cutoff_ms
    applied = commits.groupBy(*NAME).agg(
        F.max("batch").alias("last"),
        F.min(F.when(is_young, F.col("batch"))).alias("first_young"),
        F.max(F.when(F.col("snapshot").isNotNull(), F.col("batch"))).alias("chunks"),
    )
    is_applied = commits.select(*NAME, "batch", F.lit(True).alias("is_applied")).distinct()
    planned = (
        batches.join(is_applied, [*NAME, "batch"], "left")
        .groupBy(*NAME)
        .agg(
            F.max(F.when(F.col("has_offset"), F.col("batch"))).alias("offset"),
            F.max(F.when(F.col("is_applied") & begins_table(), F.col("batch"))).alias("begun"),
            F.min("batch").alias("first"),
        )
    )
    rows = planned.join(applied, [*NAME], "left").collect()
    first = min((int(row["first"]) for row in rows), default=0)
    published = _planned(batches, applied, F.col("batch") == F.col("chunks"))
    ranges = {one.table: one.chunk_range for one in published}
    pending = _planned(batches, applied, F.col("batch") > F.coalesce("last", F.lit(0)))
    return {_table(row): _facts(row, first, ranges.get(_table(row))) for row in rows}, pending, first


def _facts(row: Row, first: int, published: ChunkRange | None) -> TableFacts:
    """Return the facts of one table. A table without an applied batch has no batch that is old enough."""
    age = LogAge(row["last"] or 0, row["first_young"])
    kept = {"chunks": row["chunks"], "offset": row["offset"], "begun": row["begun"], "first": first}
    return TableFacts(age, kept, published)


def _planned(batches: DataFrame, applied: DataFrame, condition: Column) -> tuple[PlannedBatch, ...]:
    """Return planned batches. The condition may name what `applied` says of their table."""
    known = applied.select(*NAME, "last", "chunks")
    return tuple(map(planned_batch, batches.join(known, [*NAME], "left").where(condition).collect()))


def _table(row: Row) -> TableId:
    return TableId(row["schema"], row["table"])


def _is(table: TableId) -> Column:
    return (F.col("schema") == table.schema) & (F.col("table") == table.name)
