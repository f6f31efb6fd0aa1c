"""The command line in the process of the tests, without the seconds that a new process takes to import."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from airflow_provider_db2cdc.cli import main


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@contextmanager
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Yield a function that runs `db2cdc` with arguments. Signal handlers and the log level are put back after it."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["db2cdc", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.main()
        written = capsys.readouterr()
        return Done(int(ended.value.code or 0), written.out, written.err)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    level = logging.getLogger().level
    yield run
    logging.getLogger().setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)
