"""The implementation of the target port on Delta and JDBC, with a table of the sandbox as its source."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon, trim_log
from airflow_provider_db2cdc.spark.delta.ownership import Owner, Place
from airflow_provider_db2cdc.spark.delta.row_deletion import delete_logged_rows
from airflow_provider_db2cdc.spark.delta.table_io import append, literal_frame, load
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.ledger.batch_rows import BATCHES, planned_row
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.spark.tables import SparkTables
from airflow_provider_db2cdc.sql.asn import count_changes
from airflow_provider_db2cdc.sql.changes import change_table
from airflow_provider_db2cdc.tick.ports import Tables
from support.memory_source import IMAGES, Row
from support.memory_twin import Logged
from support.pipeline import Pipeline


@dataclass
class Lake:
    """The source and the target that the tables of all tests share."""

    pipeline: Pipeline
    tables: int = 0

    @cached_property
    def batch_log(self) -> BatchLog:
        """The pipeline's batch log."""
        return BatchLog(self.pipeline.spark, self.layout, "test")

    @cached_property
    def owner(self) -> Owner:
        """The owner of the pipeline's tables, once the batch log exists."""
        return self.batch_log.prepare()

    @property
    def layout(self) -> Layout:
        """Where the tables are."""
        return Layout(self.pipeline.target)


