"""The memory of Airflow's processes, sampled while they run."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from pathlib import Path

import psutil

from support.airflow_services import AirflowServices

INTERVAL_S = 3.0
MIB = 1 << 20
ROLES = {
    r"^\S*java .*SparkSubmit": "Spark driver (JVM)",
    r"spark_jobs/\w+\.py": "Spark driver (Python)",
    r"LocalExecutor: <idle>": "scheduler's idle worker",
    r"LocalExecutor: ": "task's supervisor",
    r"airflow worker -- [0-9a-f-]{36}": "task",
}
"""The first pattern in a process's command line says what it is. Others are the service itself, or its children."""


class MemorySampler:
    """Samples until the block ends. `peaks` holds MiB of resident memory for each role, `together` the greatest sum.

    Pages that processes share count for each of them in `peaks`, and once in `together`.
    """

    def __init__(self, services: AirflowServices) -> None:
        self._services = services
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peaks: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.together = 0

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            numbers: Counter[str] = Counter()
            shared = 0
            for process in [*self._services.processes()]:
                role = role_of(process, self._services.service_of(process))
                status = _kib(process.pid, "status", "VmHWM")
                if role and status:
                    self.peaks[role] = max(self.peaks[role], status // 1024)
                    numbers[role] += 1
                    shared += _kib(process.pid, "smaps_rollup", "Pss")
            self.together = max(self.together, shared // 1024)
            self.most |= numbers


def role_of(process: psutil.Process, service: str) -> str:
    """Return what a process of a service does. It is empty if the process has ended."""
    try:
        line = " ".join(process.cmdline())
        is_first = os.getsid(process.pid) == process.pid
    except (psutil.Error, OSError):
        return ""
    for pattern, role in ROLES.items():
        if re.search(pattern, line):
            return role
    return service if is_first else f"{service}'s child"


def _kib(pid: int, file: str, field: str) -> int:
    """Return a field of a file of /proc. It is 0 if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) if found else 0
