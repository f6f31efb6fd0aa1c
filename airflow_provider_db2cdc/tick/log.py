"""Progress and error texts of a job: names, counts and codes, never row values."""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from collections.abc import Callable
from threading import Lock

from airflow_provider_db2cdc.cdc.document import PROGRESS_MARK
from airflow_provider_db2cdc.cdc.snapshot.progress import describe_applied
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.failpoint import FAILPOINT_FRAME
from airflow_provider_db2cdc.tick.cause import explained, keep_stack, root_cause, text_of


def log_progress(text: str) -> None:
    """Print one progress line. The Airflow side shows it in the task's log.

    Names and messages may come from outside. So line breaks become spaces, and characters that cannot be encoded are
    escaped.
    """
    line = " ".join(text.splitlines()).encode("utf-8", "backslashreplace").decode("utf-8")
    sys.stdout.write(f"{PROGRESS_MARK}{line}\n")
    sys.stdout.flush()


def applied_reporter(tables: int) -> Callable[[TableId], None]:
    """Return a function that logs a table as applied, with the number of applied tables and the time left.

    Several threads may call it at once. If `tables` is 1, it logs nothing.
    """
    begun, done, turn = time.monotonic(), itertools.count(1), Lock()

    def report(table: TableId) -> None:
        if tables > 1:
            with turn:
                log_progress(f"table={table} applied: {describe_applied(next(done), tables, time.monotonic() - begun)}")

    return report


def describe(error: BaseException) -> str:
    """Return an error as one line: our own text, or a foreign error's root cause. A foreign error's stack is kept."""
    if isinstance(error, Db2CdcError):
        return str(error)
    if is_concurrent_write(error):
        return (
            "another run wrote this batch at the same moment, so this one wrote nothing. "
            "Let the other finish; the next tick continues from there."
        )
    text = str(as_own(error))
    return f"{text}{keep_stack(text, error)}"


def as_own(error: BaseException) -> Db2CdcError:
    """Return an error as one of ours: with a remedy if its meaning is known, else with its root cause."""
    if isinstance(error, Db2CdcError):
        return error
    text = text_of(error)
    return explained(error, text) or Db2CdcError(f"{root_cause(error, text)}.")


def is_concurrent_write(error: BaseException) -> bool:
    """Return whether Delta refused a write because another writer has committed the same transaction id meanwhile."""
    return any(name in str(error) for name in ("ConcurrentTransaction", "DELTA_CONCURRENT_TRANSACTION"))


def log_stack(error: BaseException) -> None:
    """Print the last four frames of an error's stack, without its text, which may hold row values."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name != FAILPOINT_FRAME][-4:]
    log_progress(
        "  at " + " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    )


def now_ms() -> int:
    """Return the current time of this machine in epoch milliseconds."""
    return int(time.time() * 1000)
