"""`db2cdc ui` as a person uses it: an operator that waits, the trigger form in a real browser, a real scheduler."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from support.fake_spark import FakeSpark
from support.program import RUN_TIMEOUT_S, START_TIMEOUT_S, Program, call, find, is_made, started, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(3600)]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PIPELINE, FORM = "db2cdc_shop", "db2cdc_shop_snapshot"

ASKING = "dags/asks/dagRuns/asked/taskInstances/ask"
ASKS = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcSignalOperator

with DAG("asks"):
    Db2CdcSignalOperator(
        task_id="ask", trigger_dag_id="db2cdc_shop", signal_type="log", data={"message": "heard {}"},
        wait_for_completion=True, deferrable=True, poke_interval=2,
    )
"""


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

    def runs(self, dag: str) -> list[Any]:
        return list(self.get(f"dags/{dag}/dagRuns?order_by=run_after")["dag_runs"])

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
def running_ui(folder: Path) -> Iterator[tuple[Api, Program]]:
    """Run `db2cdc ui`, and check that an interrupt leaves nothing running."""
    with started(folder, "ui", "--rows", "100", "--schedule", "none") as ui:
        ui.await_text("Airflow is at", START_TIMEOUT_S)
        (ui.folder / "airflow" / "dags" / "asks.py").write_text(ASKS)
        yield Api(ui.url), ui
        assert ui.interrupt() == 130, ui.screen
        assert ui.left() == []


def test_operator_and_form_start_runs_that_carry_their_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick has to end, so a script that sleeps stands in for Spark. The long tests follow signals to their end."""
    monkeypatch.setenv("FAKE_SLEEP_S", "300")
    with running_ui(tmp_path / "ui") as (api, ui):
        with (ui.folder / "pipeline.yaml").open("a") as config:
            config.write(f"spark.binary: {FakeSpark(tmp_path).binary}\n")
        api.trigger("asks")
        wait_for(lambda: api.get(ASKING)["state"] == "deferred", START_TIMEOUT_S)
        assert "asks" in str(api.runs(PIPELINE)[0]["conf"])
        assert ui.exposed() == []
        if CHROMIUM is not None:
            api.await_dag(FORM)
            with trigger_page(api) as page:
                press_trigger(api, ui, page, {}, {"tables": "shop.customers", "conditions": "shop.customers: 1 = 1\n"})
                press_trigger(api, ui, page, {"action": "Restart a table"}, {"tables": "shop.orders"})
            wait_for(lambda: len(api.runs(PIPELINE)) == 3, START_TIMEOUT_S)
            confs = [str(run["conf"]) for run in api.runs(PIPELINE)]
            assert '"data-collection": "shop.customers", "filter": "1 = 1"' in confs[1]
            assert "'type': 'restart-table'" in confs[2]
            assert '{"data-collections": ["shop.orders"]}' in confs[2]
    if CHROMIUM is None:
        pytest.skip("all but the trigger form in a browser, because there is no Chromium on this machine")


@pytest.mark.long
def test_operator_waits_and_form_takes_a_snapshot(tmp_path: Path) -> None:
    with running_ui(tmp_path / "ui") as (api, ui):
        check_an_operator_that_waits(api, ui)
        if CHROMIUM is not None:
            await_suggestions(api)
            with trigger_page(api) as page:
                check_a_snapshot(api, ui, page)
    if CHROMIUM is None:
        pytest.skip("all but the trigger form in a browser, because there is no Chromium on this machine")


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_form_and_api_pause_resume_and_stop_a_snapshot(tmp_path: Path) -> None:
    with running_ui(tmp_path / "ui") as (api, ui):
        api.trigger(PIPELINE)
        api.ended(PIPELINE)
        api.mended(PIPELINE)
        await_suggestions(api)
        with trigger_page(api) as page:
            check_a_pause_and_a_stop(api, ui, page)


def check_an_operator_that_waits(api: Api, ui: Program) -> None:
    """It is deferred until the pipeline's run that carries its signal, and is its first tick, is over."""
    api.await_dag(PIPELINE)
    assert api.get(f"dags/{PIPELINE}")["is_paused"] is False
    api.trigger("asks")
    triggered = api.ended(PIPELINE)
    assert ui.exposed() == []
    assert "asks" in str(triggered["conf"])
    asked = api.ended("asks")
    assert {dag["dag_id"] for dag in api.get("dags")["dags"]} <= {PIPELINE, FORM, "asks"}, "what cannot run is shown"
    assert "DEFERRED" in str(api.get(f"{ASKING}/logs/1")), "it held a worker while it waited"
    assert (triggered["state"], asked["state"]) == ("success", "success")
    assert triggered["end_date"] <= asked["end_date"]
    assert {item["key"] for item in api.get("variables")["variables"]} == {
        *(f"db2cdc.shop.SHOP.{name}" for name in ("CUSTOMERS", "ORDERS", "ORDER_LINES")),
        "db2cdc.shop~summary",
    }


def suggested(api: Api) -> list[str]:
    """Return the tables that the form suggests once its DAG was parsed behind a tick."""
    schema = api.get(f"dags/{FORM}/details")["params"]["known_tables"]["schema"]
    return sorted(name.removeprefix("SHOP.") for name in (schema.get("values_display") or {}).values())


def await_suggestions(api: Api) -> None:
    """Wait until the form suggests the tables of the first tick."""
    api.await_dag(FORM)
    wait_for(lambda: suggested(api) == ["CUSTOMERS", "ORDERS", "ORDER_LINES"], START_TIMEOUT_S)


