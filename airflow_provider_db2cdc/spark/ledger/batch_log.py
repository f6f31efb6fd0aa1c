"""The pipeline's tables of planned batches (`batches`), applied batches (`commits`) and matching versions (`manifest`).

Spark's Structured Streaming has the same logs: an offset log before any data, a commit log after the last write.
A run first redoes a batch that is planned but not applied. A batch number means one range for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from airflow_provider_db2cdc.spark.delta.conflict import repeat_on_conflict, skip_on_conflict
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
    "batch bigint, frontier string, as_of_ms bigint, tables map<string, bigint>, rows map<string, bigint>, "
    "written_at_ms bigint"
)
OPTIMIZE_EVERY = 100
NUL = "\0"
"""A separator that no identifier contains."""


class BatchLog:
    """The batch log, the commit log and the manifest of one pipeline."""

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
        """Create the tables that are missing and return the owner of the target.

        :raises TargetError: when the target belongs to another pipeline or cannot be written.
        """
        fresh = Owner(self.pipeline, uuid4().hex)
        self._is_fresh = not table_exists(self.spark, self._batches)
        tables = {self._batches: (BATCHES, LOG), self._commits: (COMMITS, LOG), self._manifest: (MANIFEST, OWN)}
        for name, (ddl, properties) in tables.items():
            if not table_exists(self.spark, name):
                create_table(self.spark, name, ddl, {**fresh.properties, **properties, STATISTICS: "batch"})
        existing = table_properties(self.spark, self._batches)
        owner = owner_of(existing)
        if owner is None or owner.pipeline != self.pipeline:
            raise TargetError(
                f"the target belongs to pipeline {owner.pipeline!r}" if owner else "the target is somebody else's",
                f"Give pipeline {self.pipeline!r} a target of its own.",
            )
        if differing_properties(existing, LOG):
            # Only the batch log is checked, so it is repaired last: after a crash the next tick repairs all again.
            to_repair = {self._journal: LOG, self._manifest: OWN, self._commits: LOG, self._batches: LOG}
            set_checked_properties(self.spark, to_repair)
        return owner

    @failpoint("read_history")
    def history(self, since: Mapping[TableId, int]) -> BatchHistory:
        """Read the planned and applied batches of each table from a batch number on.

        A batch log that this run created has no history. For a table with batch 0 (its offset is new, or lost) it
        reads from the table's last applied batch on that is no repair. It adds the last batch with a chunk range,
        which the journal may not know, and whether any plan found an offset. For tables that `since` does not name it
        reads from the greatest batch in `since` on, so that the newest batch is known. With an empty `since` it reads
        all batches.
        """
        if self._is_fresh:
            return BatchHistory()
        last_batches = self._last_batches([table for table, batch in since.items() if not batch])
        since = {**since, **{table: row["last"] for table, row in last_batches.items()}}
        also = {table: row["chunk_range"] for table, row in last_batches.items() if row["chunk_range"] is not None}
        batches = map(planned_batch, self._since(self._batches, since, also).collect())
        commits = map(applied_batch, self._since(self._commits, since, also).select(*COMMIT_FIELDS).collect())
        history = build_history(batches, commits)
        with_offset = history.tables_with_offset | self._tables_with_offset(list(last_batches))
        return replace(history, tables_with_offset=with_offset)

    def first_planned_at_ms(self) -> int:
        """Return the time of the first planned batch in epoch milliseconds, 0 if there is no batch."""
        [(first,)] = load(self.spark, self._batches).agg(F.min("planned_at_ms")).collect()
        return int(first or 0)

    def _last_batches(self, tables: Sequence[TableId]) -> dict[TableId, Row]:
        """Return each table's last batch without repairs (`last`) and with a chunk range (`chunk_range`, or null)."""
        if not tables:
            return {}
        groups = (
            self._rows_of(self._commits, tables)
            .groupBy("schema", "table")
            .agg(
                F.max(F.when(F.col("repair").isNull(), F.col("batch"))).alias("last"),
                F.max(F.when(F.col("snapshot").isNotNull(), F.col("batch"))).alias("chunk_range"),
            )
        )
        return {TableId(row["schema"], row["table"]): row for row in groups.collect()}

    def _tables_with_offset(self, tables: Sequence[TableId]) -> set[TableId]:
        """Return the tables for which any plan has found an offset."""
        if not tables:
            return set()
        with_offset = self._rows_of(self._batches, tables).where("has_offset").select("schema", "table").distinct()
        return {TableId(row["schema"], row["table"]) for row in with_offset.collect()}

    def _rows_of(self, name: DeltaName, tables: Sequence[TableId]) -> DataFrame:
        return load(self.spark, name).where(_joined_name().isin([_text(table) for table in tables]))

    @failpoint("select_batch_rows")
    def _since(self, name: DeltaName, since: Mapping[TableId, int], also: Mapping[TableId, int]) -> DataFrame:
        """Return each table's rows from batch `since` on, and those of batch `also`.

        Tables that `since` does not name start at its greatest batch.
        """
        newest = max(since.values(), default=0)
        older = {table: batch for table, batch in since.items() if batch < newest}
        rows = load(self.spark, name).where(F.col("batch") >= min([*older.values(), *also.values()], default=newest))
        if not older and not also:
            return rows
        start = F.coalesce(_batch_of(older), F.lit(newest))
        return rows.where((F.col("batch") >= start) | (F.col("batch") == _batch_of(also)))

    @failpoint("plan_batch")
    def plan(self, batches: Sequence[PlannedBatch]) -> None:
        """Write the planned batches of one new batch number. The first writer wins.

        :raises ConcurrentRunError: when another run has planned this batch number.
        """
        batch, rows = batches[0].batch, [planned_row(planned) for planned in batches]
        if append_first(literal_frame(self.spark, rows, BATCHES), self._batches, self._txn_id("plan", batch)):
            return
        written = load(self.spark, self._batches).where(F.col("batch") == batch).select("run_id").distinct().collect()
        raise ConcurrentRunError(
            f"run {', '.join(row[0] for row in written)} planned batch {batch} of pipeline {self.pipeline!r} first",
            "Nothing was written by this run. Two ticks of one pipeline ran at once: let the other one finish; "
            "max_active_runs=1 keeps them apart.",
        )

    @failpoint("commit_batch")
    def commit(self, commits: Sequence[AppliedBatch], at_ms: int) -> None:
        """Record the tables of a batch as applied. A second record of the same batch changes no later read."""
        append(literal_frame(self.spark, [applied_row(commit, at_ms) for commit in commits], COMMITS), self._commits)

    @failpoint("publish_manifest")
    def write_manifest(self, batch: int, frontier: Lsn, commits: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write the manifest of one frontier: the Delta versions that show the source as of one commit."""
        as_of_ms = max(commit.as_of_ms for commit in commits)
        versions = {_manifest_name(commit.table): commit.state_version for commit in commits}
        counts = {_manifest_name(commit.table): commit.rows for commit in commits}
        row = (batch, str(frontier), as_of_ms, versions, counts, at_ms)
        append(literal_frame(self.spark, [row], MANIFEST), self._manifest, self._txn_id("manifest", batch))

    def clear_manifest(self) -> None:
        """Delete all rows of the manifest. A table that is created again counts its versions from 0 again."""
        with self._clearing:
            manifest = delta_table(self.spark, self._manifest)
            repeat_on_conflict(manifest.delete, self._manifest.name)

    def optimize(self, before: int, batch: int) -> None:
        """Compact the small files of the pipeline's own logs once in `OPTIMIZE_EVERY` batches.

        `before` is the last batch of the previous tick. A tick may make several batches, or none.
        """
        if before // OPTIMIZE_EVERY == batch // OPTIMIZE_EVERY:
            return
        for name in (self._batches, self._commits, self._manifest, self._journal):
            if table_exists(self.spark, name):
                skip_on_conflict(partial(self.spark.sql, f"OPTIMIZE {sql_name(name)}"), name.name)

    def _txn_id(self, step: str, batch: int) -> TxnId:
        return f"db2cdc/{self.pipeline}/{step}", batch


def check_not_applied(spark: SparkSession, layout: Layout, table: TableId, batch: int) -> None:
    """Check that no other run has finished a batch of a table that this run still works on.

    :raises ConcurrentRunError: when the commit log has the batch.
    """
    is_same = (F.col("batch") == batch) & (_joined_name() == _text(table))
    if not load(spark, layout.internal("commits")).where(is_same).isEmpty():
        raise ConcurrentRunError(
            f"another run has finished batch {batch} of {table} meanwhile",
            "Nothing is lost by it: leave this run, or clear all of its tasks, the plan too.",
        )


def _manifest_name(table: TableId) -> str:
    """Return a name that no other table has: `SCHEMA.TABLE`, quoted if one of the two contains a dot."""
    return name_of(table) if str(table).count(".") > 1 else str(table)


def _joined_name() -> Column:
    """Return a row's table in the form of `_text`."""
    return F.concat_ws(NUL, "schema", "table")


def _batch_of(batches: Mapping[TableId, int]) -> Column:
    """Return the batch that `batches` gives for a row's table, else null."""
    if not batches:
        return F.lit(None).cast("bigint")
    keys_and_values = (F.lit(value) for table, batch in batches.items() for value in (_text(table), batch))
    return F.try_element_at(F.create_map(*keys_and_values), _joined_name())


def _text(table: TableId) -> str:
    return NUL.join((table.schema, table.name))
