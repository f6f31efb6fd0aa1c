"""The hook that runs spark-submit and reads the job's output."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_db2cdc.cdc.document import PROGRESS_MARK
from airflow_provider_db2cdc.submit.handover import ResultReader
from airflow_provider_db2cdc.submit.output import JOB_ERROR

NOISE = re.compile(r"^(\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d (INFO|DEBUG|TRACE) ")
"""Log lines of Spark itself, before or without this package's log4j settings."""

SNAPSHOT_MARK = f"{PROGRESS_MARK}snapshot "
TAIL_LINES = 20


class SparkJobHook(SparkSubmitHook):
    """A SparkSubmitHook that passes the job an environment, and reads the result from its output.

    `environment` is set only for the process. The base class would write it into the command line on YARN and
    Kubernetes. `results` takes the results out of the output. `tail` holds the last other lines. `on_snapshot` is
    called with each line on how far a snapshot is.
    """

    environment: dict[str, str]
    results: ResultReader
    tail: deque[str]
    error_name: str
    on_snapshot: Callable[[str], None] | None

    @classmethod
    def adopt(cls, hook: SparkSubmitHook) -> SparkJobHook:
        """Return `hook` as an object of this class. Only the operator's own factory knows all of its arguments."""
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        adopted.environment = {}
        adopted.results = ResultReader()
        adopted.tail = deque(maxlen=TAIL_LINES)
        adopted.error_name = ""
        adopted.on_snapshot = None
        # In client mode the exit code is that of spark-submit. On Kubernetes the base class expects it in a log line.
        adopted._spark_exit_code = 0
        return adopted

    @property
    def master(self) -> str:
        """Spark's master, from the connection."""
        return str(self._connection["master"])

    @property
    def exit_code(self) -> int | None:
        """The exit code of spark-submit, or None if it did not run."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command = super()._build_spark_submit_command(application)
        self._env = {**(self._env or {}), **self.environment}
        return command

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        try:
            super()._process_spark_submit_log(self._listen(itr))
        except Exception:
            # Nothing reads the output any more, and a repeated job would wait for its next spec.
            self._end()
            raise
        finally:
            # The base class leaves the pipe to the garbage collector.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()

    def _end(self) -> None:
        self.on_kill()
        if self._submit_sp is not None:
            self._submit_sp.wait()

    def _listen(self, lines: Iterator[Any]) -> Iterator[str]:
        """Take the result out, drop Spark's own log lines, and pass the rest on to the task's log."""
        for line in lines:
            text = line.rstrip("\n")
            if not self.results.take(text) and text.strip() and not NOISE.match(text):
                if error := JOB_ERROR.match(text):
                    self.error_name = error[1]
                if self.on_snapshot is not None and text.startswith(SNAPSHOT_MARK):
                    self.on_snapshot(text.removeprefix(PROGRESS_MARK))
                self.tail.append(text)
                yield text
