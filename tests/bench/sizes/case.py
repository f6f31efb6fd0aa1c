"""A case: a table is filled and snapshotted, then changed, and the changes are applied. Each phase is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.on_cluster import ClusterTicks
from support.pipeline import Pipeline
from support.shapes import Shape, change, fill

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from bench.stage import Stage

from .compare import check_equal
from .usage import Usage
from .work import MB, work

DRIVER_MEMORY = "2g"
"""Executors have 1g, as `ClusterTicks` sets it."""

CAPTURE_TIMEOUT_S = 1200.0
STEPS_AT_ONCE = 20
"""Steps of changes until capture has to take them: its work grows with what it has not taken."""


@dataclass(frozen=True)
class Case:
    """A table's shape, its rows, and how many changes follow."""

    shape: Shape
    rows: int
    changes: int
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """What a case runs on: the stage, the master's URL, and who gets each line of a driver's output."""

    stage: Stage
    master: str
    on_line: Callable[[str], object]

    def run(self, case: Case) -> dict[str, Any]:
        """Run both phases and return their figures. A phase that fails ends the case, and says why."""
        pipeline = self.stage.pipeline()
        pipeline.properties = case.properties
        started = time.monotonic()
        table = fill(pipeline, "T", case.rows, case.shape)
        pipeline.captured()
        figures: dict[str, Any] = {"rows": case.rows, "fill (s)": round(time.monotonic() - started)}
        figures["snapshot"] = self._phase(pipeline, table, "snapshot")
        if case.changes and "failed" not in figures["snapshot"]:
            _change(pipeline, table, case)
            figures |= {"changes": case.changes, "change phase": self._phase(pipeline, table, "changes")}
        return figures

    def _phase(self, pipeline: Pipeline, table: TableId, name: str) -> dict[str, Any]:
        ticks = ClusterTicks(pipeline, self.master, {"spark.driver.memory": DRIVER_MEMORY})
        ticks.events = pipeline.folder / f"events of {name}"
        ticks.events.mkdir()
        figures: dict[str, Any] = {}
        started = time.monotonic()
        with Usage(self.stage.sandbox.state.pid) as usage:
            try:
                figures["ticks"] = ticks.to_its_end(self.on_line)
            except Exception as error:
                figures["failed"] = f"{type(error).__name__}: {error}"
        figures["wall (s)"] = round(time.monotonic() - started)
        figures |= {f"CPU of {role} (s)": cpu_s for role, cpu_s in usage.cpu_s().items()}
        figures |= {f"peak of {role} (MB)": usage.peak_mb(role) for role in ("driver", "executors")}
        figures |= work(ticks.events) | _sizes(pipeline, table)
        if "failed" not in figures:
            figures["equal rows"] = check_equal(pipeline, table)
        return figures


def _change(pipeline: Pipeline, table: TableId, case: Case) -> None:
    def await_capture(step: int = -1) -> None:
        if step % STEPS_AT_ONCE == STEPS_AT_ONCE - 1:
            await_captured(pipeline.writer, CAPTURE_TIMEOUT_S)

    change(pipeline, table, case.shape, case.changes, await_capture)
    await_capture()


def _sizes(pipeline: Pipeline, table: TableId) -> dict[str, int]:
    layout = Layout(pipeline.target)
    places = {"change log (MB)": layout.changes(table), "state (MB)": layout.state(table)}
    return {name: round(_bytes(Path(place.name)) / MB) for name, place in places.items()}


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
