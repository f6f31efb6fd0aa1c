"""One Airflow home for the session: SQLite, a DAGs folder, and a spark-submit that is a script."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.airflow_fixtures import Connect, Inside, RunDag
from support.captured_shop import Captured
from support.fake_spark import FakeSpark
from support.scheduled_run import Interval, scheduled

from airflow_provider_db2cdc.demo.services.dag_runs import dag_bag
from airflow_provider_db2cdc.sandbox.server.service import Sandbox
from airflow_provider_db2cdc.sandbox.server.state import DRIVER_OPTIONS

ROOT = Path(__file__).parents[2]
_HOME = tempfile.TemporaryDirectory(prefix="db2cdc-airflow-")
HOME = Path(_HOME.name)
DAGS = HOME / "dags"
DAGS.mkdir()

# Airflow reads its home when it is first imported, which collecting the tests does.
os.environ.update(
    AIRFLOW_HOME=str(HOME),
    AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{HOME}/airflow.db",
    AIRFLOW__LOGGING__BASE_LOG_FOLDER=str(HOME / "logs"),
)

INSIDE = """
from airflow.sdk import DAG, task
from support.inside_task import CALLS

with DAG("inside"):

    @task
    def call():
        return CALLS.pop()()

    call()
"""


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Airflow's own database, empty."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session")
def run_dag(airflow_db: None) -> RunDag:
    """Run a DAG of a file's text as `airflow dags test` does, and return the run's state and each task's.

    With a data interval the run is a scheduled one, or a `backfill` if its `run_type` says so.
    """

    numbers = count()

    def run(
        dag_id: str,
        text: str,
        conf: dict[str, Any] | None = None,
        interval: Interval | None = None,
        run_type: str = "scheduled",
    ) -> tuple[str, dict[str, str]]:
        # Python takes the bytecode of an earlier file of this name, size and second for that of this one.
        path = DAGS / f"{dag_id}_{next(numbers)}.py"
        path.write_text(text, encoding="utf-8")
        bag = dag_bag(path, DAGS)
        assert bag.import_errors == {}
        with scheduled(interval, run_type):
            dag_run = bag.dags[dag_id].test(run_conf=conf)
        # Each run reads all files of the folder into the database.
        path.unlink()
        return str(dag_run.state), {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}

    return run


@pytest.fixture
def inside(run_dag: RunDag) -> Inside:
    """Call a function within a task; its error is raised here."""
    from support.inside_task import CALLS

    def call(function: Callable[[], Any]) -> Any:
        outcome: list[Any] = []

        def caught() -> None:
            try:
                outcome.append((function(), None))
            except Exception as error:
                outcome.append((None, error))

        CALLS.append(caught)
        run_dag("inside", INSIDE)
        [(value, error)] = outcome
        if error is not None:
            raise error
        return value

    return call


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A spark-submit at the port, and the connection `spark_test` to go with it."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return FakeSpark(tmp_path)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Define an Airflow connection in the environment and return its id."""

    def define(conn_id: str = "db2_test", **fields: Any) -> str:
        usual = {"conn_type": "ibmdb2", "host": "db2.example", "schema": "SALES", "login": "ann", "password": "pw"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({**usual, **fields}))
        return conn_id

    return define


@pytest.fixture(scope="session")
def capturing_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, Captured]]:
    """A running sandbox with its capture agent."""
    jars = Path(os.environ.get("DB2CDC_SANDBOX_JARS") or ROOT / "build" / "jars" / "sandbox")
    if not list(jars.glob("*derbynet*.jar")):
        pytest.skip(f"no Derby jars in {jars}: fetch them with `db2cdc jars --sandbox --into build/jars`")
    with Sandbox.start(tmp_path_factory.mktemp("sandbox"), jars=str(jars), commit_interval_s=0.2) as sandbox:
        captured = Captured(sandbox)
        yield sandbox, captured
        captured.close()


@pytest.fixture
def captured(capturing_sandbox: tuple[Sandbox, Captured], connect: Connect) -> Captured:
    """Captured tables, and the connection `db2_sandbox` to them."""
    sandbox, captured = capturing_sandbox
    connect(
        "db2_sandbox",
        host="127.0.0.1",
        port=sandbox.port,
        schema=sandbox.database,
        login=sandbox.user,
        password=sandbox.password,
        extra=DRIVER_OPTIONS,
    )
    return captured


@pytest.fixture(scope="session", autouse=True)
def _tidy() -> Iterator[None]:
    yield
    shutil.rmtree(HOME, ignore_errors=True)
