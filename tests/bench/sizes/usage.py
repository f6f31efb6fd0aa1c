"""The CPU seconds and the peak memory of the processes of a block: driver, executors, cluster, source."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Mapping
from typing import Any

import psutil

from bench.measured import high_water_kb

EVERY_S = 0.5
"""Seconds between two samples. Of a process that ends between two, the rest is not counted."""

ROLES = {
    "CoarseGrainedExecutorBackend": "executors",
    "org.apache.spark.deploy.master": "cluster",
    "org.apache.spark.deploy.worker": "cluster",
    "pyspark-shell": "bench",
    "org.apache.spark.deploy.SparkSubmit": "driver",
}
"""By a part of its command, what a process is. Otherwise it is what its parent is."""


class Usage:
    """Samples the descendants of this process within a block. The processes of `source` are those of the sandbox."""

    def __init__(self, source: int) -> None:
        self._roles: dict[int, str] = {os.getpid(): "bench", source: "source"}
        self._before: dict[tuple[int, float], float] = {}
        self._cpu_s: dict[tuple[int, float], tuple[str, float]] = {}
        self._peak_kb: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Usage:
        self._sample()
        self._before = {process: cpu_s for process, (_, cpu_s) in self._cpu_s.items()}
        self._peak_kb.clear()
        self._children_s = _children_s()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        self._children_s = _children_s() - self._children_s

    def cpu_s(self) -> Mapping[str, float]:
        """Return the seconds of each role. Those of the driver are exact: this process has waited for its end."""
        totals = {"driver": self._children_s, "executors": 0.0, "source": 0.0, "cluster": 0.0}
        for process, (role, cpu_s) in self._cpu_s.items():
            if role in totals and role != "driver":
                totals[role] += cpu_s - self._before.get(process, 0.0)
        return {role: round(total, 1) for role, total in totals.items()}

    def peak_mb(self, role: str) -> int:
        """Return the greatest resident memory that one process of a role had."""
        return self._peak_kb.get(role, 0) // 1024

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._sample()

    def _sample(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                times, role = process.cpu_times(), self._role(process)
                self._cpu_s[process.pid, process.create_time()] = role, times.user + times.system
                self._peak_kb[role] = max(self._peak_kb.get(role, 0), high_water_kb(process.pid))
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                continue

    def _role(self, process: Any) -> str:
        command = " ".join(process.cmdline())
        role = next((role for part, role in ROLES.items() if part in command), "")
        self._roles[process.pid] = role or self._roles.get(process.pid) or self._roles.get(process.ppid(), "bench")
        return self._roles[process.pid]


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