@dataclass
class DeltaTwin:
    """A table of its own in the sandbox and on Delta. Without a key, the ID that distinguishes rows is not captured."""

    lake: Lake
    is_keyed: bool = True
    keys: set[int] = field(default_factory=set)
    columns: tuple[str, ...] = ("ID", "A")

    def __post_init__(self) -> None:
        self.lake.tables += 1
        pipeline, name = self.lake.pipeline, f"T{self.lake.tables}"
        key = " PRIMARY KEY" if self.is_keyed else ""
        self.columns = ("ID", "A") if self.is_keyed else ("A",)
        ddl = f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL{key}, A INTEGER)'
        self.table: TableId = pipeline.create(ddl, name, columns=self.columns)
        self._spec: JobSpec | None = None

    @property
    def spec(self) -> JobSpec:
        """The plan, made again after a change of the source's catalog."""
        if self._spec is None:
            pipeline = self.lake.pipeline
            pipeline.properties = {"table.include.list": f"{self.table.schema}\\.{self.table.name}"}
            self._spec = pipeline.plan()
        assert self._spec is not None
        return self._spec

    def open(self) -> Tables:
        """Return the tables, on sessions of their own."""
        lake = self.lake
        return SparkTables(lake.pipeline.spark, self.spec, Place(lake.layout, lake.owner), lake.batch_log)

    def commit(self, values: Mapping[int, int | None], is_captured: bool = True) -> None:
        """Run a statement for each key, and commit."""
        pipeline = self.lake.pipeline
        for key, value in values.items():
            given = None if value is None else value if self.is_keyed else value % IMAGES
            names = [name for name in self.columns if name != "ID"]
            if given is None:
                pipeline.execute(f"DELETE FROM {self.table} WHERE ID = ?", key)
            elif key in self.keys:
                sets = ", ".join(f"{name} = {given}" for name in names)
                pipeline.execute(f"UPDATE {self.table} SET {sets} WHERE ID = ?", key)
            else:
                pipeline.execute(f"INSERT INTO {self.table} VALUES (?{', ?' * len(names)})", key, *[given] * len(names))
        self.keys = (self.keys | values.keys()) - {key for key, value in values.items() if value is None}
        if is_captured:
            pipeline.writer.commit()
        else:
            pipeline.unseen(self.table)

    def captured(self) -> Lsn:
        """Wait for the agent."""
        return self.lake.pipeline.captured()

    def task(self, upto: Lsn) -> TableTask:
        """Return the plan's task for another range."""
        return replace(self.spec.tables[0], upto=upto)

    def count(self, span: LsnRange) -> int:
        """Count change rows, as the plan does."""
        [(_, count)] = self.lake.pipeline.query(count_changes([(self.spec.tables[0].capture, span)]).text)
        return int(count)

    def prune(self) -> None:
        """Prune all change tables."""
        faults.prune(self.lake.pipeline.writer)
        self._spec = None

    def recreate_changes(self) -> None:
        """Remove the registration, and register again."""
        faults.reregister(self.lake.pipeline.writer, self.table.schema, self.table.name)
        self._spec = None

    def gain(self) -> None:
        """Add a column to the table and to its change table."""
        self.lake.pipeline.gain(self.table, "B")
        self.columns, self._spec = (*self.columns, "B"), None

    def record(self, applied: AppliedBatch) -> None:
        """Append to the commit log."""
        self.lake.batch_log.commit([applied], 9)

    def plan(self, planned: Sequence[PlannedBatch]) -> None:
        """Append to the batch log, in which other tables have the same numbers."""
        rows = literal_frame(self.lake.pipeline.spark, [planned_row(each) for each in planned], BATCHES)
        append(rows, self.lake.layout.internal("batches"))

    def change_state(self, row: Row | None, lost: int | None = None, is_own: bool = False) -> None:
        """Write on a session without the pipeline's mark, or with it."""
        spark, state = self._session(is_own), f"delta.`{self.lake.layout.state(self.table).name}`"
        if row is not None:
            values = row if self.is_keyed else (*row, 1)
            spark.sql(f"INSERT INTO {state} VALUES ({', '.join(map(str, values))}, '', 0)")
        if lost is not None:
            spark.sql(f"DELETE FROM {state} WHERE {f'ID = {lost}' if self.is_keyed else f'A = {lost} AND __copy = 1'}")

    def lose(self, op: str, row: Row) -> None:
        """Delete the rows, tombstones too, as maintenance does."""
        tombstone = f" OR (op IS NULL AND key.ID = {row[0]})" if op == "d" and self.is_keyed else ""
        gone = f"({self._is_event(op, row)}){tombstone}"
        delete_logged_rows(self._session(), self.lake.layout.changes(self.table), gone)

    def double(self, op: str, row: Row) -> None:
        """Append the rows to themselves."""
        name = self.lake.layout.changes(self.table)
        append(load(self._session(), name).where(self._is_event(op, row)), name)

    def forget(self, key: int) -> None:
        """Delete from the change table."""
        pipeline, name = self.lake.pipeline, change_table(self.spec.tables[0].capture)
        newest = f"SELECT MAX(IBMSNAP_COMMITSEQ) FROM {name} WHERE ID = {key}"
        pipeline.execute(f"DELETE FROM {name} WHERE ID = {key} AND IBMSNAP_COMMITSEQ = ({newest})")
        pipeline.writer.commit()

    def time_ms(self, commit: Lsn) -> int:
        """Read the time of the source."""
        log = load(self.lake.pipeline.spark, self.lake.layout.changes(self.table))
        [(at_us,)] = log.where(f"__commit_lsn <= '{commit}'").selectExpr("max(source.ts_us)").collect()
        return -(-int(at_us) // 1000)

    def _is_event(self, op: str, row: Row) -> str:
        image = "before" if op == "d" else "after"
        values = (f"{image}.{name} = {value}" for name, value in zip(self.columns, row, strict=True))
        return f"op = '{op}' AND " + " AND ".join(values)

    def _session(self, is_own: bool = True) -> SparkSession:
        spark = self.lake.pipeline.spark
        return TableSessions(spark, self.lake.owner.mark).session(self.table, 0) if is_own else spark

    def trim(self, horizon: LogHorizon) -> int:
        """Trim on a session with the pipeline's mark."""
        return trim_log(self._session(), self.lake.layout, self.table, horizon)

    def horizon(self) -> LogHorizon:
        """Read the change log's property."""
        return log_horizon(self.lake.pipeline.spark, self.lake.layout, self.table)

    def drop(self) -> None:
        """Delete the folders of the tables."""
        for name in (self.lake.layout.state(self.table), self.lake.layout.changes(self.table)):
            shutil.rmtree(name.name)

    def rows(self) -> Counter[Row]:
        """Count rows of the state."""
        names = [name for name in ("ID", "A", "B") if name in self.columns]
        state = load(self.lake.pipeline.spark, self.lake.layout.state(self.table))
        return Counter(tuple(row) for row in state.select(*names).collect())

    def at_source(self) -> Counter[Row]:
        """Count rows of the source."""
        return Counter(self.lake.pipeline.query(f"SELECT {', '.join(self.columns)} FROM {self.table}"))

    def events(self) -> list[Logged]:
        """Return the log without tombstones."""
        log = load(self.lake.pipeline.spark, self.lake.layout.changes(self.table)).where("op IS NOT NULL")
        image = "CASE WHEN op = 'd' THEN before ELSE after END AS image"
        return sorted((row[0], row[1], tuple(row[2])) for row in log.selectExpr("__batch", "op", image).collect())
