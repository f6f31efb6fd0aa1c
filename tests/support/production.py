"""Three pipelines on Airflow's own services, with a writer, signals, and services that are killed while tasks run."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome, spark_jars
from airflow_provider_db2cdc.demo.services.postgres import find_programs, running_server
from airflow_provider_db2cdc.demo.ui import free_port, service_settings
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.submit.command import FAST_START
from support.airflow_metadata import Metadata, TaskRow
from support.airflow_services import AirflowServices
from support.airflow_ui import Api
from support.production_source import TableWriter, build
from support.program import ROOT, call, is_made, wait_for

DAGS = ROOT / "tests" / "production" / "dags"
PIPELINES = ("north", "south", "west")
CAPTURE_INTERVAL_S = 1.0
BEFORE_TICK_S = 10
MOMENT_TIMEOUT_S, RUNS_TIMEOUT_S = 1800, 3600
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
IDLE_TRANSACTION_S = 60
PARALLELISM, SPARK_SLOTS = 6, 2
HEALING = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "60",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
}
"""How soon the scheduler sees that a task is gone, and how long a task waits for the API server's answer.

docs/how-to/run-in-production.md explains them.
"""


@dataclass(frozen=True)
class Size:
    """Tables of each pipeline, minutes from tick to tick, and the writer's transactions per second."""

    tables: int
    every_minutes: int
    rate: float


@dataclass
class Production:
    """All that runs, and a diary of what was done to it."""

    size: Size
    home: AirflowHome
    sandbox: Sandbox
    services: AirflowServices
    metadata: Metadata
    tables: list[TableId]
    writer: TableWriter
    asked: list[tuple[str, str]] = field(default_factory=list)
    diary: list[dict[str, Any]] = field(default_factory=list)

    @property
    def api(self) -> Api:
        """Airflow's API. Its server must answer."""
        return Api(self.services.url)

    def note(self, what: str, **more: Any) -> None:
        """Write an entry, with the tasks that run."""
        running = [
            f"{task.dag}/{task.run_id}/{task.task} try {task.tries}" for task in self.metadata.tasks(("running",))
        ]
        entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": what, "running": running, **more}
        self.diary.append(entry)
        sys.stdout.write(f"{json.dumps(entry)}\n")
        sys.stdout.flush()

    def await_task(self, task: str, state: str = "running", dag: str = "", since: datetime = LONG_AGO) -> TaskRow:
        """Wait until a task of a try that began later is in a state, and return it."""

        def found() -> list[TaskRow]:
            self.services.check()
            rows = self.metadata.tasks((state,), f"%{task}")
            return [row for row in rows if row.dag.startswith(dag) and row.start is not None and row.start > since]

        return wait_for(found, MOMENT_TIMEOUT_S)[0]  # type: ignore[no-any-return]

    def await_job(self, since: datetime = LONG_AGO) -> None:
        """Wait until Spark runs a job of a task `apply` that began later."""
        self.await_task(".apply", since=since)

        def works() -> bool:
            self.services.check()
            return any(
                is_job(process) and process.create_time() > since.timestamp() for process in self.services.processes()
            )

        wait_for(works, MOMENT_TIMEOUT_S)

    def ask(self, pipeline: str) -> None:
        """Ask for a snapshot of one of the pipeline's tables."""
        own = [table for table in self.tables if table.schema == pipeline.upper()]
        table, run_id = own[len(self.asked) % len(own)], f"asked{len(self.asked)}"
        self.api.trigger(f"{pipeline}_snapshot", run_id, {"tables": [str(table)]})
        self.asked.append((f"{pipeline}_snapshot", run_id))
        self.note(f"asked {pipeline} for {table}")

    def restart(self, name: str, down_s: float, kill: Callable[[str], None] | None = None) -> datetime:
        """Kill a service, start it again after some seconds, and return when it was killed."""
        killed_at = datetime.now(UTC)
        self.note(f"kill {name}")
        (kill or self.services.kill)(name)
        time.sleep(down_s)
        self.services.start(name)
        self.services.await_answer()
        self.note(f"{name} started again", down_s=down_s)
        return killed_at

    @contextmanager
    def paused_capture(self) -> Iterator[None]:
        """Hold capture back from before the next tick, so that a plan keeps waiting for it."""
        every_s = 60 * self.size.every_minutes
        time.sleep(max(0.0, every_s - time.time() % every_s - BEFORE_TICK_S))
        with closing(self.sandbox.connect()) as connection:
            faults.pause(connection)
            try:
                yield
            finally:
                faults.resume(connection)

    def await_runs(self, after: datetime) -> None:
        """Wait until each pipeline has a scheduled run of a later time that has succeeded."""

        def succeeded(dag: str) -> list[Any]:
            self.services.check()
            query = "SELECT run_id FROM dag_run WHERE dag_id = %s AND run_type = 'scheduled' AND state = 'success'"
            return self.metadata.rows(f"{query} AND run_after > %s", dag, after)

        for name in PIPELINES:
            wait_for(partial(succeeded, f"{name}_cdc"), RUNS_TIMEOUT_S)

    def end(self) -> None:
        """Stop the writer, let each pipeline take all of it, pause the DAGs, and let what runs come to its end."""
        self.writer.stop()
        self.note("the writer has stopped", changes=self.writer.changes, lost=self.writer.lost)
        self.await_runs(datetime.now(UTC))
        for name in PIPELINES:
            wait_for(partial(self._is_over, f"{name}_snapshot"), RUNS_TIMEOUT_S)
        api = self.api
        for name in PIPELINES:
            call(f"{api.url}/api/v2/dags/{name}_cdc", api.token, {"is_paused": True}, "PATCH")
        for name in PIPELINES:
            wait_for(partial(self._is_over, f"{name}_cdc"), RUNS_TIMEOUT_S)
        self.note("all runs are over")

    def _is_over(self, dag: str) -> bool:
        return all(run.state in ("success", "failed") for run in self.metadata.runs(dag))


