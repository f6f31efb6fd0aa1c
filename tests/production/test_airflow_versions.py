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


def test_the_demo_ends_with_equal_tables(tmp_path: Path) -> None:
    """Not on 3.2, where a task of `dag.test` may come before its API: https://github.com/apache/airflow/issues/65945."""
    options = ("--rows", "300", "--ticks", "1", "--seconds-per-tick", "2")
    with started(tmp_path / "demo", "demo", *options, python=installed_python("airflow-3.1")) as demo:
        assert demo.process.wait(RUN_TIMEOUT_S) == 0, demo.screen
        assert re.findall(r"EQUAL|DIFFERENT", demo.screen) == ["EQUAL"] * 3
        assert demo.left() == []


@pytest.mark.parametrize("version", ["3.1", "3.2"])
def test_the_scheduler_runs_the_dag(version: str, tmp_path: Path) -> None:
    python = installed_python(f"airflow-{version}")
    with running_ui(tmp_path / "ui", python=python) as (api, _):
        assert api.get("version")["version"] == version_of(python, "apache-airflow")
        api.trigger(PIPELINE)
        api.ended(PIPELINE)
        api.mended(PIPELINE)
        offsets = api.get("variables/db2cdc.shop~offsets")["value"]
        assert set(json.loads(offsets)["tables"]) == TABLES
