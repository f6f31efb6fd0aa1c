"""The results of a running job, and the specs that it gets after its first one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from airflow_provider_db2cdc.cdc.document import RESULT_MARK, SPEC_NAME, JobDocument

R = TypeVar("R")

Following = Callable[[R], JobDocument[R] | None]
"""Returns the spec that follows a result in the same job, or None to end the job."""


class Handover(Generic[R]):
    """Hands a job the next spec after each of its results. `first` is the path of `spec`, its first one.

    `following` may take its time. The job waits, and it ends if this process does.
    """

    def __init__(self, first: Path, spec: JobDocument[R], following: Following[R]) -> None:
        self._first = first
        self._spec = spec
        self._following = following
        self._number = 1

    def answer(self, result: str) -> bool:
        """Write the spec that follows a result, or the end. Return whether another result will come."""
        self._number += 1
        spec = self._following(self._spec.read_result(result))
        path = self._first.with_name(SPEC_NAME.format(self._number))
        part = path.with_suffix(".part")
        part.write_text("" if spec is None else spec.to_json(), encoding="utf-8")
        # The job sees the whole file or none.
        part.replace(path)
        return spec is not None


class ResultReader:
    """Takes the results out of a job's output.

    `newest` is the last result. It is None before the first one, and while another one is to come.
    """

    def __init__(self, handover: Handover[Any] | None = None) -> None:
        self.newest: str | None = None
        self._handover = handover

    def take(self, line: str) -> bool:
        """Read a line of the output, and return whether it is a result."""
        if not line.startswith(RESULT_MARK):
            return False
        result = line.removeprefix(RESULT_MARK)
        # If the job dies now, it has no result: it did not do what was asked for last.
        has_next = self._handover is not None and self._handover.answer(result)
        self.newest = None if has_next else result
        return True