def is_job(process: psutil.Process) -> bool:
    """Return whether a process is the Python of a Spark driver."""
    with suppress(psutil.Error):
        return "spark_jobs/apply.py" in " ".join(process.cmdline())
    return False


@contextmanager
def running_production(folder: Path, size: Size) -> Iterator[Production]:
    """Start everything, and wait until each pipeline's first run has read its tables."""
    home = AirflowHome(folder)
    for place in (home.home / "dags", home.logs):
        place.mkdir(parents=True)
    shutil.copy(DAGS / "pipelines.py", home.home / "dags")
    with ExitStack() as stack:
        home.database = stack.enter_context(running_server(find_programs(), home))
        migrating = stack.enter_context(home.migrate())
        sandbox = stack.enter_context(Sandbox.start(folder / "sandbox", commit_interval_s=CAPTURE_INTERVAL_S))
        tables = build(sandbox, [name.upper() for name in PIPELINES], size.tables)
        assert migrating.process.wait(MOMENT_TIMEOUT_S) == 0, home.logs / "migrate.log"
        metadata = Metadata(home.database)
        metadata.end_idle_transactions_after(IDLE_TRANSACTION_S)
        began = datetime.now(UTC)
        services = stack.enter_context(AirflowServices(home, environment(home, sandbox, size)))
        writer = TableWriter(sandbox, tables, size.rate)
        stack.callback(writer.stop)
        production = Production(size, home, sandbox, services, metadata, tables, writer)
        api = production.api
        pool = {"name": "spark", "slots": SPARK_SLOTS}
        wait_for(lambda: is_made(f"{api.url}/api/v2/pools", api.token, pool), MOMENT_TIMEOUT_S)
        # The first run may be that of the time before the start.
        production.await_runs(datetime.fromtimestamp(began.timestamp() - 24 * 3600, UTC))
        production.note("each pipeline has had its first run")
        yield production


def environment(home: AirflowHome, sandbox: Sandbox, size: Size) -> dict[str, str]:
    """Return the environment of Airflow's services."""
    given = {
        **home.environment(sandbox),
        **service_settings(free_port(0)),
        **HEALING,
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": str(PARALLELISM),
        "PRODUCTION_SCHEDULE": f"*/{size.every_minutes} * * * *",
        "PRODUCTION_LAKE": str(home.lake),
        "PRODUCTION_JARS": str(spark_jars()),
        "PRODUCTION_JAVA_OPTIONS": FAST_START,
    }
    return {name: value for name, value in given.items() if name != "DB2CDC_CONFIG"}
