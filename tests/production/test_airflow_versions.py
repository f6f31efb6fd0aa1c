"""The demo's DAG on older minor versions of Airflow. `tests/demo` runs it on the newest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.airflow_ui import PIPELINE, running_ui
from support.environments import installed_python, version_of
from support.program import RUN_TIMEOUT_S, started

pytestmark = pytest.mark.timeout(3600)

TABLES = {"SHOP.CUSTOMERS", "SHOP.ORDERS", "SHOP.ORDER_LINES"}


@pytest.fixture(params=["3.1", "3.2"])
def python(request: pytest.FixtureRequest) -> str:
    """The Python of an environment with that Airflow."""
    return installed_python(f"airflow-{request.param}")


def test_the_demo_ends_with_equal_tables(python: str, tmp_path: Path) -> None:
    options = ("--rows", "300", "--ticks", "1", "--seconds-per-tick", "2")
    with started(tmp_path / "demo", "demo", *options, python=python) as demo:
        assert demo.process.wait(RUN_TIMEOUT_S) == 0, demo.screen
        assert re.findall(r"EQUAL|DIFFERENT", demo.screen) == ["EQUAL"] * 3
        assert demo.left() == []


def test_the_scheduler_runs_the_dag(python: str, tmp_path: Path) -> None:
    with running_ui(tmp_path / "ui", python=python) as (api, _):
        assert api.get("version")["version"] == version_of(python, "apache-airflow")
        api.trigger(PIPELINE)
        api.ended(PIPELINE)
        api.mended(PIPELINE)
        offsets = api.get("variables/db2cdc.shop~offsets")["value"]
        assert set(json.loads(offsets)["tables"]) == TABLES
