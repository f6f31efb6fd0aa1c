"""What spark-submit's output says of why it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable

JOB_ERROR = re.compile(r"^(\w+Error): (.*)")
"""How the job ends with an error: its kind, and its text."""

JAVA_ERROR = re.compile(
    r"^(?:Caused by: |Exception in thread \"[^\"]*\" )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)(?:: .*)?)$"
)
SUBMIT_ERROR = re.compile(r"^(?:Error|JAVA_HOME is not set|.*: (?:No space left on device|command not found))\b.*")
ENDINGS = (JOB_ERROR, JAVA_ERROR, SUBMIT_ERROR)
MAX_TEXT = 1200


def cause_of(lines: Iterable[str]) -> str:
    """Return the line that says why a job ended: its own error, else the last one of the JVM or of spark-submit."""
    told = [line.strip() for line in lines]
    for ending in ENDINGS:
        found = [match for line in told if (match := ending.match(line))]
        if found:
            text = found[-1].group(found[-1].lastindex or 0)
            return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
    return ""
