"""A separate Airflow for the demo: a home, the shipped DAG in its DAGs folder, connections in the environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from airflow_provider_db2cdc.cdc.document import PROGRESS_MARK
from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.stored import StoredOffsets
from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.demo.services.dag_runs import RUN_MARK
from airflow_provider_db2cdc.demo.shop import SCHEMA
from airflow_provider_db2cdc.errors import ConfigurationError, TickFailedError
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.sandbox.server.state import DRIVER_OPTIONS
from airflow_provider_db2cdc.submit import LOG4J
from airflow_provider_db2cdc.submit.command import FAST_START, spark_conf
from airflow_provider_db2cdc.submit.home import spark_home
from airflow_provider_db2cdc.submit.jars import default_folder

ROOT = Path(__file__).resolve().parents[3]
SHIPPED_DAGS = ROOT / "dags"
DAG_FILES = ("db2cdc_pipeline.py", "db2cdc_snapshot.py")
"""Those that DB2CDC_CONFIG sets; the others show how to write one's own, for a source that is not here."""

PIPELINE = "shop"
DAG_ID = f"db2cdc_{PIPELINE}"
OWN_PREFIXES = ("AIRFLOW", "DB2CDC_", "_AIRFLOW")
SPARK_CONF = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": FAST_START}
"""For a shop as small as this, the snapshot too is over before a well-compiled JVM would pay."""

RUN_TIMEOUT_S = 900.0
END_TIMEOUT_S = 3.0
LOCK_TIMEOUT_S = 60
"""How long Airflow waits for its own SQLite. After SQLite's 5 s a busy machine's API server answered with an error.

With a write-ahead log, readers and the writer do not wait for each other.
"""

LOG_TAIL = re.compile(r"\s+\[[\w.]+\].*$")
"""What Airflow's log puts after a task's own line."""


@dataclass(frozen=True)
class Run:
    """A DAG run that ended: its tasks' states, the job's result (None for an idle run), and the offsets after it."""

    run_id: str
    state: str
    tasks: Mapping[str, str]
    result: JobResult | None
    offsets: tuple[Offset, ...]

    @property
    def whole(self) -> bool:
        """Whether all tables succeeded. The next run continues with the others."""
        return self.state == "success"

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Run:
        """Read what dag_runs reports."""
        result = JobResult.from_json(data["result"]) if data["result"] else None
        stored = StoredOffsets.parse(data["offsets"], "Airflow's Variable")
        offsets = (offset for table in stored.tables if (offset := stored.get(table)) is not None)
        return cls(data["run_id"], data["state"], data["tasks"], result, (*offsets,))


@dataclass(frozen=True)
class SparkPlace:
    """Where Airflow's jobs run: fields of the Spark connection, settings of Spark, and properties of the pipeline."""

    connection: Mapping[str, Any] = field(default_factory=lambda: {"host": "local[2]"})
    conf: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)


