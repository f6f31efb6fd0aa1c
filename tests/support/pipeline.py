"""A pipeline of real parts in one process: sandbox, ibm_db, plan, the Spark job, Delta, offsets in a file."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.document import PASSWORD_ENV, USER_ENV
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import new_revision
from airflow_provider_db2cdc.cdc.offset.request import Restart
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.commit import commit_tick, record_reported, record_signals_in_flight
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import find_journal
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.sandbox.server.state import DRIVER_OPTIONS
from airflow_provider_db2cdc.source import driver
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.source.planning.plan import TickRun, plan_tick
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load
from support.history import History
from support.memory_offsets import FileOffsets
from support.operation import Row, create_table, statement
from support.step import Commit, Rollback

numbers = itertools.count(1)
FIRST_TICKS = 12
SOURCE_AHEAD = timedelta(hours=5, minutes=30)
"""What the clock of the shared sandbox is ahead of UTC (tests/conftest.py)."""
DERBY_FAULT, DERBY_TRIES = "NullPointerException", 3
"""Derby's own fault, which fails a table for one tick (docs/contributing/sandbox.md); the next tick takes it up."""


@dataclass
class Pipeline:
    """One schema of the sandbox, with its own target."""

    sandbox: Sandbox
    spark: SparkSession
    folder: Path
    schema: str = field(default_factory=lambda: f"S{next(numbers)}")
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.target = str(self.folder / "lake")
        self.offsets = FileOffsets(self.folder / "offsets.json")
        self.writer = self.sandbox.connect()
        self.execute(f'CREATE SCHEMA "{self.schema}"')
        self.writer.commit()
        os.environ[USER_ENV], os.environ[PASSWORD_ENV] = self.sandbox.user, self.sandbox.password

    @property
    def config(self) -> PipelineConfig:
        """The pipeline's configuration. It has all tables of its schema, and reads so small that tables are split."""
        own = {"pipeline": "test", "target": self.target, "table.include.list": f"{self.schema}\\..*"}
        return PipelineConfig.from_properties({**own, **self.properties})

    def source(self) -> Source:
        """A separate connection for the plan."""
        box = self.sandbox
        address = Db2Address("127.0.0.1", box.database, box.user, box.password, box.port, options=DRIVER_OPTIONS)
        return Source(address)

    def execute(self, text: str, *values: Any) -> None:
        """Run a statement on the writer's connection, without a commit."""
        cursor = self.writer.cursor()
        driver.execute(cursor, text, values)
        cursor.close()

    def many(self, text: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement for many rows, and commit."""
        cursor = self.writer.cursor()
        cursor.executemany(text, tuple(rows))
        cursor.close()
        self.writer.commit()

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Return a query's rows, read committed."""
        cursor = self.writer.cursor()
        driver.execute(cursor, text)
        rows = [tuple(row) for row in cursor.fetchall()]
        cursor.close()
        self.writer.commit()
        return rows

    def create(self, ddl: str, name: str, **registration: Any) -> TableId:
        """Create a table and register it."""
        self.execute(ddl)
        self.writer.commit()
        control_tables.addtable(self.writer, self.schema, name, control_tables.RegistrationOptions(**registration))
        return TableId(self.schema, name)

    def captured(self) -> Lsn:
        """Wait until capture has everything, and return the synchpoint."""
        return Lsn(await_captured(self.writer, 30.0))

    def plan(
        self, run_id: str = "", signals: Sequence[Signal] = (), interval: DataInterval | None = None
    ) -> JobSpec | None:
        """Plan a tick, as a new run or as the run `run_id`."""
        run = TickRun(run_id or f"run{next(numbers)}", int(time.time() * 1000), signals, interval)
        with self.source() as source:
            spec = plan_tick(source, self.config, self.offsets, run)
        record_signals_in_flight(spec, self.offsets)
        return spec

    def tick(self, *signals: Signal) -> JobResult | None:
        """Plan, apply and commit one tick. Return None for an idle tick."""
        for _ in range(DERBY_TRIES):
            spec = self.plan(signals=signals)
            if spec is None:
                return None
            result = job.run(spec)
            self.commit(result)
            record_reported(result, self.offsets, is_notified=True)
            if not any(DERBY_FAULT in line.error for line in result.failed):
                break
        return result

    def commit(self, result: JobResult) -> None:
        """Move the offsets of all tables."""
        if (unkept := commit_tick(result, self.offsets)[1]) is not None:
            raise unkept

    def passed(self, *signals: Signal) -> JobResult:
        """Run a tick, and check that it is not idle and that no table fails."""
        result = self.tick(*signals)
        assert result is not None, "there was nothing to do"
        assert not result.failed, result.failed
        return result

    def to_its_end(self) -> None:
        """Run ticks, each of everything captured, until nothing is left to do, and check that no table fails."""
        self.captured()
        while (result := self.tick()) is not None:
            assert not result.failed, result.failed
            self.captured()

    def begun(self, tables: Collection[TableId], ticks: int = FIRST_TICKS) -> dict[TableId, Lsn]:
        """Run at most `ticks` ticks until every table has begun, and return the position after which each one began."""
        starts: dict[TableId, Lsn] = {}
        for _ in range(ticks):
            result = self.tick()
            for line in result.tables if result is not None else ():
                if line.after is not None:
                    starts.setdefault(line.table, line.after)
            if starts.keys() >= {*tables}:
                return starts
        raise AssertionError(f"not every table has begun: {starts}")

    def restart(self, table: TableId) -> None:
        """Have a table begin again, as `db2cdc offset restart` does."""
        assert self.offsets.get(table) is not None, f"{table} has no offset"
        self.offsets.request(table, Restart(new_revision()))

    def unseen(self, table: TableId, *statements: str) -> None:
        """Change a table by a transaction that is not captured, as LOAD does."""
        journal = find_journal(self.writer, table.schema, table.name)
        assert journal is not None, f"{table} is not captured"
        for text in statements:
            self.execute(text)
        self.execute(f"DELETE FROM {journal.name} WHERE IBMSNAP_TXN = SANDBOX.TXN()")
        self.writer.commit()

    def gain(self, table: TableId, column: str, kind: str = "INTEGER") -> None:
        """Add a column to a table, and then to its change table."""
        gain_column(self, table, column, kind)

    def state(self, table: TableId) -> DataFrame:
        """Return the current state of a table."""
        return load(self.spark, Layout(self.target).state(table))

    def changes(self, table: TableId) -> DataFrame:
        """Return the change log of a table, in order."""
        frame = load(self.spark, Layout(self.target).changes(table))
        return frame.orderBy("__batch", "__commit_lsn", "__intent_lsn", "__ordinal")

    def rows(self, table: TableId) -> set[Row]:
        """Return the current state's rows, without the provider's own columns."""
        frame = self.state(table)
        kept = [name for name in frame.columns if not name.startswith("__")]
        found = [tuple(row) for row in frame.select(*(f"`{name}`" for name in kept)).collect()]
        assert len(found) == len(set(found))
        return set(found)

    def source_rows(self, table: TableId) -> set[Row]:
        """Return the source's rows."""
        return set(self.query(f'SELECT * FROM "{table.schema}"."{table.name}"'))


SIGNAL_COLUMNS = "ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32) NOT NULL, DATA VARCHAR(2048)"


def use_signal_table(pipeline: Pipeline, schema: str = "", columns: str = SIGNAL_COLUMNS) -> str:
    """Create a captured signal table, in another schema if one is named, and return its name in SQL."""
    if schema:
        pipeline.execute(f'CREATE SCHEMA "{schema}"')
    home = schema or pipeline.schema
    pipeline.execute(f'CREATE TABLE "{home}"."SIGNALS" ({columns})')
    pipeline.writer.commit()
    control_tables.addtable(pipeline.writer, home, "SIGNALS")
    chosen = {"signal.data.collection": f"{home}.SIGNALS", "table.include.list": f"{pipeline.schema}\\.T.*"}
    pipeline.properties = {**pipeline.properties, **chosen}
    return f'"{home}"."SIGNALS"'


class Writes(Protocol):
    """The part of a pipeline that playing a history needs."""

    writer: Any
    schema: str

    def execute(self, text: str, *values: Any) -> None:
        """Run a statement without a commit."""


def gain_column(writes: Writes, table: TableId, column: str, kind: str = "INTEGER") -> None:
    """Add a column to a table, and then to its change table."""
    writes.execute(f'ALTER TABLE "{table.schema}"."{table.name}" ADD COLUMN "{column}" {kind}')
    writes.writer.commit()
    control_tables.addcolumn(writes.writer, table.schema, table.name, column)


@dataclass
class Play:
    """A random history that is played step by step into a source whose tables exist."""

    pipeline: Writes
    history: History
    at: int = 0
    commits: list[Lsn] = field(default_factory=list)

    def play(self, steps: int) -> None:
        """Play the next steps. A transaction that is open after them stays open only within this call."""
        taken = 0
        while self.at < len(self.history.steps) and taken < steps:
            action = self.history.steps[self.at].action
            self.at += 1
            match action:
                case Commit(lsn=lsn):
                    self.pipeline.writer.commit()
                    self.commits.append(lsn)
                    taken += 1
                case Rollback():
                    self.pipeline.writer.rollback()
                    taken += 1
                case _:
                    text, values = statement(self.history.shape(action.table), action, self.pipeline.schema)
                    self.pipeline.execute(text, *values)

    @property
    def ended(self) -> bool:
        """Whether all steps are played."""
        return self.at >= len(self.history.steps)

    def expected(self, table: str) -> set[Row]:
        """Return the oracle's rows after the last played commit."""
        at = self.commits[-1] if self.commits else self.history.start
        return set(self.history.state(table, at).values())


@dataclass
class Replay(Play):
    """A random history that is played into a pipeline's source. `registration` is how its tables are registered."""

    pipeline: Pipeline
    registration: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self) -> None:
        """Create the history's tables with their first rows, and register them."""
        pipeline = self.pipeline
        for shape in self.history.tables:
            registration = {"update_as": shape.update_as, **self.registration}
            pipeline.create(create_table(shape, pipeline.schema), shape.name, **registration)
            for row in self.history.initial[shape.name]:
                marks = ", ".join("?" * len(row))
                pipeline.execute(f'INSERT INTO "{pipeline.schema}"."{shape.name}" VALUES ({marks})', *row)
        pipeline.writer.commit()
