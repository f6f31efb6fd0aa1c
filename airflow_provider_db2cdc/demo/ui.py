"""Airflow's own UI on the sandbox, the shop and its writers. Airflow's scheduler runs the shipped DAG."""

from __future__ import annotations

import secrets
import socket
import sys
import time
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_db2cdc.cli.screen import Console
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.demo.command import write_command
from airflow_provider_db2cdc.demo.services.airflow_home import DAG_ID, AirflowHome
from airflow_provider_db2cdc.demo.stage import Stage, StageOptions, describe, open_stage
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError
from airflow_provider_db2cdc.sandbox.server.state import HOST

SERVICES = {
    "api-server": (),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
"""What is started, and how: logs would be served at all of the machine's addresses; here they are read as files."""

WITHOUT_SERVER = (
    "NO BACKFILLS: Airflow's metadata are in SQLite, where Airflow creates no backfill while its scheduler runs. "
    "The reason why PostgreSQL does not hold them is above. Everything else works."
)

RATE = 2.0
START_TIMEOUT_S = 300.0
PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class UiOptions:
    """Where it listens (`port` 0 takes a free one), and how often the DAG runs (`none`: only by hand)."""

    folder: Path
    port: int = 0
    rows: int = 4000
    schedule: str = "*/2 * * * *"


def serve(options: UiOptions, console: Console) -> None:
    """Run it until it is interrupted, then end everything that it started.

    Raises:
        ConfigurationError: the port is taken.
        Db2CdcError: a service of Airflow ended, or does not answer.
    """
    port = free_port(options.port)
    board = Board(console)
    wanted = StageOptions(options.folder, options.rows, RATE, server=True)
    with board, open_stage(wanted, board) as stage:
        with board.step("Airflow's API server, scheduler, DAG processor and triggerer"):
            services = _start(stage, port, options.schedule)
            _await_answer(services, f"http://{HOST}:{port}/api/v2/monitor/health", stage.home)
        _tell(console, stage, port, options)
        with board.step(f"runs until Ctrl-C: http://{HOST}:{port}"):
            while True:
                time.sleep(1)
                _check(services, stage.home)
                stage.writers.check()
                if console.is_terminal:
                    board.tell(describe(stage.writers))


def _start(stage: Stage, port: int, schedule: str) -> dict[str, Child]:
    env = {**stage.home.environment(stage.sandbox, schedule), **service_settings(port)}
    return {name: stage.ending.enter_context(_service(stage.home, name, env)) for name in SERVICES}


def service_settings(port: int) -> dict[str, str]:
    """Return Airflow's settings for services of this machine, whose API server listens at a port."""
    url = f"http://{HOST}:{port}"
    return {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }


def _service(home: AirflowHome, name: str, env: dict[str, str]) -> Child:
    return Child([sys.executable, "-m", "airflow", name, *SERVICES[name]], env, home.home, home.logs / f"{name}.log")


def _await_answer(services: dict[str, Child], url: str, home: AirflowHome) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        _check(services, home)
        try:
            with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S):
                return
        except OSError:
            time.sleep(0.5)
    raise Db2CdcError(f"Airflow did not answer within {START_TIMEOUT_S:.0f} s", f"Read {home.logs}.")


def _check(services: dict[str, Child], home: AirflowHome) -> None:
    for name, service in services.items():
        if not service.running:
            raise Db2CdcError(f"airflow {name} ended", f"Read {home.logs / name}.log.")


def free_port(wanted: int) -> int:
    """Return the port if it is free, or a free one for 0."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            raise ConfigurationError(
                f"port {wanted} cannot be had: {error.strerror}", "Give another --port."
            ) from error
        return int(probe.getsockname()[1])


def _tell(console: Console, stage: Stage, port: int, options: UiOptions) -> None:
    url, home = f"http://{HOST}:{port}", stage.home
    when = "only when you trigger it" if options.schedule == "none" else f"on schedule {options.schedule}"
    lines = [
        "",
        f"Airflow is at {url} (no login; everyone on this machine is an admin)",
        f"  {url}/dags/{DAG_ID}   the DAG: it runs {when}; trigger it for a tick of your own",
        f"  {url}/dags/{DAG_ID}   the Backfill tab of its Trigger dialog checks and repairs intervals of the past",
        f"  {url}/dags/{DAG_ID}_snapshot   its Trigger button asks for a snapshot: pick tables, kind, conditions",
        "  its grid: the tasks plan, apply, commit and outcome; the logs of apply and commit show each table,",
        "  the XCom of plan is the whole plan, that of apply its result",
        f"  {url}/variables   the offsets: one JSON document with a line for each table",
        f"  {url}/assets   an asset for each table, with an event for each run that changed it",
        f"{write_command(home, stage.sandbox)} status   the same at the command line: offsets, lag, snapshots",
        f"The writers continue. The Delta tables are in {home.lake}, all logs in {home.logs}.",
        "",
    ]
    for text in lines:
        console.print(text, soft_wrap=True)
    if home.on_sqlite:
        console.print(f"{WITHOUT_SERVER}\n", style="bold red", soft_wrap=True)
