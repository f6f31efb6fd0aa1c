"""One Airflow home for the session: SQLite, a DAGs folder, and a spark-submit that is a script."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.demo.runs import dag_bag
from airflow_provider_db2cdc.sandbox.capture import control_tables, faults
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
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
from inside_task import CALLS

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
def run_dag(airflow_db: None) -> Callable[..., Any]:
    """Run a DAG of a file's text as `airflow dags test` does, and return the run's state and each task's."""

    def run(dag_id: str, text: str, conf: dict[str, Any] | None = None) -> tuple[str, dict[str, str]]:
        path = DAGS / f"{dag_id}.py"
        path.write_text(text, encoding="utf-8")
        bag = dag_bag(path, DAGS)
        assert bag.import_errors == {}
        dag_run = bag.dags[dag_id].test(run_conf=conf)
        return str(dag_run.state), {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}

    return run


@pytest.fixture
def inside(run_dag: Callable[..., Any]) -> Callable[[Callable[[], Any]], Any]:
    """Call a function within a task; its error is raised here."""
    from inside_task import CALLS

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


class FakeSpark:
    """A folder with a spark-submit that is a script."""

    def __init__(self, folder: Path) -> None:
        self.binary = folder / "spark-submit"
        script = Path(__file__).with_name("fake_spark_submit.py").read_text(encoding="utf-8")
        self.binary.write_text(f"#!{sys.executable}\n{script}", encoding="utf-8")
        self.binary.chmod(self.binary.stat().st_mode | stat.S_IXUSR)

    def call(self) -> Any:
        """Return what it was last called with."""
        return json.loads(self.binary.with_name("call.json").read_text(encoding="utf-8"))

    @property
    def called(self) -> bool:
        """Whether it was called at all."""
        return self.binary.with_name("call.json").exists()


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A spark-submit at the port, and the connection `spark_test` to go with it."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    return FakeSpark(tmp_path)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Define an Airflow connection in the environment and return its id."""

    def define(conn_id: str = "db2_test", **fields: Any) -> str:
        usual = {"conn_type": "ibmdb2", "host": "db2.example", "schema": "SALES", "login": "ann", "password": "pw"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({**usual, **fields}))
        return conn_id

    return define


class Captured:
    """The sandbox's own tables, captured, and what happens to them."""

    schema = "SHOP"

    def __init__(self, sandbox: Sandbox) -> None:
        self.password = sandbox.password
        self._connection = sandbox.connect()
        self._cursor = self._connection.cursor()
        self._cursor.execute(f"CREATE SCHEMA {self.schema}")
        for name in ("ORDERS", "ITEMS"):
            self._cursor.execute(f"CREATE TABLE {self.schema}.{name} (ID INTEGER NOT NULL PRIMARY KEY)")
            self._connection.commit()
            control_tables.addtable(self._connection, self.schema, name)
        self.synchpoint()

    def table(self, name: str) -> TableId:
        """Name one of the tables, ORDERS or ITEMS."""
        return TableId(self.schema, name)

    def insert(self, table: TableId) -> None:
        """Insert a row, and wait until it is captured."""
        self._cursor.execute(f"INSERT INTO {table} SELECT COALESCE(MAX(ID), 0) + 1 FROM {table}")
        self.synchpoint()

    def set_state(self, table: TableId, state: str) -> None:
        """Set the STATE of a table's registration."""
        faults.set_state(self._connection, table.schema, table.name, state)

    def synchpoint(self) -> Lsn:
        """Return a position behind everything so far, once capture has reached it."""
        return Lsn(await_captured(self._connection))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


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
def captured(capturing_sandbox: tuple[Sandbox, Captured], connect: Callable[..., str]) -> Captured:
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
