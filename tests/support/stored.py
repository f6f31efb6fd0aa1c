"""A pipeline with its target in the object store. Each command is a process, as a user or Airflow starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import yaml
from deltalake import DeltaTable

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.submit.command import Submission, spark_conf, submit_argv
from airflow_provider_db2cdc.submit.home import spark_binary, spark_environment
from support.ended import end_capture
from support.object_store import BUCKET, ObjectStore
from support.operation import Row
from support.pipeline import Pipeline

ROOT = Path(__file__).parents[2]
COLUMNS = "ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20), AMOUNT INTEGER"
COMMAND_TIMEOUT_S = 500
COMMAND = [sys.executable, "-m", "airflow_provider_db2cdc.cli.main"]


class StoredPipeline:
    """A pipeline whose target is in the store, and whose jobs are processes of `db2cdc`."""

    def __init__(self, sandbox: Sandbox, store: ObjectStore, folder: Path, properties: Mapping[str, Any]) -> None:
        self.store = store
        self.folder = folder
        self.source = Pipeline(sandbox, None, folder)  # type: ignore[arg-type]
        self.target = f"s3a://{BUCKET}/{self.source.schema.lower()}"
        self.properties = properties
        self.more_conf: dict[str, str] = {}
        self.schema_location = ""
        self.master = "local[2]"

    def use_hive(self, location: str) -> None:
        """Make the target a schema of a Hive metastore, which is a Derby in this pipeline's folder."""
        derby = f"jdbc:derby:;databaseName={self.folder}/metastore;create=true"
        self.more_conf = {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": derby,
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        self.target, self.schema_location = "lakehouse", location
        self.sql(f"CREATE SCHEMA lakehouse LOCATION '{location}'")

    @cached_property
    def config(self) -> str:
        """The path of the configuration file."""
        own = {
            "pipeline": "test",
            "target": self.target,
            # delta-rs does not read tables with deletion vectors.
            "target.deletion.vectors": "false",
            "offsets.file": str(self.folder / "offsets.json"),
            "table.include.list": f"{self.source.schema}\\..*",
            "database": self.source.sandbox.state.settings,
            "spark": {"jars": str(ROOT / "build" / "jars"), "master": self.master, "conf": self.conf},
        }
        path = self.folder / "pipeline.yaml"
        path.write_text(yaml.safe_dump({**own, **self.properties}))
        return str(path)

    @property
    def conf(self) -> dict[str, str]:
        """The settings of Spark, with few tasks to list a table's files."""
        few = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2", "spark.sql.shuffle.partitions": "2"}
        return {**self.store.conf, **few, **self.more_conf}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *arguments, "--config", self.config],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )

    def python(self, code: str) -> str:
        """Run a program on a Spark session of its own, as another reader has, and return what it prints."""
        program = self.folder / "program.py"
        program.write_text(code)
        jars = [*(ROOT / "build" / "jars").glob("s[3p]*/*.jar")]
        submission = Submission(str(program), (), (), spark_conf(jars, extra=self.conf), "local[2]")
        done = subprocess.run(
            submit_argv(spark_binary(), submission),
            env=spark_environment(environ=self.environment),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def sql(self, statement: str) -> str:
        """Run a statement in a session that knows the catalog and nothing of the pipeline, and return the rows."""
        program = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        return self.python(f"{program}for row in spark.sql({statement!r}).collect():\n    print(*row)\n")

    def passed(self, *arguments: str) -> Any:
        """Run a command that must pass, and return its JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command. What is left of it at the end is killed."""
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--config", self.config],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            kill_tree(process.pid)
            process.wait(30)
            if process.stdout:
                process.stdout.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the commands."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def rows(self, table: TableId) -> set[Row]:
        """Return the current state's rows, read by delta-rs, which shares no code with Spark."""
        location = self.location(table).replace("s3a://", "s3://")
        options = self.store.options if location.startswith("s3:") else None
        frame = DeltaTable(location, storage_options=options).to_pyarrow_table()
        kept = [name for name in frame.column_names if not name.startswith("__")]
        found = list(zip(*(frame.column(name).to_pylist() for name in kept), strict=True))
        assert len(found) == len(set(found))
        return set(found)

    def location(self, table: TableId) -> str:
        """Return the path of the current state."""
        state = Layout(self.target).state(table).name
        return f"{self.schema_location}/{state.split('`')[-2]}" if self.schema_location else state

    def assert_equal(self, *tables: TableId) -> None:
        """Check that target and source are equal."""
        for table in tables:
            assert self.rows(table) == self.source.source_rows(table), table

    def close(self) -> None:
        """End the capture of the schema."""
        end_capture(self.source.writer, self.source.schema)
        self.source.writer.close()


def kill_tree(pid: int) -> None:
    """Kill a process and all that it started, by SIGKILL."""
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def drivers(pid: int) -> list[psutil.Process]:
    """Return the JVM and the Python processes below a command."""
    return psutil.Process(pid).children(recursive=True)


def filled(pipeline: StoredPipeline, name: str = "T") -> TableId:
    """A captured table with a few rows."""
    source = pipeline.source
    table = source.create(f"CREATE TABLE {source.schema}.{name} ({COLUMNS})", name)
    source.many(f"INSERT INTO {table} VALUES (?, ?, ?)", [(at, f"n{at}", at) for at in range(50)])
    source.captured()
    return table


def changed(pipeline: StoredPipeline, table: TableId, at: int) -> None:
    """Insert, update and delete a few rows."""
    source = pipeline.source
    source.execute(f"INSERT INTO {table} VALUES ({at}, 'new', 0)")
    source.execute(f"UPDATE {table} SET AMOUNT = AMOUNT + 1 WHERE ID < 10")
    source.execute(f"DELETE FROM {table} WHERE ID = {at - 1000 + 20}")
    source.writer.commit()
    source.captured()


def serve_every_command(pipeline: StoredPipeline, table: TableId) -> None:
    """Take a filled table the whole way, and compare it with the source after each step."""
    signals = pipeline.folder / "signals.jsonl"
    pipeline.properties = {"signal.enabled.channels": "file", "signal.file": str(signals)}
    pipeline.passed("tick")
    pipeline.assert_equal(table)
    changed(pipeline, table, 1000)
    pipeline.passed("tick")
    pipeline.assert_equal(table)

    signals.write_text(json.dumps({"id": "s1", "type": "execute-snapshot", "data": {"data-collections": [str(table)]}}))
    changed(pipeline, table, 1001)
    pipeline.passed("tick")
    pipeline.passed("tick")
    pipeline.assert_equal(table)

    now = datetime.now(UTC)
    since_yesterday = [
        "--from",
        (now - timedelta(days=1)).isoformat(),
        "--to",
        (now - timedelta(seconds=5)).isoformat(),
    ]
    pipeline.passed("verify")
    pipeline.passed("maintain")
    pipeline.passed("replay", str(table))
    pipeline.passed("backfill", str(table), *since_yesterday)
    pipeline.passed("status")
    pipeline.passed("doctor")
    pipeline.assert_equal(table)
