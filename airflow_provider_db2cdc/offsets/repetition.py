"""The ticks that one Spark application does one after another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.errors import Db2CdcError

log = logging.getLogger(__name__)

POLL_S = 2.0
"""Seconds from a plan without work to the next one."""


@dataclass(frozen=True)
class Repetition:
    """Plans the next tick after each result, until the monotonic clock shows `until_s`.

    `plan` returns the next plan, or None if there is nothing to do. `commit` stores what a result has moved, and
    returns whether all of it was stored. The last result is left to the caller to commit, unless it is followed by
    plans without work only. A second commit of it changes nothing.

    A result that has something to report is the last one, so that it is reported at once. A plan that fails ends the
    repetition. The next run then plans, and reports the same error if it lasts.
    """

    plan: Callable[[], JobSpec | None]
    commit: Callable[[JobResult], bool]
    until_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def following(self, result: JobResult) -> JobSpec | None:
        """Commit a result and return the plan that follows it, or None if there is none."""
        if result.is_to_report or self.clock() >= self.until_s or not self.commit(result):
            return None
        try:
            return self._next_plan()
        except Db2CdcError as error:
            log.warning("the run ends here, because no further tick can be planned: %s", error)
            return None

    def _next_plan(self) -> JobSpec | None:
        while (spec := self.plan()) is None:
            if self.clock() + POLL_S >= self.until_s:
                return None
            self.sleep(POLL_S)
        return spec
