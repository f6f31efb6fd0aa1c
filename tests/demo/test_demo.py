"""The front door itself: `db2cdc demo` as a person starts and stops it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.program import RUN_TIMEOUT_S, START_TIMEOUT_S, started, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_demo_ends_with_equal_tables_and_nothing_left_running(tmp_path: Path) -> None:
    with started(tmp_path / "demo", "demo", "--rows", "300", "--ticks", "1", "--seconds-per-tick", "2") as demo:
        assert demo.process.wait(RUN_TIMEOUT_S) == 0, demo.screen
        assert re.findall(r"EQUAL|DIFFERENT", demo.screen) == ["EQUAL"] * 3
        assert demo.screen.count("DAG run") >= 3
        assert demo.left() == []


@pytest.mark.long
def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path) -> None:
    with started(tmp_path / "demo", "demo", "--rows", "100") as demo:
        demo.await_text("DAG run 1", START_TIMEOUT_S)
        wait_for(lambda: any("spark" in line for line in demo.left()), START_TIMEOUT_S)
        assert demo.interrupt() == 130, demo.screen
        assert "everything ends that was started" in demo.screen
        assert demo.left() == []


def test_a_demo_interrupted_during_its_start_leaves_nothing_running(tmp_path: Path) -> None:
    with started(tmp_path / "demo", "demo", "--rows", "100") as demo:
        demo.await_text("the sandbox", START_TIMEOUT_S)
        wait_for(lambda: any("sandbox.server.service" in line for line in demo.left()), START_TIMEOUT_S)
        assert demo.interrupt() == 130, demo.screen
        assert demo.left() == []
