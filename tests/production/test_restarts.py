"""Three pipelines on one schedule, while each process of Airflow is killed and started again.

`make production` makes it larger by DB2CDC_PRODUCTION_TABLES (of each pipeline), DB2CDC_PRODUCTION_EVERY_MINUTES (from
tick to tick) and DB2CDC_PRODUCTION_RATE (transactions of the writer per second).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.airflow_ui import NO_SERVER
from support.production import Production, Size, running_production
from support.production_report import cost_of_runs, differences, holes, missing_offsets, run_states, snapshot_ends
from support.resident_memory import MemorySampler

pytestmark = pytest.mark.timeout(4 * 3600)

SHORT_S, LONG_S = 5, 40


def size() -> Size:
    """Return the size that the environment asks for."""
    given = os.environ
    return Size(
        int(given.get("DB2CDC_PRODUCTION_TABLES", "2")),
        int(given.get("DB2CDC_PRODUCTION_EVERY_MINUTES", "2")),
        float(given.get("DB2CDC_PRODUCTION_RATE", "4")),
    )


@pytest.mark.skipif(bool(NO_SERVER), reason=f"Airflow's metadata need PostgreSQL: {NO_SERVER}")
def test_restarts_lose_no_offset_and_no_signal_and_leave_no_task(tmp_path: Path) -> None:
    report: dict[str, Any] = {"size": vars(size())}
    try:
        with running_production(tmp_path / "production", size()) as production:
            report["diary"] = production.diary
            with MemorySampler(production.services) as memory:
                report |= {"memory_mib": memory.peaks, "processes": memory.most}
                production.writer.start()
                disturb(production)
                production.end()
            report |= {"memory_together_mib": memory.together, **findings(production)}
    finally:
        keep(report)
    assert report["wrong"] == {}


def disturb(production: Production) -> None:
    """Kill each service while a job runs, or while a plan waits in the triggerer. Each time wait for another try."""
    with production.paused_capture():
        production.await_task(".plan", "deferred", "south")
        production.restart("triggerer", SHORT_S)
    production.ask("north")
    production.await_job()
    production.restart("api-server", SHORT_S)
    production.await_job()
    production.restart("dag-processor", SHORT_S)
    production.ask("west")
    production.await_job()
    killed_at = production.restart("scheduler", SHORT_S, production.services.kill_first)
    production.await_job(killed_at)
    production.ask("north")
    killed_at = production.restart("scheduler", SHORT_S)
    production.await_job(killed_at)
    production.ask("south")
    production.restart("api-server", LONG_S)


def findings(production: Production) -> dict[str, Any]:
    """Return what is wrong, and what is worth knowing."""
    metadata = production.metadata
    states = run_states(metadata)
    checks: Mapping[str, Any] = {
        "tables that differ": differences(production),
        "tables without an offset": missing_offsets(production),
        "asset events with holes": holes(metadata),
        "signals without their snapshot": snapshot_ends(production),
        "tasks that are stuck": [str(task) for task in metadata.unfinished()],
        "runs that failed": {dag: ends["failed"] for dag, ends in states.items() if ends["failed"]},
    }
    return {
        "wrong": {name: found for name, found in checks.items() if found},
        "runs": {dag: dict(ends) for dag, ends in states.items()},
        "tries_before_the_last": [str(task) for task in metadata.earlier_tries()],
        "rows_and_bytes_of_a_run": {kind: cost_of_runs(metadata, kind) for kind in ("success", "skipped")},
        "xcoms_of_north": metadata.xcoms("north_cdc"),
        "changes": production.writer.changes,
        "lost_transactions": production.writer.lost,
    }


def keep(report: Mapping[str, Any]) -> None:
    """Print the report, and write it where DB2CDC_PRODUCTION_REPORT says."""
    text = json.dumps(report, indent=1, default=str)
    sys.stdout.write(f"{text}\n")
    if path := os.environ.get("DB2CDC_PRODUCTION_REPORT"):
        Path(path).write_text(text)
