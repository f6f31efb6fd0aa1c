"""A program that the demo starts in a new session, and ends together with all processes that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

END_TIMEOUT_S = 8.0


class Child:
    """A running program. It reads the lines of `tell`. Its output goes to `log`, or to `process.stdout` without one.

    As a context manager it ends with the block. Ctrl-C does not reach it, so the process that started it has to end it.
    If that one is killed, the kernel ends it. Root can start it as another `user`.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path, log: Path | None = None, user: str = ""
    ) -> None:
        with contextlib.ExitStack() as stack:
            output = subprocess.PIPE if log is None else stack.enter_context(log.open("ab"))
            self.process = subprocess.Popen(
                [*_setpriv(user), *argv],
                env=dict(env),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def tell(self, line: str) -> None:
        """Write a line to its standard input. If it has ended, nothing happens."""
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(f"{line}\n".encode())
                self.process.stdin.flush()

    def hang_up(self, timeout_s: float) -> None:
        """Close its standard input, and wait for it to end by itself. It may still run afterwards."""
        if self.process.stdin:
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)

    def end(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """End it and every process that it started, after the time limit by force. A second call does nothing."""
        family = _family(self.process.pid)
        if self.running:
            self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        remaining = {*family, *_family(self.process.pid)}
        _each(remaining, psutil.Process.terminate)
        _, stubborn = psutil.wait_procs(remaining, timeout_s / 2)
        last = {*stubborn, *_family(self.process.pid)}
        _each(last, psutil.Process.kill)
        psutil.wait_procs(last, timeout_s)
        self.process.wait(timeout_s)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()

    def kill(self) -> None:
        """Kill it and every process that it started at once, as if the machine lost power."""
        _each(_family(self.process.pid), psutil.Process.kill)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _setpriv(user: str) -> list[str]:
    """Return the start of a command line. It is empty outside Linux, where a killed program leaves its children."""
    program = shutil.which("setpriv")
    if program is None:
        return []
    other = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    return [program, *other, "--pdeathsig=TERM"]


def _family(pid: int) -> set[psutil.Process]:
    """Return the process, its descendants, and the processes of its session whose parent was killed."""
    family: set[psutil.Process] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        family |= {root, *root.children(recursive=True)}
    return family | {process for process in psutil.process_iter() if _session(process.pid) == pid}


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _each(processes: set[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            act(process)
