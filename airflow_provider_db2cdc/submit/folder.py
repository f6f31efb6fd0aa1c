"""The files of a job: the folder with its spec, and the log of its errors."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_provider_db2cdc.cdc.document import PARENT_PIPE, SPEC_NAME
from airflow_provider_db2cdc.submit.bundle import cache_folder

KEPT_LOGS = 50


@contextmanager
def job_folder(spec: str) -> Iterator[Path]:
    """Yield the path of a spec's file, in a folder that only this user can read. It is removed at the end.

    The folder also has a pipe. This process holds its writing end, and the job ends when that is closed. The job so
    also ends when this process is killed.
    """
    with tempfile.TemporaryDirectory(prefix="db2cdc-") as folder:
        path = Path(folder) / SPEC_NAME.format(1)
        path.write_text(spec, encoding="utf-8")
        pipe = path.with_name(PARENT_PIPE)
        os.mkfifo(pipe, 0o600)
        # Open both ends, because the writing end cannot be opened while there is no reader.
        handle = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield path
        finally:
            os.close(handle)


def log_folder() -> Path:
    """Return the folder of error logs: $DB2CDC_LOGS, or a folder in the user's cache."""
    chosen = os.environ.get("DB2CDC_LOGS")
    return Path(chosen) if chosen else cache_folder() / "logs"


def new_error_log(pipeline: str) -> Path:
    """Return the path of a run's error log, and remove the oldest logs. The log is only written if something fails."""
    folder = log_folder()
    # If the folder cannot be made, the first write to the log reports it.
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.log"), key=os.path.getmtime)[: -KEPT_LOGS + 1]:
            old.unlink()
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return folder / f"{re.sub(r'[^A-Za-z0-9._-]', '-', pipeline)}-{now}-{os.getpid()}.log"


def keep_output(log: Path, lines: Iterable[str]) -> bool:
    """Append lines of Spark's output to a run's error log, and return whether that succeeded."""
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError:
        return False
    return True
