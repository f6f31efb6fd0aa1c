"""What a job says while it runs and when something fails: names, counts and codes, never row values."""

from __future__ import annotations

import itertools
import re
import sys
import time
import traceback
from collections.abc import Callable
from threading import Lock

from pyspark.errors import PySparkException

from airflow_provider_db2cdc.cdc.job import PROGRESS_MARK
from airflow_provider_db2cdc.cdc.progress import describe_applied
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.spark.delta import is_overtaken

DB2_CODES = re.compile(r"SQLCODE[=:]\s*(-?\d+).{0,40}?SQLSTATE[=:]\s*(\w{5})", re.DOTALL)
JAVA_CLASS = re.compile(r"\b(?:[a-z]\w*\.){2,}([A-Z]\w*(?:Exception|Error))\b")


def say(text: str) -> None:
    """Print one progress line, which the Airflow side shows in the task's log.

    Names and messages may come from outside: no text of theirs becomes a line of its own, or cannot be written.
    """
    line = " ".join(text.splitlines()).encode("utf-8", "backslashreplace").decode("utf-8")
    sys.stdout.write(f"{PROGRESS_MARK}{line}\n")
    sys.stdout.flush()


def telling_applied(tables: int) -> Callable[[TableId], None]:
    """Return what says of a table that its part of a batch is applied, how many are, and about how long the rest takes.

    Tables that are applied side by side may call it at once. Where there is but one, nothing is said.
    """
    begun, done, turn = time.monotonic(), itertools.count(1), Lock()

    def tell(table: TableId) -> None:
        if tables > 1:
            with turn:
                say(f"table={table} applied: {describe_applied(next(done), tables, time.monotonic() - begun)}")

    return tell


def describe(error: BaseException) -> str:
    """Return what an error is in a line: our own text, or class and codes of a foreign one."""
    if isinstance(error, Db2CdcError):
        return str(error)
    text = str(error)
    if is_overtaken(error):
        return (
            "another run wrote this batch at the same moment, so this one wrote nothing. "
            "Let the other finish; the next tick goes on from there."
        )
    if "Permission denied" in text or "AccessControlException" in text:
        return "the target cannot be written: permission denied. Grant the Spark job's user write access to it."
    names = [type(error).__name__, *dict.fromkeys(JAVA_CLASS.findall(text))]
    codes = [f"SQLCODE {code} SQLSTATE {state}" for code, state in DB2_CODES.findall(text)[:1]]
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    parts = [" <- ".join(names[:4]), *codes, *([f"condition {condition}"] if condition else [])]
    return "; ".join(parts) + ". The Spark driver's own log has the stack."


def trace(error: BaseException) -> None:
    """Print where an error came from: frames only, because its text may hold row values."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    say("  at " + " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames)))
