"""`db2cdc demo` and `db2cdc ui`: the whole way on this machine, to watch and to click through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cli.screen import screen
from airflow_provider_db2cdc.demo import run as demo
from airflow_provider_db2cdc.demo import ui as web

UNEQUAL = 1


def run(folder: Path, **options: Any) -> int:
    """Run the demo with the options of DemoOptions; return 0 only if changes flowed and every table is equal."""
    return 0 if demo.run(demo.DemoOptions(folder.resolve(), **options), screen()) else UNEQUAL


def ui(folder: Path, port: int, rows: int, schedule: str) -> None:
    """Run Airflow's UI on the shop until it is interrupted."""
    web.serve(web.UiOptions(folder.resolve(), port, rows, schedule), screen())
