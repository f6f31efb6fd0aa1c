"""The target port of a tick, on Delta tables and one Spark session per table."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings
from airflow_provider_db2cdc.cdc.snapshot.heal import begins_heal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    ChunkSpan,
    DeleteMissing,
    KeyedChunks,
    TableSnapshot,
)
from airflow_provider_db2cdc.spark.apply.abandoned_batch import merge_abandoned
from airflow_provider_db2cdc.spark.apply.batch import apply_batch
from airflow_provider_db2cdc.spark.apply.batch_context import BatchContext
from airflow_provider_db2cdc.spark.apply.change_pull import check_readable
from airflow_provider_db2cdc.spark.apply.chunk_stage import ChunkStager
from airflow_provider_db2cdc.spark.apply.foreign_changes import (
    apply_guarded,
    check_exists,
    check_idle,
    clear_manifest_of_reset,
    is_changed_by_others,
    is_check_due,
    refill,
)
from airflow_provider_db2cdc.spark.apply.staged_rows import StagedRows
from airflow_provider_db2cdc.spark.apply.state_diff import StateDiff, diff_state
from airflow_provider_db2cdc.spark.delta.ownership import Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.repair.table_repairs import TableRepairs
from airflow_provider_db2cdc.spark.session import SMALL_ROWS, TableSessions, slots
from airflow_provider_db2cdc.tick.ports import TableBatch


class SparkTables:
    """The change logs and states of a pipeline, each table on a session of its own."""

    def __init__(
        self, spark: SparkSession, spec: JobSpec, place: Place, batch_log: BatchLog, staged: StagedRows | None = None
    ) -> None:
        self.spark = spark
        self.spec = spec
        self.place = place
        self.batch_log = batch_log
        self.source = JdbcSource(spec.source)
        self.sessions = TableSessions(spark, place.owner.mark)
        self.staged = staged or StagedRows()
        self.repairs = TableRepairs()

    def for_reader(self) -> SparkTables:
        """Return the same tables on other sessions: Delta keeps a write's transaction id in the session."""
        return SparkTables(self.spark, self.spec, self.place, self.batch_log, self.staged)

    def slots(self) -> int | None:
        """Return how many tasks Spark runs side by side."""
        return slots(self.spark)

    def prepare(
        self, task: TableTask, last: AppliedBatch | None, is_begun: bool, abandoned: Sequence[PlannedBatch], batch: int
    ) -> None:
        """Create or extend the Delta tables, close abandoned batches, and restore rows that others have removed."""
        replica = self._replica(task, 0)
        if last is not None and not is_begun:
            check_exists(replica)
        replica.prepare(is_begun)
        is_changed = False
        if is_begun and last is not None:
            # It comes before the job's own commits, which would hide a version that was put back.
            clear_manifest_of_reset(replica, last, self.batch_log)
            is_changed = is_changed_by_others(replica, last)
        if abandoned:
            self._close(replica, [TableBatch(task, planned, last, is_begun=True) for planned in abandoned])
        # The events of a repair stand under other batches, so only a refill finds their rows.
        if is_changed or any(planned.repair is not None for planned in abandoned):
            refill(replica, batch)

    def _close(self, replica: Replica, batches: Sequence[TableBatch]) -> None:
        """Stop the writers of abandoned batches, and merge what the change log has of these into the state."""
        last = batches[-1].planned.batch
        replica.fence_writers(last)
        for batch in batches:
            if batch.planned.repair is None:
                merge_abandoned(self._context(batch))
        replica.use_up(replica.layout.state(replica.table), ("state",), last)

    def check_readable(self, task: TableTask, planned: PlannedBatch, capture_lsn: Lsn) -> None:
        """Look for a pending batch's changes in the change log, where the source may have pruned them."""
        check_readable(self._replica(task, task.rows), task, planned, capture_lsn)

    def check_idle(self, task: TableTask, last: AppliedBatch, batch: int) -> AppliedBatch:
        """Check the Delta history of an idle table in one of many batches."""
        return check_idle(self._replica(task, 0), last) if is_check_due(task.table, batch) else last

    def apply(self, batch: TableBatch) -> AppliedBatch:
        """Append to the change log, then merge into the state; check that only this pipeline wrote between.

        The first batch of a heal first restores what the state has lost to another writer.
        """
        if batch.planned.repair is not None:
            return self.repairs.apply(self._repair_context(batch))
        planned, last, context = batch.planned, batch.last, self._context(batch)

        def apply(foreign_since: int | None) -> AppliedBatch:
            is_foreign = foreign_since is not None
            if is_foreign and last is not None and begins_heal(planned.chunk_range):
                clear_manifest_of_reset(context.replica, last, self.batch_log)
                refill(context.replica, planned.batch)
            return apply_batch(replace(context, is_foreign=is_foreign))

        return apply_guarded(context.replica, None if batch.is_begun else last, apply, batch.accepted_since)

    def compare(self, batch: TableBatch) -> Findings:
        """Compare the change rows of an interval with the change log, and the log with the state."""
        return self.repairs.compare(self._repair_context(batch))

    def diff(self, task: TableTask, chunk_range: KeyedChunks, last: AppliedBatch | None) -> StateDiff:
        """Compare staged rows with the state, in one Spark job."""
        replica = self._replica(task, _max_rows(chunk_range, last))
        return diff_state(replica, self.staged.rows(replica.spark, chunk_range.read_id), chunk_range, last)

    def stage(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, span: ChunkSpan, readers: int
    ) -> ChunkRange:
        """Read chunks over JDBC, one partition per reader, and keep them."""
        settings = self.spec.settings
        rows = (span.last - chunk_range.first + 1) * settings.snapshot_chunk_rows
        most = sys.maxsize if settings.snapshot_chunk_bytes else rows
        rows = most if task.source_rows is None else task.source_rows
        session = self.sessions.session(task.table, rows)
        stager = ChunkStager(session, self.staged, task.schema, self.source, settings, rows <= SMALL_ROWS)
        return stager.stage(table_snapshot, chunk_range, span, readers)

    def drop_staged(self, chunk_range: ChunkRange) -> None:
        """Free the storage of staged rows."""
        self.staged.drop(chunk_range.read_id)

    def free_memory(self) -> None:
        """Collect data frames. They lie in reference cycles, and each holds its plan on the heap of the JVM."""
        gc.collect()

    def _context(self, batch: TableBatch) -> BatchContext:
        planned = batch.planned
        read = 0 if planned.chunk_range is None else _max_rows(planned.chunk_range, batch.last)
        changes = batch.task.rows if planned.rows is None else planned.rows
        replica = self._replica(batch.task, changes + read, batch.is_redone)
        return BatchContext(replica, self.spec, self.source, self.staged, batch)

    def _repair_context(self, batch: TableBatch) -> BatchContext:
        replica = self._replica(batch.task, 0, batch.is_redone)
        return BatchContext(replica, self.spec, self.source, self.staged, batch)

    def _replica(self, task: TableTask, rows: int, is_redone: bool = False) -> Replica:
        session, vectors = self.sessions.session(task.table, rows), self.spec.settings.deletion_vectors
        return Replica(session, self.place, task.schema, is_redone, vectors)


def _max_rows(chunk_range: ChunkRange, last: AppliedBatch | None) -> int:
    """Return the greatest number of rows that a chunk range may add or delete.

    The number of deletes is not known beforehand. A deletion of missing rows has no limit.
    """
    match chunk_range:
        case DeleteMissing():
            return sys.maxsize
        case KeyedChunks(deletes_by_range=True) if last is not None:
            return chunk_range.rows_read + last.rows
    return chunk_range.rows_read
