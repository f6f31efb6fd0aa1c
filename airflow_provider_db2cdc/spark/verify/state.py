"""The current states that a verification reads, and how far they are. Nothing here writes."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import ApplySettings, TableTask
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.types import map_type
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta.ownership import Owner, owner_of
from airflow_provider_db2cdc.spark.delta.table_io import load, newest_version, table_exists, table_properties
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.ledger.batch_rows import COMMIT_FIELDS, applied_batch
from airflow_provider_db2cdc.spark.ledger.journal import Journal
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.verify.ports import StatePosition


@dataclass(frozen=True)
class States:
    """The current states of a pipeline's tables, each on a session of its own."""

    layout: Layout
    owner: Owner
    settings: ApplySettings
    source: JdbcSource
    sessions: TableSessions

    def session(self, task: TableTask, rows: int) -> SparkSession:
        """Return the table's session, configured for about `rows` rows."""
        return self.sessions.session(task.table, rows)

    def check_filled(self, task: TableTask) -> None:
        """Check that a table has been filled, and that its state has the columns of the plan."""
        spark, table = self.session(task, 0), task.table
        name = self.layout.state(table)
        if not table_exists(spark, name) or self._last_commit(spark, table) is None:
            raise TargetError(f"{table} is not in the target yet", "Run a tick of the pipeline first.")
        if table in self._journal(spark).read(sys.maxsize, sys.maxsize).initially_loading:
            raise TargetError(
                f"{table} is still being filled by its first snapshot", "Verify it when that is complete."
            )
        held = {column.lower() for column in load(spark, name).columns}
        lacking = [column for column in task.schema.names if column.lower() not in held]
        if lacking:
            raise TargetError(
                f"{table}: its current state has no column {', '.join(lacking)} yet",
                "Run a tick of the pipeline first.",
            )

    def position(self, task: TableTask) -> StatePosition:
        """Return how far the commit log says that the state is, then the state's newest version."""
        spark, table = self.session(task, 0), task.table
        last = self._last_commit(spark, table)
        if last is None:
            raise TargetError(f"{table} is not in the target any more", "Run a tick of the pipeline first.")
        return StatePosition(last.upto, last.capture, newest_version(spark, self.layout.state(table)))

    def rows(self, session: SparkSession, task: TableTask, version: int, where: str) -> DataFrame:
        """Return the rows of a version of the state. Its columns and a condition name it `t`."""
        state = load(session, self.layout.state(task.table), version).alias("t")
        return state.where(where) if where else state

    def values(self, task: TableTask) -> list[Column]:
        """Return the columns of the state in the types of the plan. A state keeps an older type until the next tick."""
        return [
            F.col(f"t.{quoted(column.name)}").cast(map_type(task.table, column).delta) for column in task.schema.columns
        ]

    def _last_commit(self, spark: SparkSession, table: TableId) -> AppliedBatch | None:
        commits = load(spark, self.layout.internal("commits"))
        own = commits.where((F.col("schema") == table.schema) & (F.col("table") == table.name)).select(*COMMIT_FIELDS)
        [(last,)] = own.agg(F.max_by(F.struct(*COMMIT_FIELDS), "batch")).collect()
        return None if last is None else applied_batch(last)

    def _journal(self, spark: SparkSession) -> Journal:
        return Journal(spark, self.layout, self.owner, "")


def owner_of_target(spark: SparkSession, layout: Layout, pipeline: str) -> Owner:
    """Return the owner of a target that a pipeline has written.

    :raises TargetError: when no tick has written it, or another pipeline has.
    """
    name = layout.internal("batches")
    owner = owner_of(table_properties(spark, name)) if table_exists(spark, name) else None
    if owner is None:
        raise TargetError(
            f"pipeline {pipeline!r} has written nothing to {layout.target} yet", "Run a tick of the pipeline first."
        )
    if owner.pipeline != pipeline:
        raise TargetError(
            f"the target belongs to pipeline {owner.pipeline!r}", f"Give pipeline {pipeline!r} a target of its own."
        )
    return owner
