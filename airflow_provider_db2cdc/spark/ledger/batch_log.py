"""The pipeline's own three tables: what was planned (batches), applied (commits), and fits together (manifest).

As Spark's Structured Streaming does it: an offset log before any data, a commit log after the last write. Whoever
finds a batch planned but not applied does that very batch first; a batch means one thing for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch, build_history
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import (
    LOG,
    OWN,
    Owner,
    differing_properties,
    owner_of,
    set_checked_properties,
)
from airflow_provider_db2cdc.spark.delta.table_io import (
    STATISTICS,
    TxnId,
    append,
    append_first,
    create_table,
    delta_table,
    literal_frame,
    load,
    sql_name,
    table_exists,
    table_properties,
)
from airflow_provider_db2cdc.spark.ledger.batch_rows import (
    BATCHES,
    COMMIT_FIELDS,
    COMMITS,
    applied_batch,
    applied_row,
    planned_batch,
    planned_row,
)

MANIFEST = (
    "batch bigint, frontier string, commit_ts_ms bigint, tables map<string, bigint>, rows map<string, bigint>, "
    "written_at_ms bigint"
)
OPTIMIZE_EVERY = 100
NUL = "\0"
"""It stands in no identifier."""


class BatchLog:
    """The tables of one pipeline."""

    def __init__(self, spark: SparkSession, layout: Layout, pipeline: str) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self._batches, self._commits, self._manifest = (
            layout.internal(name) for name in ("batches", "commits", "manifest")
        )
        self._journal = layout.internal("journal")
        self._is_fresh = False
        self._clearing = Lock()

    @failpoint("prepare_batch_log")
    def prepare(self) -> Owner:
        """Create the tables where they are missing and return whose target it is.

        :raises TargetError: the target belongs to another pipeline or cannot be written.
        """
        fresh = Owner(self.pipeline, uuid4().hex)
        self._is_fresh = not table_exists(self.spark, self._batches)
        tables = {self._batches: (BATCHES, LOG), self._commits: (COMMITS, LOG), self._manifest: (MANIFEST, OWN)}
        for name, (ddl, own) in tables.items():
            if not table_exists(self.spark, name):
                create_table(self.spark, name, ddl, {**fresh.properties, **own, STATISTICS: "batch"})
        found = table_properties(self.spark, self._batches)
        owner = owner_of(found)
        if owner is None or owner.pipeline != self.pipeline:
            raise TargetError(
                f"the target belongs to pipeline {owner.pipeline!r}" if owner else "the target is somebody else's",
                f"Give pipeline {self.pipeline!r} a target of its own.",
            )
        if differing_properties(found, LOG):
            # The batches last, for only those are looked at.
            again = {self._journal: LOG, self._manifest: OWN, self._commits: LOG, self._batches: LOG}
            set_checked_properties(self.spark, again)
        return owner

    @failpoint("read_history")
    def history(self, since: Mapping[TableId, int]) -> BatchHistory:
        """Read what was planned and applied, of each table from a batch on; nothing of a ledger that this run began.

        Of a table whose batch is 0 (its offset is new, or lost) it reads from its last commit's batch on, and the last
        that published a part of a snapshot, which the journal may not know; and whether any plan has found an offset.
        Of tables that are not named it reads the batches from the greatest on, so that this is known; all, if none is
        named.
        """
        if self._is_fresh:
            return BatchHistory()
        ends = self._ends([table for table, batch in since.items() if not batch])
        since = {**since, **{table: found["last"] for table, found in ends.items()}}
        slices = {table: found["chunk_range"] for table, found in ends.items() if found["chunk_range"] is not None}
        batches = map(planned_batch, self._since(self._batches, since, slices).collect())
        commits = map(applied_batch, self._since(self._commits, since, slices).select(*COMMIT_FIELDS).collect())
        history = build_history(batches, commits)
        return replace(history, tables_with_offset=history.tables_with_offset | self._stored(list(ends)))

    def first_planned_at_ms(self) -> int:
        """Return when the first of all batches was planned, 0 before there is one."""
        [(first,)] = load(self.spark, self._batches).agg(F.min("planned_at_ms")).collect()
        return int(first or 0)

    def _ends(self, tables: Sequence[TableId]) -> dict[TableId, Row]:
        """Return the batches of each table's last commit and last slice; nothing where none."""
        if not tables:
            return {}
        groups = (
            self._of(self._commits, tables)
            .groupBy("schema", "table")
            .agg(
                F.max("batch").alias("last"),
                F.max(F.when(F.col("snapshot").isNotNull(), F.col("batch"))).alias("chunk_range"),
            )
        )
        return {TableId(row["schema"], row["table"]): row for row in groups.collect()}

    def _stored(self, tables: Sequence[TableId]) -> set[TableId]:
        """Return the tables of which any plan has found an offset."""
        if not tables:
            return set()
        found = self._of(self._batches, tables).where("has_offset").select("schema", "table").distinct()
        return {TableId(row["schema"], row["table"]) for row in found.collect()}

    def _of(self, name: DeltaName, tables: Sequence[TableId]) -> DataFrame:
        return load(self.spark, name).where(_name().isin([_text(table) for table in tables]))

    @failpoint("select_batch_rows")
    def _since(self, name: DeltaName, since: Mapping[TableId, int], also: Mapping[TableId, int]) -> DataFrame:
        """Return each table's rows from a batch on (of others from the greatest of these), and one batch before."""
        newest = max(since.values(), default=0)
        behind = {table: batch for table, batch in since.items() if batch < newest}
        rows = load(self.spark, name).where(F.col("batch") >= min([*behind.values(), *also.values()], default=newest))
        if not behind and not also:
            return rows
        start = F.coalesce(_batch_of(behind), F.lit(newest))
        return rows.where((F.col("batch") >= start) | (F.col("batch") == _batch_of(also)))

    @failpoint("plan_batch")
    def plan(self, batches: Sequence[PlannedBatch]) -> None:
        """Write the entries of one new batch, first writer wins.

        :raises TickLostError: another run has planned this batch number.
        """
        batch, rows = batches[0].batch, [planned_row(planned) for planned in batches]
        if append_first(literal_frame(self.spark, rows, BATCHES), self._batches, self._pair("plan", batch)):
            return
        written = load(self.spark, self._batches).where(F.col("batch") == batch).select("run_id").distinct().collect()
        raise ConcurrentRunError(
            f"run {', '.join(row[0] for row in written)} planned batch {batch} of pipeline {self.pipeline!r} first",
            "Nothing was written by this run. Two ticks of one pipeline ran at once: let the other one finish; "
            "max_active_runs=1 keeps them apart.",
        )

    @failpoint("commit_batch")
    def commit(self, commits: Sequence[AppliedBatch], at_ms: int) -> None:
        """Mark tables of a batch as applied; a second mark of the same changes nothing that is read from here."""
        append(literal_frame(self.spark, [applied_row(commit, at_ms) for commit in commits], COMMITS), self._commits)

    @failpoint("publish_manifest")
    def write_manifest(self, batch: int, frontier: Lsn, commits: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write the manifest of one frontier: Delta versions that show the source as of one commit."""
        times = [commit.commit_ts_ms for commit in commits if commit.commit_ts_ms is not None]
        versions = {_shown(commit.table): commit.state_version for commit in commits}
        counts = {_shown(commit.table): commit.rows for commit in commits}
        row = (batch, str(frontier), max(times, default=None), versions, counts, at_ms)
        append(literal_frame(self.spark, [row], MANIFEST), self._manifest, self._pair("manifest", batch))

    def clear_manifest(self) -> None:
        """Delete all rows of the manifest: a table that is made again counts its versions from 0."""
        with self._clearing:
            delta_table(self.spark, self._manifest).delete()

    def optimize(self, before: int, batch: int) -> None:
        """Compact the small files that ticks leave in the pipeline's own logs, once in `OPTIMIZE_EVERY` batches.

        `before` is the last batch of the tick before this one: a tick may make several, or none.
        """
        if before // OPTIMIZE_EVERY == batch // OPTIMIZE_EVERY:
            return
        for name in (self._batches, self._commits, self._manifest, self._journal):
            if table_exists(self.spark, name):
                self.spark.sql(f"OPTIMIZE {sql_name(name)}")

    def _pair(self, step: str, batch: int) -> TxnId:
        return f"db2cdc/{self.pipeline}/{step}", batch


def check_not_applied(spark: SparkSession, layout: Layout, table: TableId, batch: int) -> None:
    """Make sure that no run has marked a table's part of a batch as applied, which another one is still at.

    :raises TickLostError: one has.
    """
    own = (F.col("batch") == batch) & (_name() == _text(table))
    if not load(spark, layout.internal("commits")).where(own).isEmpty():
        raise ConcurrentRunError(
            f"another run has finished batch {batch} of {table} meanwhile",
            "Nothing is lost by it: leave this run, or clear all of its tasks, the plan too.",
        )


def _shown(table: TableId) -> str:
    """Return a name that no other table has: `SCHEMA.TABLE`, quoted where one of the two has a dot in it."""
    return name_of(table) if str(table).count(".") > 1 else str(table)


def _name() -> Column:
    return F.concat_ws(NUL, "schema", "table")


def _batch_of(batches: Mapping[TableId, int]) -> Column:
    """Return the batch of a row's table, null for a table without."""
    if not batches:
        return F.lit(None).cast("bigint")
    pairs = (F.lit(value) for table, batch in batches.items() for value in (_text(table), batch))
    return F.try_element_at(F.create_map(*pairs), _name())


def _text(table: TableId) -> str:
    return NUL.join((table.schema, table.name))
