"""A child process whose output is read line by line, and which ends before its reader does."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from airflow_provider_db2cdc.errors import ConfigurationError

END_TIMEOUT_S = 10.0

OnLine = Callable[[str], object]


def run_child(argv: Sequence[str], env: Mapping[str, str], on_line: OnLine, timeout_s: float | None = None) -> int:
    """Run a command, pass each line of its output and errors to `on_line`, and return its exit code.

    An interrupt or an error of `on_line` first ends the command and all processes that it started. So does the end of
    `timeout_s`.

    :raises ConfigurationError: when the command cannot be run.
    """
    try:
        child = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigurationError(f"{argv[0]} cannot be run: {error.strerror}", "Correct spark.binary.") from error
    timer = None if timeout_s is None else threading.Timer(timeout_s, _kill, [child])
    try:
        if timer:
            timer.start()
        for line in child.stdout or ():
            on_line(line.rstrip("\n"))
        return child.wait()
    finally:
        if timer:
            timer.cancel()
        if child.stdout:
            child.stdout.close()
        _kill(child)


def _kill(child: subprocess.Popen[str]) -> None:
    """End a command and all processes that it started, first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, number)
        try:
            child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
