"""The sandbox as a process of its own, and `Sandbox`, the handle that starts, finds and stops it."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.sandbox.server.derby import end_orphans
from airflow_provider_db2cdc.sandbox.server.jdk import find_jars
from airflow_provider_db2cdc.sandbox.server.state import (
    BANNER,
    DEFAULT_FOLDER,
    SandboxOptions,
    SandboxState,
    acquire_lock,
    read_state,
    running_state,
    write_state,
)
from airflow_provider_db2cdc.sandbox.server.supervisor import Supervisor, derby_home, probe
from airflow_provider_db2cdc.source.driver import connect

log = logging.getLogger(__name__)

LOG_FILE = "service.log"
_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 30.0
_LOCK_TIMEOUT_S = 5.0
_SWITCH_INTERVAL_S = 0.0005  # the shim's copying threads must not wait 5 ms a buffer for a busy capture agent


class SandboxError(Db2CdcError):
    """The sandbox cannot be started, found or stopped."""


class Sandbox:
    """A running sandbox. As a context manager it is stopped at the end."""

    def __init__(self, folder: Path, state: SandboxState, process: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self.state = state
        self._process = process

    @classmethod
    def start(
        cls,
        folder: Path | str = DEFAULT_FOLDER,
        options: SandboxOptions | None = None,
        timeout_s: float = _START_TIMEOUT_S,
        **option_values: Any,
    ) -> Sandbox:
        """Start a sandbox in its own process group and wait until it answers.

        One that already runs in the folder is returned as it is, with the options it has. Options are given as
        `SandboxOptions` or as its fields by name.

        Raises:
            SandboxError: it did not answer in time; nothing is left running.
            DerbyError: Derby's jars are not there.
        """
        folder = Path(folder).resolve()
        if running := running_state(folder):
            return cls(folder, running)._await_ready(timeout_s)
        chosen = options or SandboxOptions(**option_values)
        request_start(folder, chosen)
        started = cls(folder, SandboxState(chosen), _spawn(folder))
        try:
            return started._await_ready(timeout_s)
        except BaseException:  # an interrupt: the caller has no handle yet to stop it
            started.stop(5)
            raise

    @classmethod
    def find(cls, folder: Path | str = DEFAULT_FOLDER) -> Sandbox:
        """Return the sandbox that runs in this folder.

        Raises:
            SandboxError: none runs there.
        """
        folder = Path(folder).resolve()
        state = running_state(folder)
        if state is None:
            raise SandboxError(f"no sandbox runs in {folder}", f"Start one with `db2cdc sandbox up --dir {folder}`.")
        return cls(folder, state)

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.state.port

    @property
    def user(self) -> str:
        """The user to connect as."""
        return self.state.options.user

    @property
    def password(self) -> str:
        """The user's password."""
        return self.state.options.password

    @property
    def database(self) -> str:
        """The database's name."""
        return self.state.options.database

    def dsn(self) -> str:
        """The connection string for ibm_db."""
        return self.state.dsn

    def jdbc_url(self) -> str:
        """The URL for IBM's JDBC driver; user and password go into the connection's properties."""
        return self.state.jdbc_url

    def connect(self) -> Any:
        """Return a new DB-API connection, autocommit off."""
        return connect(self.state.dsn)

    def health(self) -> str | None:
        """Run one statement; return None, or why it did not work."""
        return probe(self.state.dsn)

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Stop it cleanly, after the time limit by force; stopping a stopped sandbox does nothing."""
        if pid := self._service_pid():
            _signal(pid, signal.SIGTERM)
            if not self._wait_until_ended(timeout_s):
                log.warning("sandbox does not stop and is killed: pid=%s", pid)
                _kill_group(pid)
                self._wait_until_ended(5)
        if self._process:
            self._process.wait(5)
        end_orphans(derby_home(self.folder))

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_ready(self, timeout_s: float) -> Sandbox:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process and self._process.poll() is not None:
                self.stop(5)
                raise SandboxError(f"the sandbox ended while starting: {self._log_tail()}", self._log_hint())
            state = running_state(self.folder)
            if state and state.ready:
                self.state = state
                return self
            time.sleep(0.1)
        self.stop(5)
        raise SandboxError(f"the sandbox did not answer within {timeout_s:.0f} s: {self._log_tail()}", self._log_hint())

    def _service_pid(self) -> int | None:
        if self._process and self._process.poll() is None:
            return self._process.pid
        state = running_state(self.folder)
        return state.pid if state and state.pid else None

    def _wait_until_ended(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._service_pid() is None:
                return True
            time.sleep(0.05)
        return False

    def _log_tail(self) -> str:
        """The last line of the service's log, which names what failed."""
        path = self.folder / LOG_FILE
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return lines[-1] if lines else "it logged nothing"

    def _log_hint(self) -> str:
        return f"Read {self.folder / LOG_FILE}."


def run(folder: Path, stop: threading.Event | None = None) -> None:
    """Run the service of this folder in this process until SIGTERM or SIGINT (or `stop`).

    Raises:
        SandboxError: another service runs in the folder, or the folder holds no options.
    """
    lock = _await_lock(folder)
    state = read_state(folder)
    if state is None:
        raise SandboxError(f"{folder} holds no sandbox", f"Start one with `db2cdc sandbox up --dir {folder}`.")
    ended = stop or threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
    with contextlib.closing(lock):
        Supervisor(folder, state.options).run(ended)


def request_start(folder: Path, options: SandboxOptions) -> None:
    """Write the options that the folder's next service runs with; the folder's last port stays known.

    Raises:
        SandboxError: a service runs in the folder.
        DerbyError: Derby's jars are not there.
    """
    jars = str(find_jars(Path(options.jars) if options.jars else None))
    with contextlib.closing(_await_lock(folder)):
        earlier = read_state(folder) or SandboxState()
        write_state(folder, SandboxState(replace(options, jars=jars), port=earlier.port))


def main(arguments: list[str] | None = None) -> int:
    """Run the service: `python -m airflow_provider_db2cdc.sandbox.server.service --dir D`."""
    parser = argparse.ArgumentParser(description=BANNER)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="the sandbox's folder")
    folder = parser.parse_args(arguments).dir.resolve()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        run(folder)
    except Exception:
        log.exception("sandbox ended")
        return 1
    return 0


def _spawn(folder: Path) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    with (folder / LOG_FILE).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_provider_db2cdc.sandbox.server.service", "--dir", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )


def _await_lock(folder: Path) -> IO[str]:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while time.monotonic() < deadline:
        if lock := acquire_lock(folder):
            return lock
        time.sleep(0.05)
    raise SandboxError(f"a sandbox runs in {folder}", f"Stop it with `db2cdc sandbox down --dir {folder}` first.")


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_group(pid: int) -> None:
    """Kill the service's whole process group, or only a service that runs in the foreground of another group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
