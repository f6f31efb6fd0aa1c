"""What a case is measured by: seconds of each round, ours and the limit's, and the process's memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.spark import job


@dataclass
class Measured:
    """Seconds of each round; `ratio` is limit by ours, medians: 1 means as fast as the bare work."""

    ours_s: list[float] = field(default_factory=list)
    limit_s: list[float] = field(default_factory=list)
    goal: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How ours compares with the limit."""
        return median(self.limit_s) / median(self.ours_s) if self.limit_s else None

    def as_data(self) -> Mapping[str, Any]:
        """Return what build/bench.json keeps."""
        return {"ours_s": self.ours_s, "limit_s": self.limit_s, "ratio": self.ratio, "goal": self.goal, **self.more}


def planned(pipeline: Pipeline) -> JobSpec:
    spec = pipeline.plan()
    assert spec is not None
    return spec


def run(spec: JobSpec) -> Any:
    result = job.run(spec)
    assert not result.failed, result.failed[0].error
    return result


def timed(action: Callable[[], Any]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def note(measured: Measured, number: int, ours: float, limit: float, console: Console) -> None:
    """Keep a round's times, except the first round's: it warms both up."""
    if number:
        measured.ours_s.append(round(ours, 3))
        measured.limit_s.append(round(limit, 3))
    console.print(f"  round {number}: ours {ours:.1f} s, limit {limit:.1f} s, ratio {limit / ours:.2f}")


def high_water_kb(pid: object) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    return next((int(text.split()[1]) for text in status.read_text().splitlines() if text.startswith("VmHWM")), 0)
