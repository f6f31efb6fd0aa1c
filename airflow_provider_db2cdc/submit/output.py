"""The cause of a failed spark-submit, found in its output."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_provider_db2cdc.cdc.document import LEASE_LOST

JOB_ERROR = re.compile(r"^(\w+Error): (.*)")
"""The line with which a job ends in an error: the error's class and its text."""

JAVA_ERROR = re.compile(
    r"^(?:Caused by: |Exception in thread \"[^\"]*\" )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)(?:: .*)?)$"
)
SUBMIT_ERROR = re.compile(r"^(?:Error|JAVA_HOME is not set|.*: (?:No space left on device|command not found))\b.*")
ENDINGS = (JOB_ERROR, JAVA_ERROR, SUBMIT_ERROR)
MAX_TEXT = 1200


def cause_of(lines: Iterable[str], code: int | None = None) -> str:
    """Return the line with the cause of a job's end: its own error, else the last error of the JVM or spark-submit."""
    if code == LEASE_LOST:
        return "the run lost the lease of its target, because it hung or could not reach the store"
    stripped = [line.strip() for line in lines]
    for ending in ENDINGS:
        matches = [match for line in stripped if (match := ending.match(line))]
        if matches:
            text = matches[-1].group(matches[-1].lastindex or 0)
            return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
    return ""
