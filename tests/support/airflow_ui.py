"""`db2cdc ui` with the API of its Airflow, and its pages in a real browser."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from airflow_provider_db2cdc.demo.services.postgres import find_programs
from airflow_provider_db2cdc.errors import ConfigurationError
from support.program import RUN_TIMEOUT_S, START_TIMEOUT_S, Program, call, find, is_made, started, wait_for


def why_no_server() -> str:
    """Return why no PostgreSQL can hold Airflow's metadata here. It is empty if one can."""
    try:
        find_programs()
    except ConfigurationError as error:
        return str(error)
    return ""


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_SERVER = why_no_server()
PIPELINE, FORM = "db2cdc_shop", "db2cdc_shop_snapshot"


class Api:
    """Airflow's API as far as this needs it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.token = call(f"{url}/auth/token")["access_token"]

    def get(self, path: str) -> Any:
        """Return what it answers, a busy one at last."""

        def answer() -> list[Any]:
            try:
                return [call(f"{self.url}/api/v2/{path}", self.token)]
            except TimeoutError:
                return []
            except HTTPError as error:
                if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                return []

        return wait_for(answer, START_TIMEOUT_S)[0]

    def await_dag(self, dag: str) -> None:
        wait_for(lambda: find(f"{self.url}/api/v2/dags/{dag}", self.token), START_TIMEOUT_S)

    def trigger(self, dag: str, run_id: str = "asked", conf: Mapping[str, Any] | None = None) -> str:
        """Have a DAG run, and return the run's id."""
        self.await_dag(dag)
        run = {"logical_date": None, "dag_run_id": run_id, "conf": conf or {}}
        wait_for(lambda: is_made(f"{self.url}/api/v2/dags/{dag}/dagRuns", self.token, run), START_TIMEOUT_S)
        return run_id

    def all_runs(self, dag: str) -> list[Any]:
        return list(self.get(f"dags/{dag}/dagRuns?order_by=run_after")["dag_runs"])

    def runs(self, dag: str) -> list[Any]:
        """Return the runs that were triggered, neither the schedule's nor those of a backfill."""
        return [run for run in self.all_runs(dag) if run["run_type"] not in ("scheduled", "backfill")]

    def ended(self, dag: str, number: int = 1) -> Any:
        """Wait until so many runs of a DAG have ended; return the last of them."""

        def enough() -> list[Any]:
            found = [run for run in self.runs(dag) if run["state"] in ("success", "failed")]
            return found if len(found) >= number else []

        return wait_for(enough, RUN_TIMEOUT_S)[number - 1]

    def ended_form(self, run_id: str) -> Any:
        """Wait until a run of the form's DAG has ended; return it."""

        def over() -> Any:
            run = self.get(f"dags/{FORM}/dagRuns/{quote(run_id)}")
            return run if run["state"] in ("success", "failed") else None

        return wait_for(over, RUN_TIMEOUT_S)

    def followed(self, run_id: str, what: str) -> Any:
        """Return something of the task that follows what the form asked for."""
        return self.get(f"dags/{FORM}/dagRuns/{quote(run_id)}/taskInstances/follow/{what}")

    def log(self, run_id: str) -> str:
        """Return that task's log."""
        return str(self.followed(run_id, "logs/1"))

    def mended(self, dag: str, ticks: int = 3) -> None:
        """Give a run of a DAG that failed a next one, as a schedule would; the last must not fail.

        Derby has a fault of its own, which fails a table for one tick (docs/contributing/sandbox.md).
        """
        for _ in range(ticks):
            wait_for(lambda: all(run["state"] in ("success", "failed") for run in self.runs(dag)), RUN_TIMEOUT_S)
            if (runs := self.runs(dag))[-1]["state"] == "success":
                return
            self.trigger(dag, f"again_{len(runs)}")
        assert self.ended(dag, len(self.runs(dag)))["state"] == "success", f"{ticks + 1} runs of {dag} failed"


@contextmanager
def running_ui(folder: Path, schedule: str = "none", python: str = sys.executable) -> Iterator[tuple[Api, Program]]:
    """Run `db2cdc ui`, and check that an interrupt leaves nothing running."""
    with started(folder, "ui", "--rows", "100", "--schedule", schedule, python=python) as ui:
        ui.await_text("runs until Ctrl-C", START_TIMEOUT_S)
        assert ("NO BACKFILLS" in ui.screen) == bool(NO_SERVER), ui.screen
        yield Api(ui.url), ui
        assert ui.interrupt() == 130, ui.screen
        assert ui.left() == []


@contextmanager
def trigger_page(api: Api) -> Iterator[Any]:
    """Yield a page of a browser that is logged in."""
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 1400}, timezone_id="UTC")
        page.set_default_timeout(60_000)
        page.goto(api.url)  # Airflow 3.1 leads a person who is not logged in to its home page first.
        page.get_by_role("link", name="Dags").first.wait_for()
        yield page
        browser.close()


@contextmanager
def backfill_form(api: Api, page: Any, dag: str, first: datetime, last: datetime) -> Iterator[Any]:
    """Open the dialog that runs a DAG for its intervals from one time to another, both in UTC, and yield it."""
    page.goto(f"{api.url}/dags/{dag}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog").first
    form.get_by_text("Backfill", exact=True).first.click()
    for moment in (first, last):
        form.get_by_text("Select date and time").first.click()
        day, time = page.get_by_placeholder("YYYY/MM/DD"), page.get_by_placeholder("HH:mm")
        day.fill(f"{moment:%Y/%m/%d}")
        day.press("Tab")
        time.fill(f"{moment:%H:%M}")
        time.press("Tab")
        form.get_by_text("Date Range").click()
        day.wait_for(state="hidden")
    yield form


def choose_backfill(form: Any, choice: str, number: int) -> None:
    """Choose which runs to repeat, and wait until the dialog has counted so many."""
    form.get_by_text(choice, exact=True).click()
    runs = "1 run" if number == 1 else f"{number} runs"
    form.get_by_text(f"{runs} will be triggered." if number else "No runs matching selected criteria.").wait_for()


def run_backfill(api: Api, form: Any, dag: str, number: int) -> list[Any]:
    """Press the dialog's button, wait until so many runs of backfills are over, and return them in order.

    Airflow itself ends a backfill only up to half a minute after its last run.
    """
    form.get_by_role("button", name="Run Backfill").click()
    form.wait_for(state="hidden")

    def over() -> list[Any]:
        runs = [run for run in api.all_runs(dag) if run["run_type"] == "backfill"]
        return runs if len([run for run in runs if run["state"] in ("success", "failed")]) == number else []

    return list(wait_for(over, RUN_TIMEOUT_S))
