"""A target on Delta with a history of batches, to be maintained. No source is needed for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceResult, MaintenanceSpec, StepReport
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.apply.foreign_changes import apply_guarded
from airflow_provider_db2cdc.spark.delta.ownership import Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import literal_frame, load, newest_version, table_exists
from airflow_provider_db2cdc.spark.events.envelope import log_ddl
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.ledger.journal import Journal
from airflow_provider_db2cdc.spark.maintenance.run import maintain
from airflow_provider_db2cdc.spark.session import TableSessions

TABLE = TableId("S", "T")
SCHEMA = TableSchema(TABLE, (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))
IDENTITY = CaptureIdentity("C", "a", "b", "0")
DAY_MS = 86_400_000
NOW_MS = 1_000 * DAY_MS
OWN = ("batches", "commits", "journal", "manifest")


def lsn(number: int) -> Lsn:
    """Return the LSN of a commit."""
    return Lsn(number.to_bytes(16, "big"))


@dataclass
class Maintained:
    """A pipeline's target with one table. Each batch brings the row of its number, `days` before `NOW_MS`."""

    spark: SparkSession
    folder: Path
    schema: TableSchema = SCHEMA
    last: AppliedBatch | None = None
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout(str(self.folder / "lake"))
        self.batch_log = BatchLog(self.spark, self.layout, "test")
        self.owner = self.batch_log.prepare()
        session = TableSessions(self.spark, self.owner.mark).session(self.schema.table, 0)
        self.replica = Replica(session, Place(self.layout, self.owner), self.schema)
        self.replica.prepare()
        self.journal = Journal(self.spark, self.layout, self.owner, "run")

    def planned(self, number: int, days: float, chunk_range: ChunkRange | None = None) -> PlannedBatch:
        """Plan a batch."""
        at_ms = NOW_MS - int(days * DAY_MS)
        ids = (number, "run", f"plan-{number}", self.schema.table, lsn(number * 10 - 10), lsn(number * 10))
        planned = PlannedBatch(*ids, at_ms, IDENTITY, chunk_range, has_offset=number > 1, rows=1)
        self.batch_log.plan([planned])
        return planned

    def batch(self, number: int, days: float) -> None:
        """Plan and apply a batch, and write the manifest."""
        planned = self.planned(number, days)
        self.last = apply_guarded(self.replica, self.last, lambda _: self._write(planned))
        self.batch_log.commit([self.last], planned.planned_at_ms)
        self.batch_log.write_manifest(number, planned.upto, [self.last], planned.planned_at_ms)

    def _write(self, planned: PlannedBatch) -> AppliedBatch:
        number, spark = planned.batch, self.replica.spark
        key = f"named_struct('ID', {number}) AS key"
        own = spark.sql(f"SELECT {number}L AS __batch, '{planned.upto}' AS __commit_lsn, 'c' AS op, {key}")
        empty = spark.createDataFrame([], log_ddl(self.schema)).drop(*own.columns)
        self.replica.append_changes(own.join(empty, how="left"), number, "changes")
        row = literal_frame(spark, [(number, 0, str(planned.upto))], "ID int, A int, __commit_lsn string")
        version = self.replica.append_rows(row, number) or 0
        counts = (1, 0, 0, 0, planned.planned_at_ms, planned.planned_at_ms, version, number)
        return AppliedBatch(number, planned.table, planned.upto, IDENTITY, *counts)

    def history(self) -> BatchHistory:
        """Return the history as the next tick reads it."""
        batch_log = BatchLog(self.spark, self.layout, "test")
        batch_log.prepare()
        return batch_log.history({self.schema.table: 0})

    def open_snapshot(self, snapshot: Snapshot) -> None:
        """Journal a snapshot."""
        self.journal.write([snapshot], [], [], [], NOW_MS)

    def maintain(self, **values: Any) -> MaintenanceResult:
        """Maintain the target."""
        spec = MaintenanceSpec("test", "maintenance", self.layout.target, NOW_MS, **values)
        return maintain(self.spark, spec)

    def steps(self, result: MaintenanceResult, table: TableId | None = TABLE) -> dict[tuple[str, str], StepReport]:
        """Return the steps of a table that did something, by the Delta table and the step. Nothing may have failed."""
        assert not result.failed, result.failed
        [report] = [report for report in result.tables if report.table == table]
        return {(step.delta_table, step.step): step for step in report.steps if step.status != "nothing"}

    def versions(self) -> dict[str, int]:
        """Return the newest version of each Delta table."""
        table = self.schema.table
        names = [self.layout.changes(table), self.layout.state(table)]
        names += [self.layout.internal(name) for name in OWN]
        return {name.name: newest_version(self.spark, name) for name in names if table_exists(self.spark, name)}

    def batches(self, name: DeltaName, column: str = "batch") -> list[int]:
        """Return the distinct batches in a Delta table."""
        return sorted(row[0] for row in load(self.spark, name).select(column).distinct().collect())

    def logged(self) -> list[int]:
        """Return the batches in the change log."""
        return self.batches(self.layout.changes(self.schema.table), "__batch")


def names(steps: Collection[tuple[str, str]]) -> set[str]:
    """Return steps as texts."""
    return {" ".join(step) for step in steps}