@contextmanager
def trigger_page(api: Api) -> Iterator[Any]:
    """Yield a page of a browser that is logged in."""
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 1400})
        page.set_default_timeout(60_000)
        page.goto(api.url)  # Airflow 3.1 leads a person who is not logged in to its home page first.
        page.get_by_role("link", name="Dags").first.wait_for()
        yield page
        browser.close()


def press_trigger(api: Api, ui: Program, page: Any, picked: Mapping[str, str], typed: Mapping[str, str]) -> str:
    """Fill in the form, press its button, and return the id of the run that it starts."""
    before = len(api.runs(FORM))
    page.goto(f"{api.url}/dags/{FORM}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    for name, choice in picked.items():
        form.locator(f"#element_{name} input").first.fill(choice)
        page.keyboard.press("Enter")
        form.locator(f"#element_{name}").get_by_text(choice, exact=True).first.wait_for()
    for name, text in typed.items():
        form.locator(f"#element_{name}").press_sequentially(text)
    assert "SHOP\\..*" in form.inner_text(), "it says which tables there are"
    page.screenshot(path=str(ui.folder / f"form-{before}.png"))
    form.get_by_role("button", name="Trigger", exact=True).last.click()
    wait_for(lambda: len(api.runs(FORM)) > before, START_TIMEOUT_S)
    return str(api.runs(FORM)[-1]["dag_run_id"])


def check_a_snapshot(api: Api, ui: Program, page: Any) -> None:
    """One table is picked, another typed, of one some rows alone are asked for."""
    picked, ticks = {"known_tables": "SHOP.ORDERS"}, len(api.runs(PIPELINE))
    run_id = press_trigger(
        api, ui, page, picked, {"tables": "shop.customers", "conditions": "shop.orders: MOD(ORDER_ID, 2) = 0\n"}
    )
    api.ended(PIPELINE, ticks + 1)
    api.mended(PIPELINE)
    assert api.ended_form(run_id)["state"] == "success", api.log(run_id)
    told = api.followed(run_id, "xcomEntries/progress?deserialize=true")["value"]
    assert told["status"] == "completed"
    # Not how many rows: of one that the writers changed meanwhile the change log has an event instead.
    assert sorted(part["table"]["name"] for part in told["tables"]) == ["CUSTOMERS", "ORDERS"]
    assert '"data-collection": "shop.orders", "filter": "MOD(ORDER_ID, 2) = 0"' in str(
        api.runs(PIPELINE)[ticks]["conf"]
    )
    assert all(part["published_chunks"] == part["chunks"] for part in told["tables"])
    assert "completed: 2 of 2 tables, 2 of 2 chunks" in api.log(run_id)
    check_the_command_line(ui, told["id"])


def check_a_pause_and_a_stop(api: Api, ui: Program, page: Any) -> None:
    """What is asked for by Airflow's API takes several ticks, and is paused, resumed and stopped on its way."""
    with (ui.folder / "pipeline.yaml").open("a") as config:
        config.write("incremental.snapshot.chunk.size: 2\nsnapshot.group.chunks: 1\nsnapshot.budget.s: 0\n")

    def tick(ask: Callable[[], str]) -> tuple[str, Any]:
        """Ask, and return the form's run, and the snapshot as it is behind the pipeline's run for it."""
        ticks = len(api.runs(PIPELINE))
        run_id = ask()
        api.ended(PIPELINE, ticks + 1)
        api.mended(PIPELINE)
        return run_id, shown(ui)["snapshots"][-1]

    def by_form(action: str) -> Callable[[], str]:
        return lambda: press_trigger(api, ui, page, {"action": action}, {})

    asked = {"tables": ["SHOP.CUSTOMERS"], "surrogate_key": "CUSTOMER_ID"}
    ticks = len(api.runs(PIPELINE))
    asked_id, snapshot = tick(lambda: api.trigger(FORM, "by_the_api", asked))
    sent, [part] = api.runs(PIPELINE)[ticks], snapshot["tables"]
    assert '"surrogate-key": "CUSTOMER_ID"' in str(sent["conf"])
    assert snapshot["status"] == "running"
    assert 0 < part["published_chunks"] < part["chunks"], part
    paused_id, paused = tick(by_form("Pause snapshots"))
    assert paused["status"] == "paused"
    resumed_id, resumed = tick(lambda: api.trigger(FORM, "resumed_by_the_api", {"action": "resume-snapshot"}))
    assert resumed["status"] == "running"
    assert resumed["tables"][0]["published_chunks"] > paused["tables"][0]["published_chunks"]
    stopped_id, stopped = tick(by_form("Stop snapshots"))
    assert stopped["status"] == "stopped"
    for run_id, state in [
        (paused_id, "success"),
        (resumed_id, "success"),
        (stopped_id, "success"),
        (asked_id, "failed"),
    ]:
        assert api.ended_form(run_id)["state"] == state, api.log(run_id)
    assert "stopped" in api.log(asked_id)


def shown(ui: Program) -> Any:
    """Return what the command line shows."""
    done = subprocess.run([ui.folder / "db2cdc", "status", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_the_command_line(ui: Program, id_: str) -> None:
    """It shows what Airflow knows of the snapshot."""
    status = shown(ui)
    assert {line["table"]["name"] for line in status["tables"] if line["offset"]} == {
        "CUSTOMERS",
        "ORDERS",
        "ORDER_LINES",
    }
    [snapshot] = [one for one in status["snapshots"] if one["id"] == id_]
    assert (snapshot["status"], len(snapshot["tables"])) == ("completed", 2)
    assert {"id": id_, "status": "done"}.items() <= status["signals"][-1].items()
