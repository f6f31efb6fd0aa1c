"""The demo's DAG with the CeleryExecutor: Redis is its broker, and a worker of its own runs the tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.airflow_metadata import Metadata
from support.airflow_services import COMMANDS, AirflowServices
from support.airflow_ui import NO_SERVER, PIPELINE, Api
from support.environments import installed_python
from support.program import HOST, START_TIMEOUT_S, wait_for

from airflow_provider_db2cdc.cli.screen import screen
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.demo.stage import StageOptions, open_stage
from airflow_provider_db2cdc.demo.ui import free_port, service_settings

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(NO_SERVER), reason=f"Airflow's metadata need PostgreSQL: {NO_SERVER}"),
]

REDIS = shutil.which("redis-server")
WITH_WORKER: Mapping[str, tuple[str, ...]] = {
    **COMMANDS,
    "worker": ("celery", "worker", "--skip-serve-logs", "--concurrency", "2"),
}
TASKS = {"tick.plan", "tick.apply", "tick.commit", "tick.outcome"}


@pytest.mark.skipif(REDIS is None, reason="NOT RUN: there is no redis-server on this machine")
def test_a_celery_worker_runs_the_dag_and_its_death_stops_nothing(tmp_path: Path) -> None:
    python = installed_python("celery")
    board = Board(screen(error=True))
    options = StageOptions(tmp_path / "demo", 100, 2.0, server=True)
    with board, open_stage(options, board) as stage, running_redis(stage.home) as broker:
        environment = {
            **stage.home.environment(stage.sandbox),
            **service_settings(free_port(0)),
            **celery_settings(stage.home, broker),
        }
        with AirflowServices(stage.home, environment, WITH_WORKER, python) as services:
            check_runs(services, Metadata(stage.home.database))


def check_runs(services: AirflowServices, metadata: Metadata) -> None:
    """Run the DAG, and once more while the worker is killed."""
    api = Api(services.url)
    api.trigger(PIPELINE, "first")
    assert api.ended(PIPELINE)["state"] == "success", services.home.logs
    tasks = metadata.rows("SELECT task_id, external_executor_id FROM task_instance WHERE run_id = 'first'")
    assert {task for task, celery_id in tasks if celery_id} == TASKS
    offsets = json.loads(api.get("variables/db2cdc.shop~offsets")["value"])["tables"]
    assert len(offsets) == 3
    api.trigger(PIPELINE, "second")
    wait_for(lambda: metadata.tasks(("running",), "%.apply"), START_TIMEOUT_S)
    services.kill("worker")
    services.start("worker")
    assert api.ended(PIPELINE, 2)["state"] == "success", services.home.logs
    moved = json.loads(api.get("variables/db2cdc.shop~offsets")["value"])["tables"]
    assert all(moved[table] != offsets[table] for table in offsets)


@contextmanager
def running_redis(home: AirflowHome) -> Iterator[str]:
    """Run an empty Redis, and yield its URL."""
    port = free_port(0)
    argv = [str(REDIS), "--bind", HOST, "--port", str(port), "--save", "", "--dir", str(home.folder)]
    with Child(argv, home.environment(), home.folder, home.logs / "redis.log"):
        yield f"redis://{HOST}:{port}/0"


def celery_settings(home: AirflowHome, broker: str) -> dict[str, str]:
    """Return Airflow's settings for Celery."""
    return {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CELERY__BROKER_URL": broker,
        "AIRFLOW__CELERY__RESULT_BACKEND": home.database.replace("postgresql", "db+postgresql", 1),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
    }
