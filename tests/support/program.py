"""A command of `db2cdc` as a user starts and stops it, and the API of its Airflow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
START_TIMEOUT_S, RUN_TIMEOUT_S, END_TIMEOUT_S = 300, 900, 90
LOG_LINES = 60


class Program:
    """A command of `db2cdc` in its own process group, as a shell would start it."""

    def __init__(self, folder: Path, *arguments: str, python: str = sys.executable) -> None:
        self.folder = folder
        self._log = folder.parent / "screen"
        self._descendants: set[psutil.Process] = set()
        with self._log.open("w") as screen:
            self.process = subprocess.Popen(
                [python, "-m", "airflow_provider_db2cdc.cli.main", *arguments, "--folder", str(folder)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=screen,
                stderr=screen,
                process_group=0,
                # Tests that run in the background ignore Ctrl-C, and so do the processes that they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def screen(self) -> str:
        """What the command has printed."""
        return self._log.read_text()

    @property
    def url(self) -> str:
        """The URL of its Airflow."""
        [url] = set(re.findall(r"Airflow is at (http://127\.0\.0\.1:\d+)", self.screen))
        return str(url)

    def await_text(self, text: str, timeout_s: float) -> None:
        """Wait until the command has printed a text."""
        wait_for(lambda: text in self.screen or self.process.poll() is not None, timeout_s)
        assert text in self.screen, self.screen

    def interrupt(self) -> int:
        """Press Ctrl-C and return the command's exit code."""
        self._remember_descendants()
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(END_TIMEOUT_S)

    def left(self) -> list[str]:
        """Return the command lines of running processes that work in its folder, name it, or descend from it."""
        return [line for _, line in self._processes()]

    def exposed(self) -> list[str]:
        """Return addresses other than 127.0.0.1 where these processes listen, each with its command line."""
        found = []
        for process, line in self._processes():
            with suppress(psutil.Error):
                ends = [one.laddr for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
                found += [f"{end.ip}:{end.port} {line}" for end in ends if end.ip.removeprefix("::ffff:") != HOST]
        return found

    def _processes(self) -> Iterator[tuple[psutil.Process, str]]:
        self._remember_descendants()
        for process in psutil.process_iter():
            try:
                line, place = " ".join(process.cmdline()), process.cwd()
            except psutil.Error:
                continue
            here = str(self.folder) in line or place.startswith(str(self.folder))
            if process.pid != os.getpid() and (here or process in self._descendants):
                yield process, line

    def _remember_descendants(self) -> None:
        """Add those of now: once the command has ended, nothing says that they were its own."""
        with suppress(psutil.Error):
            self._descendants |= {*psutil.Process(self.process.pid).children(recursive=True)}


def wait_for(condition: Callable[[], Any], timeout_s: float) -> Any:
    """Wait until the condition returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.3)
    raise AssertionError(f"nothing within {timeout_s} s")


@contextmanager
def started(folder: Path, *arguments: str, python: str = sys.executable) -> Iterator[Program]:
    """Start a command, and end it with the block."""
    program = Program(folder, *arguments, python=python)
    try:
        yield program
    except BaseException as error:
        for log in sorted((folder / "logs").glob("*.log")):
            error.add_note("\n".join([f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-LOG_LINES:]]))
        raise
    finally:
        if program.process.poll() is None:
            program.process.terminate()
            program.process.wait(END_TIMEOUT_S)


def find(url: str, token: str) -> Any:
    """Return the API's answer, None if there is nothing at the URL."""
    try:
        return call(url, token)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def is_made(url: str, token: str, body: Any) -> bool:
    """Create something that has an id. Return False if a busy Airflow does not answer. Then repeat the call."""
    try:
        call(url, token, body)
    except TimeoutError:
        return False
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.CONFLICT and error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
            error.add_note(error.read().decode(errors="replace"))
            raise
        return error.code == HTTPStatus.CONFLICT
    return True


def call(url: str, token: str = "", body: Any = None, method: str | None = None) -> Any:
    """Return the API's answer."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60) as answer:
        return json.load(answer)
