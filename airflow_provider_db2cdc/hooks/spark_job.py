"""The running of spark-submit, with an ear for what the job says."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_db2cdc.cdc.job import PROGRESS_MARK, RESULT_MARK
from airflow_provider_db2cdc.submit.output import JOB_ERROR

NOISE = re.compile(r"^(\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d (INFO|DEBUG|TRACE) ")
"""Spark's own chatter, before and without our log4j settings."""

SNAPSHOT_MARK = f"{PROGRESS_MARK}snapshot "
TAIL_LINES = 20


class SparkJobHook(SparkSubmitHook):
    """A SparkSubmitHook that hands the job an environment and takes its result out of its output.

    `environment` is for the process alone: the base class would write variables into the command line on YARN and
    Kubernetes. `result` is the text behind the result's mark, None before it came; `tail` the last other lines.
    `on_snapshot` hears what the job says of how far a snapshot is.
    """

    environment: dict[str, str]
    result: str | None
    tail: deque[str]
    error_name: str
    on_snapshot: Callable[[str], None] | None

    @classmethod
    def adopt(cls, hook: SparkSubmitHook) -> SparkJobHook:
        """Return `hook` as one of this class: only the operator's own factory knows all of its arguments."""
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        adopted.environment = {}
        adopted.result = None
        adopted.tail = deque(maxlen=TAIL_LINES)
        adopted.error_name = ""
        adopted.on_snapshot = None
        # In client mode the exit code is spark-submit's own; the base class wants to have seen a line on Kubernetes.
        adopted._spark_exit_code = 0
        return adopted

    @property
    def master(self) -> str:
        """Spark's master, as the connection names it."""
        return str(self._connection["master"])

    @property
    def exit_code(self) -> int | None:
        """The exit code of spark-submit, None when it did not run."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command = super()._build_spark_submit_command(application)
        self._env = {**(self._env or {}), **self.environment}
        return command

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._listen(itr))

    def _listen(self, lines: Iterator[Any]) -> Iterator[str]:
        """Take the result out, drop the noise, and pass the rest on to the task's log."""
        for line in lines:
            text = line.rstrip("\n")
            if text.startswith(RESULT_MARK):
                self.result = text.removeprefix(RESULT_MARK)
            elif text.strip() and not NOISE.match(text):
                if found := JOB_ERROR.match(text):
                    self.error_name = found[1]
                if self.on_snapshot is not None and text.startswith(SNAPSHOT_MARK):
                    self.on_snapshot(text.removeprefix(PROGRESS_MARK))
                self.tail.append(text)
                yield text
