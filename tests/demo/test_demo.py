"""The front door itself: `db2cdc demo` and `db2cdc ui` as a person starts and stops them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S, RUN_TIMEOUT_S, END_TIMEOUT_S = 300, 900, 90


class Program:
    """A command of `db2cdc`, in a process group of its own as a shell would start it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._log = folder.parent / "screen"
        with self._log.open("w") as screen:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "airflow_provider_db2cdc.cli.main", *arguments, "--folder", str(folder)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=screen,
                stderr=screen,
                process_group=0,
            )

    @property
    def screen(self) -> str:
        return self._log.read_text()

    def await_text(self, text: str, timeout_s: float) -> None:
        wait_for(lambda: text in self.screen or self.process.poll() is not None, timeout_s)
        assert text in self.screen, self.screen

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(END_TIMEOUT_S)

    def left(self) -> list[str]:
        """The command lines of processes that live in its folder or name it."""
        found = []
        for process in psutil.process_iter():
            try:
                line, place = " ".join(process.cmdline()), process.cwd()
            except psutil.Error:
                continue
            if process.pid != os.getpid() and (str(self.folder) in line or place.startswith(str(self.folder))):
                found.append(line)
        return found


def wait_for(condition: Callable[[], Any], timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.3)
    raise AssertionError(f"nothing within {timeout_s} s")


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[Program]:
    program = Program(folder, *arguments)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.process.terminate()
            program.process.wait(END_TIMEOUT_S)


def test_the_demo_ends_with_equal_tables_and_nothing_left_running(tmp_path: Path) -> None:
    with started(tmp_path / "demo", "demo", "--rows", "300", "--ticks", "1", "--seconds-per-tick", "2") as demo:
        assert demo.process.wait(RUN_TIMEOUT_S) == 0, demo.screen
        assert re.findall(r"EQUAL|DIFFERENT", demo.screen) == ["EQUAL"] * 3
        assert demo.screen.count("DAG run") >= 3
        assert demo.left() == []


def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path) -> None:
    with started(tmp_path / "demo", "demo", "--rows", "100") as demo:
        demo.await_text("DAG run 1", START_TIMEOUT_S)
        wait_for(lambda: any("spark" in line for line in demo.left()), START_TIMEOUT_S)
        assert demo.interrupt() == 130, demo.screen
        assert "everything ends that was started" in demo.screen
        assert demo.left() == []


def test_a_demo_interrupted_while_the_sandbox_starts_leaves_nothing_running(tmp_path: Path) -> None:
    with started(tmp_path / "demo", "demo", "--rows", "100") as demo:
        demo.await_text("the sandbox", START_TIMEOUT_S)
        wait_for(lambda: any("sandbox.service" in line for line in demo.left()), START_TIMEOUT_S)
        assert demo.interrupt() == 130, demo.screen
        assert demo.left() == []


def test_the_ui_answers_runs_the_dag_and_ends_whole(tmp_path: Path) -> None:
    with started(tmp_path / "ui", "ui", "--rows", "100", "--schedule", "none") as ui:
        ui.await_text("Airflow is at", START_TIMEOUT_S)
        [url] = set(re.findall(r"Airflow is at (http://127\.0\.0\.1:\d+)", ui.screen))
        token = call(f"{url}/auth/token")["access_token"]
        dag = f"{url}/api/v2/dags/db2cdc_shop"
        wait_for(lambda: find(dag, token), START_TIMEOUT_S)
        assert call(dag, token)["is_paused"] is False
        run = call(f"{dag}/dagRuns", token, {"logical_date": None})["dag_run_id"]
        ended = wait_for(lambda: call(f"{dag}/dagRuns/{run}", token)["state"] in ("success", "failed"), RUN_TIMEOUT_S)
        assert ended
        assert call(f"{dag}/dagRuns/{run}", token)["state"] == "success"
        variables = call(f"{url}/api/v2/variables", token)["variables"]
        assert {item["key"] for item in variables} == {
            *(f"db2cdc.shop.SHOP.{name}" for name in ("CUSTOMERS", "ORDERS", "ORDER_LINES")),
            "db2cdc.shop~backlog",
        }
        assert ui.interrupt() == 130, ui.screen
        assert ui.left() == []


def find(url: str, token: str) -> Any:
    try:
        return call(url, token)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def call(url: str, token: str = "", body: Any = None) -> Any:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)
