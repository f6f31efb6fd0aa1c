"""What a job finds beside its arguments: the folder of its spec, and the log of what fails in it."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_provider_db2cdc.cdc.job import PARENT_PIPE
from airflow_provider_db2cdc.submit.bundle import cache_folder

KEPT_LOGS = 50


@contextmanager
def job_folder(spec: str) -> Iterator[Path]:
    """Yield the path of a spec's file, in a folder that only this user can read and that is removed at the end.

    The folder also has a pipe whose writing end this process holds: the job ends when it is closed, so also when this
    process is killed.
    """
    with tempfile.TemporaryDirectory(prefix="db2cdc-") as folder:
        path = Path(folder) / "spec.json"
        path.write_text(spec, encoding="utf-8")
        pipe = path.with_name(PARENT_PIPE)
        os.mkfifo(pipe, 0o600)
        # Both ends: there is no reader yet to open the writing end for.
        handle = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield path
        finally:
            os.close(handle)


def log_folder() -> Path:
    """Return where stacks of failures are kept: $DB2CDC_LOGS, or a folder in the user's cache."""
    chosen = os.environ.get("DB2CDC_LOGS")
    return Path(chosen) if chosen else cache_folder() / "logs"


def new_error_log(pipeline: str) -> Path:
    """Return the path of a run's error log, which is written only when something fails; remove the oldest ones."""
    folder = log_folder()
    # A folder that cannot be made is told by whoever has a stack to keep.
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.log"), key=os.path.getmtime)[: -KEPT_LOGS + 1]:
            old.unlink()
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return folder / f"{re.sub(r'[^A-Za-z0-9._-]', '-', pipeline)}-{at}-{os.getpid()}.log"


def keep_output(log: Path, lines: Iterable[str]) -> bool:
    """Add lines of Spark's output to a run's error log, and return whether they could be kept."""
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError:
        return False
    return True