class AirflowHome:
    """A folder that is AIRFLOW_HOME, and what lies next to it: the pipeline's configuration, the lake and the logs.

    `database` is the URL of Airflow's metadata, which is an SQLite file at first. `spark` is this machine at first.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "airflow"
        self.lake = folder / "lake"
        self.logs = folder / "logs"
        self.events = folder / "events"
        self.config = folder / "pipeline.yaml"
        self.spark_sql = folder / "spark-sql"
        self.spark = SparkPlace()
        self.database = f"sqlite:///{self.home}/airflow.db?timeout={LOCK_TIMEOUT_S}"

    def lay_out(self) -> None:
        """Create the folders, put the shipped DAGs where Airflow looks for them, and write the pipeline's settings.

        Raises:
            ConfigurationError: this is not a checkout, because the DAGs or the jars are missing.
        """
        if not SHIPPED_DAGS.is_dir():
            raise ConfigurationError(f"{SHIPPED_DAGS} is not there", "Run the demo from a checkout: `make demo`.")
        for folder in (self.home / "dags", self.logs):
            folder.mkdir(parents=True)
        for name in DAG_FILES:
            shutil.copy(SHIPPED_DAGS / name, self.home / "dags")
        properties = {
            "pipeline": PIPELINE,
            "target": str(self.lake),
            "table.include.list": rf"{SCHEMA}\..*",
            **self.spark.properties,
            "spark": {"jars": str(spark_jars()), "conf": {**SPARK_CONF, **self.spark.conf}},
        }
        self.config.write_text(yaml.safe_dump(properties, sort_keys=False), encoding="utf-8")
        self._write_spark_sql()

    @property
    def on_sqlite(self) -> bool:
        """Whether Airflow's metadata are in SQLite, so that it creates no backfill while the scheduler runs."""
        return self.database.startswith("sqlite")

    def spark_settings(self) -> dict[str, str]:
        """Return the settings that another Spark needs to read the target."""
        settings = {"spark.driver.memory": "1g", "spark.sql.warehouse.dir": str(self.home / "spark-warehouse")}
        return spark_conf(sorted(spark_jars().glob("*.jar")), (), settings, LOG4J, short=True)

    def _write_spark_sql(self) -> None:
        """Write a program that runs SQL on the Delta tables: Spark's own program with the settings for it."""
        settings = {"spark.master": "local[2]", "spark.sql.catalogImplementation": "in-memory", **self.spark_settings()}
        conf = self.folder / "spark.conf"
        conf.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        home = spark_home()
        environment = f"SPARK_HOME={shlex.quote(str(home))} SPARK_LOCAL_IP=127.0.0.1"
        call = f'{environment} exec {shlex.quote(str(home / "bin" / "spark-sql"))} --properties-file spark.conf "$@"'
        self.spark_sql.write_text(f"#!/bin/sh\ncd {shlex.quote(str(self.folder))} && {call}\n", encoding="utf-8")
        self.spark_sql.chmod(0o755)

    def environment(self, sandbox: Sandbox | None = None, schedule: str = "none") -> dict[str, str]:
        """Return the environment of its processes. The Airflow settings of the user are not in it."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(OWN_PREFIXES)}
        env |= {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", **self.spark.connection}),
            "DB2CDC_CONFIG": str(self.config),
            "DB2CDC_SCHEDULE": schedule,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        if sandbox:
            env["AIRFLOW_CONN_DB2_DEFAULT"] = json.dumps(_connection(sandbox))
        return env

    def migrate(self) -> Child:
        """Start `airflow db migrate`."""
        if self.on_sqlite:
            with closing(sqlite3.connect(self.home / "airflow.db")) as database:
                database.execute("PRAGMA journal_mode = WAL")
        argv = [sys.executable, "-m", "airflow", "db", "migrate"]
        return Child(argv, self.environment(), self.home, self.logs / "migrate.log")

    def runs(self, sandbox: Sandbox) -> DagRuns:
        """Start the process that runs the DAG on request."""
        argv = [sys.executable, "-m", "airflow_provider_db2cdc.demo.services.dag_runs", DAG_ID]
        return DagRuns(Child(argv, self.environment(sandbox), self.home), self.logs / "runs.log")


class DagRuns:
    """The process that runs the DAG, one whole DAG run per call. As a context manager it ends with the block."""

    def __init__(self, child: Child, log: Path) -> None:
        self._child = child
        self._log = log
        self._busy = False

    def run(self, on_progress: Callable[[str], None] = lambda line: None) -> Run:
        """Do one DAG run. The job's progress lines go to `on_progress`, and all output goes to the log.

        Raises:
            TickFailedError: the run failed without a result of the job, or took too long.
        """
        self._busy = True
        self._child.tell("run")
        limit = threading.Timer(RUN_TIMEOUT_S, self._child.end)
        limit.start()
        try:
            run = self._await_run(on_progress)
        finally:
            limit.cancel()
        self._busy = False
        if run.result is None and not run.whole:
            states = ", ".join(f"{task} {state}" for task, state in run.tasks.items())
            raise TickFailedError(f"DAG run {run.run_id} ended as {run.state}: {states}", f"Read {self._log}.")
        return run

    def __enter__(self) -> DagRuns:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._busy:
            self._child.hang_up(END_TIMEOUT_S)
        self._child.end(END_TIMEOUT_S)

    def _await_run(self, on_progress: Callable[[str], None]) -> Run:
        with self._log.open("ab") as log:
            for raw in self._child.process.stdout or ():
                log.write(raw)
                log.flush()
                line = raw.decode(errors="replace").rstrip("\n")
                if line.startswith(RUN_MARK):
                    return Run.from_data(json.loads(line.removeprefix(RUN_MARK)))
                if PROGRESS_MARK in line:
                    on_progress(LOG_TAIL.sub("", line.split(PROGRESS_MARK, 1)[1]))
        raise TickFailedError("the process that runs the DAG ended", f"Read {self._log}.")


def spark_jars() -> Path:
    """Return the folder of Spark's jars: where `db2cdc jars` puts them by default, or this checkout's.

    Raises:
        ConfigurationError: neither has any.
    """
    places = [default_folder() / "spark", ROOT / "build" / "jars" / "spark"]
    for place in places:
        if list(place.glob("*.jar")):
            return place.resolve()
    raise ConfigurationError(
        f"Spark's jars are neither in {places[0]} nor in {places[1]}",
        "Fetch them with `db2cdc jars --sandbox --into build/jars`, or `make setup`.",
    )


def _connection(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "conn_type": "ibmdb2",
        "host": sandbox.state.host,
        "port": sandbox.port,
        "schema": sandbox.database,
        "login": sandbox.user,
        "password": sandbox.password,
        "extra": DRIVER_OPTIONS,
    }
