"""Airflow as it runs in production: its services are separate processes on PostgreSQL, and a test can kill each one."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from airflow_provider_db2cdc.demo.child import Child
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.demo.ui import SERVICES
from support.program import START_TIMEOUT_S, wait_for

MARK = "DB2CDC_TEST_SERVICE"
"""A variable in the environment of each service. The processes that the service starts inherit it."""

PROBE_TIMEOUT_S = 5
FIRST = "api-server"
COMMANDS: Mapping[str, tuple[str, ...]] = {name: (name, *arguments) for name, arguments in SERVICES.items()}


class AirflowServices:
    """Airflow's processes, each with a log of its own. As a context manager it ends them with the block.

    `commands` names the services and their arguments of `airflow`. `python` is that of another environment.
    """

    def __init__(
        self,
        home: AirflowHome,
        environment: Mapping[str, str],
        commands: Mapping[str, tuple[str, ...]] = COMMANDS,
        python: str = sys.executable,
    ) -> None:
        self.home = home
        self.environment = {**environment, MARK + "S": str(home.folder)}
        self._commands = commands
        self._python = python
        self._children: dict[str, Child] = {}
        self._sessions: dict[int, str] = {}
        self._ending = ExitStack()

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self.environment["AIRFLOW__API__BASE_URL"]

    def start(self, name: str) -> None:
        """Start a service. It does not answer yet."""
        argv = [self._python, "-m", "airflow", *self._commands[name]]
        child = Child(argv, {**self.environment, MARK: name}, self.home.home, self.log(name))
        self._children[name] = self._ending.enter_context(child)
        self._sessions[child.process.pid] = name

    def kill(self, name: str) -> None:
        """Kill a service and all processes that it started, as the end of a container does."""
        for process in [*self.processes(name)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._children[name].process.wait()

    def kill_first(self, name: str) -> None:
        """Kill only the process that was started. Processes that it started continue without a parent."""
        self._children[name].process.kill()
        self._children[name].process.wait()

    def processes(self, name: str = "") -> Iterator[psutil.Process]:
        """Return the running processes of a service, or of all services, those of its earlier starts too."""
        for process in psutil.process_iter():
            if (found := self.service_of(process)) and name in ("", found):
                yield process

    def service_of(self, process: psutil.Process) -> str:
        """Return the service that a process belongs to, or an empty text.

        A process that sets its title overwrites its environment, and a job may have a session of its own.
        """
        with suppress(psutil.Error, OSError):
            if found := self._sessions.get(os.getsid(process.pid)):
                return found
            environ = process.environ()
            if environ.get(MARK + "S") == str(self.home.folder):
                return environ[MARK]
        return ""

    def log(self, name: str) -> Path:
        """Return the file of a service's output. It has that of all its starts."""
        return self.home.logs / f"{name}.log"

    def check(self) -> None:
        """Check that all services run."""
        ended = [name for name, child in self._children.items() if not child.running]
        assert not ended, f"{ended} ended: read {self.home.logs}"

    def await_answer(self) -> None:
        """Wait until the API server answers."""

        def answers() -> bool:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/api/v2/version", timeout=PROBE_TIMEOUT_S):
                return True
            return False

        wait_for(answers, START_TIMEOUT_S)

    def __enter__(self) -> AirflowServices:
        """Start the API server first. A task that it does not answer loses a try."""
        try:
            for name in sorted(self._commands, key=lambda name: name != FIRST):
                self.start(name)
                if name == FIRST:
                    self.await_answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()
        # Those whose parent a test has killed.
        for process in [*self.processes()]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
