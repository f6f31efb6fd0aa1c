"""`db2cdc ui` as a person uses it: an operator that waits, the trigger form in a real browser, a real scheduler."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.airflow_ui import (
    CHROMIUM,
    FORM,
    NO_SERVER,
    PIPELINE,
    Api,
    backfill_form,
    choose_backfill,
    run_backfill,
    running_ui,
    trigger_page,
)
from support.fake_spark import FakeSpark
from support.program import RUN_TIMEOUT_S, START_TIMEOUT_S, Program, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(3600)]

MONTHLY = "0 0 1 * *"
"""It fires when the UI starts, and not again during the test."""

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


def test_operator_form_and_backfill_start_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick has to end, so a script that sleeps stands in for Spark. The long tests follow signals to their end."""
    monkeypatch.setenv("FAKE_SLEEP_S", "300")
    with running_ui(tmp_path / "ui", MONTHLY) as (api, ui):
        with (ui.folder / "pipeline.yaml").open("a") as config:
            config.write(f"spark.binary: {FakeSpark(tmp_path).binary}\n")
        add_asking_dag(ui)
        api.trigger("asks")
        wait_for(lambda: api.get(ASKING)["state"] == "deferred", START_TIMEOUT_S)
        assert "asks" in str(api.runs(PIPELINE)[0]["conf"])
        assert ui.exposed() == []
        if CHROMIUM is not None:
            api.await_dag(FORM)
            with trigger_page(api) as page:
                if not NO_SERVER:
                    check_a_backfill_during_other_runs(api, page)
                press_trigger(api, ui, page, {}, {"tables": "shop.customers", "conditions": "shop.customers: 1 = 1\n"})
                press_trigger(api, ui, page, {"action": "Restart a table"}, {"tables": "shop.orders"})
            wait_for(lambda: len(api.runs(PIPELINE)) == 3, START_TIMEOUT_S)
            confs = [str(run["conf"]) for run in api.runs(PIPELINE)]
            assert '"data-collection": "shop.customers", "filter": "1 = 1"' in confs[1]
            assert "'type': 'restart-table'" in confs[2]
            assert '{"data-collections": ["shop.orders"]}' in confs[2]
    if CHROMIUM is None:
        pytest.skip("all but the trigger form in a browser, because there is no Chromium on this machine")
    if NO_SERVER:
        pytest.skip(f"all but a backfill, which Airflow's SQLite does not allow: {NO_SERVER}")


def check_a_backfill_during_other_runs(api: Api, page: Any) -> None:
    """Two months of the past are run while the schedule's own run works. Then the dialog knows their results."""
    first, last = datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 4, 30, tzinfo=UTC)
    with backfill_form(api, page, PIPELINE, first, last) as form:
        choose_backfill(form, "Missing Runs", 2)
        runs = run_backfill(api, form, PIPELINE, 2)
    assert [run["logical_date"] for run in runs] == ["2025-03-01T00:00:00Z", "2025-04-01T00:00:00Z"]
    assert {run["state"] for run in runs} == {"success"}, "months before the first commit are no failure"
    assert "nothing to backfill" in plan_log(api, runs[0])
    assert any(run["state"] == "running" for run in api.all_runs(PIPELINE)), "no other run works meanwhile"
    with backfill_form(api, page, PIPELINE, first, last) as form:
        for choice, number in {"Missing Runs": 0, "Missing and Errored Runs": 0, "All Runs": 2}.items():
            choose_backfill(form, choice, number)


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
@pytest.mark.skipif(bool(NO_SERVER), reason=f"Airflow's SQLite does not allow a backfill: {NO_SERVER}")
def test_backfill_of_a_ticks_interval_is_green_and_moves_no_offset(tmp_path: Path) -> None:
    """The first tick is that of the previous hour. The second one's hour ends while the shop changes."""
    end = (datetime.now(UTC) + timedelta(minutes=3)).replace(second=0, microsecond=0)
    with running_ui(tmp_path / "ui", f"{end.minute} * * * *") as (api, ui):
        api.await_dag(PIPELINE)
        wait_for(lambda: succeeded(api, end), RUN_TIMEOUT_S)
        offsets = api.get("variables")["variables"]
        with trigger_page(api) as page:
            with backfill_form(api, page, PIPELINE, end, end) as form:
                choose_backfill(form, "All Runs", 1)
                [run] = run_backfill(api, form, PIPELINE, 1)
            assert run["state"] == "success", plan_log(api, run)
            page.goto(f"{api.url}/dags/{PIPELINE}/runs/{quote(run['dag_run_id'])}/tasks/tick.commit/xcom")
            page.get_by_role("button", name="Expand all extra JSON").click()
            page.get_by_text("SHOP.ORDERS").first.wait_for()
            page.screenshot(path=str(ui.folder / "backfill.png"))
        assert api.get("variables")["variables"] == offsets
        check_the_findings(api, run, end)


def check_the_findings(api: Api, run: Any, end: datetime) -> None:
    commit = f"dags/{PIPELINE}/dagRuns/{quote(run['dag_run_id'])}/taskInstances/tick.commit"
    report = api.get(f"{commit}/xcomEntries/return_value?deserialize=true")["value"]
    interval = [datetime.fromisoformat(report[name]) for name in ("interval_start", "interval_end")]
    assert interval == [end - timedelta(hours=1), end]
    assert sorted(report["tables"]) == ["SHOP.CUSTOMERS", "SHOP.ORDERS", "SHOP.ORDER_LINES"]
    assert all(sum(found[count] for found in report["tables"].values()) for count in ("commits", "events", "keys"))
    for found in report["tables"].values():
        assert (found["events_added"], found["rows_corrected"], found["events_only_in_log"]) == (0, 0, 0), report


def plan_log(api: Api, run: Any) -> str:
    return str(api.get(f"dags/{PIPELINE}/dagRuns/{quote(run['dag_run_id'])}/taskInstances/tick.plan/logs/1"))


def succeeded(api: Api, at: datetime) -> list[Any]:
    """Return the schedule's run of a time, once it has succeeded."""
    runs = [run for run in api.all_runs(PIPELINE) if run["state"] == "success"]
    return [run for run in runs if datetime.fromisoformat(run["logical_date"]) == at]


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


def add_asking_dag(ui: Program) -> None:
    (ui.folder / "airflow" / "dags" / "asks.py").write_text(ASKS)


def check_an_operator_that_waits(api: Api, ui: Program) -> None:
    """It is deferred until the pipeline's run that carries its signal, and is its first tick, is over."""
    add_asking_dag(ui)
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
        "db2cdc.shop~offsets",
        "db2cdc.shop~requests",
        "db2cdc.shop~summary",
    }


def suggested(api: Api) -> list[str]:
    """Return the tables that the form suggests once its DAG was parsed after a tick."""
    schema = api.get(f"dags/{FORM}/details")["params"]["known_tables"]["schema"]
    return sorted(name.removeprefix("SHOP.") for name in (schema.get("values_display") or {}).values())


def await_suggestions(api: Api) -> None:
    """Wait until the form suggests the tables of the first tick."""
    api.await_dag(FORM)
    wait_for(lambda: suggested(api) == ["CUSTOMERS", "ORDERS", "ORDER_LINES"], START_TIMEOUT_S)


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
    """Pick one table, type another, and ask for some rows only of one."""
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
        """Ask, and return the form's run, and the snapshot as it is after the pipeline's run for it."""
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
