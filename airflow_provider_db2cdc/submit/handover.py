"""The results of a running job, and the specs that it gets after its first one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from airflow_provider_db2cdc.cdc.document import RESULT_MARK, SPEC_NAME, JobDocument
from airflow_provider_db2cdc.submit.child import OnLine

R = TypeVar("R")

Following = Callable[[R], JobDocument[R] | None]
"""Returns the spec that follows a result in the same job, or None to end the job."""


class Handover:
    """Hands a job the next spec after each of its results. `first` is the path of its first spec.

    `following` may take its time. The job waits, and it ends if this process does.
    """

    def __init__(self, first: Path, following: Callable[[str], JobDocument[R] | None]) -> None:
        self._first = first
        self._following = following
        self._number = 1

    def answer(self, result: str) -> bool:
        """Write the spec that follows a result, or the end. Return whether another result will come."""
        self._number += 1
        spec = self._following(result)
        path = self._first.with_name(SPEC_NAME.format(self._number))
        part = path.with_suffix(".part")
        part.write_text("" if spec is None else spec.to_json(), encoding="utf-8")
        # The job sees the whole file or none.
        part.replace(path)
        return spec is not None


class ResultReader:
    """Takes the results out of a job's output, line by line. Every other line goes to `on_line`.

    `newest` is the last result. It is None before the first one, and while another one is to come.
    """

    def __init__(self, on_line: OnLine, handover: Handover | None = None) -> None:
        self.newest: str | None = None
        self._on_line = on_line
        self._handover = handover

    def read(self, line: str) -> None:
        """Read a line of the output."""
        if not line.startswith(RESULT_MARK):
            self._on_line(line)
            return
        result = line.removeprefix(RESULT_MARK)
        has_next = self._handover is not None and self._handover.answer(result)
        self.newest = None if has_next else result
