"""The target of a pipeline, written without Db2 and without a tick."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.delta.ownership import Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import append
from airflow_provider_db2cdc.spark.events.envelope import log_ddl
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from support.job_samples import lsn

COLUMNS = (Column("ID", "INTEGER", 4), Column("A", "INTEGER", 4))
CAPTURE = CaptureIdentity("ASNCDC.CD", "2026-01-01", "2025-01-01", "0")
START = datetime(2026, 1, 1, tzinfo=UTC)
Line = tuple[int, int, str, int | None, int | None]
"""An event: batch, number of the LSN, op, key, and the commit's seconds after START."""


class Lake:
    """The target of a pipeline, written without Db2."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.target = spark, str(folder / "lake")
        self.batch_log = BatchLog(spark, Layout(self.target), "test")
        self.place = Place(Layout(self.target), self.batch_log.prepare())

    def replica(self, table: TableId) -> Replica:
        made = Replica(self.spark, self.place, TableSchema(table, COLUMNS, ("ID",)))
        made.prepare()
        return made

    def log(self, table: TableId, events: Iterable[Line]) -> None:
        """Append events; each `d` with its tombstone."""
        lines: list[tuple[Any, ...]] = []
        for at, (batch, commit, op, id_, seconds) in enumerate(events):
            us = None if seconds is None else int(START.timestamp() + seconds) * 1_000_000
            images = ((id_, 7), None) if op == "d" else (None, (id_, 7))
            lines.append((batch, str(lsn(commit)), f"{at:02}", 0, op, (id_,), *images, (us,)))
            if op == "d":
                lines.append((batch, str(lsn(commit)), f"{at:02}", 1, None, (id_,), None, None, None))
        replica = self.replica(table)
        row, place = "struct<ID: int, A: int>", "__batch bigint, __commit_lsn string, __intent_lsn string"
        ddl = f"{place}, __ordinal int, op string, key struct<ID: int>, before {row}, after {row}"
        rows = self.spark.createDataFrame(lines, f"{ddl}, source struct<ts_us: bigint>")
        rest = self.spark.createDataFrame([], log_ddl(replica.schema))
        source = rest.schema["source"].dataType.simpleString()
        missing = {name: f"CAST(NULL AS {rest.schema[name].dataType.simpleString()})" for name in rest.columns}
        known = {**missing, **{name: f"`{name}`" for name in rows.columns}}
        known["source"] = f"from_json(to_json(source), '{source}')"
        whole = rows.selectExpr(*(f"{known[name]} AS `{name}`" for name in rest.columns))
        append(whole, replica.layout.changes(table))

    def applied(self, table: TableId, batch: int, version: int = 0) -> AppliedBatch:
        """Return a batch of one event as applied, which is not in the commit log."""
        at_ms = int(START.timestamp() + batch) * 1000
        counts = (1, 0, 0, 0, at_ms, at_ms, version, 1)
        return AppliedBatch(batch, table, lsn(batch), CAPTURE, *counts)

    def apply(self, table: TableId, batch: int, version: int = 0) -> AppliedBatch:
        """Record a batch of one event as applied."""
        applied = self.applied(table, batch, version)
        self.batch_log.commit([applied], 0)
        return applied
