"""Which tick follows another one in the same Spark application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.job_samples import job_result, job_spec, table_result

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.errors import CaptureStoppedError, OffsetError
from airflow_provider_db2cdc.offsets.repetition import POLL_S, Repetition

SPEC = job_spec("ORDERS")
PLAIN = job_result(table_result("ORDERS"))
STARTED = Notification("77", "Incremental Snapshot", "STARTED", {}, 5)
REFUSED = SignalOutcome("77", "source", "refused", "no")
END_S = 60.0


class Run:
    """A run whose plans are given. Each commit and each plan takes as many seconds as the clock is moved."""

    def __init__(self, *plans: JobSpec | None, commit: Callable[[JobResult], bool] = lambda result: True) -> None:
        self.plans = list(plans)
        self.now_s = 0.0
        self.committed: list[JobResult] = []
        self.slept: list[float] = []
        self._commit = commit
        self.repetition = Repetition(self.plan, self.commit, END_S, lambda: self.now_s, self.sleep)

    def plan(self) -> JobSpec | None:
        return self.plans.pop(0) if self.plans else None

    def commit(self, result: JobResult) -> bool:
        self.committed.append(result)
        return self._commit(result)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def test_a_result_is_committed_before_the_next_tick_is_planned() -> None:
    run = Run(SPEC)
    assert run.repetition.following(PLAIN) == SPEC
    assert run.committed == [PLAIN]


def test_plans_without_work_are_repeated_until_there_is_some() -> None:
    run = Run(None, None, SPEC)
    assert run.repetition.following(PLAIN) == SPEC
    assert run.slept == [POLL_S, POLL_S]


def test_the_run_ends_without_work_when_its_time_is_over() -> None:
    run = Run()
    assert run.repetition.following(PLAIN) is None
    assert END_S - POLL_S <= run.now_s < END_S
    assert run.committed == [PLAIN]


def test_no_tick_begins_after_the_end() -> None:
    run = Run(SPEC)
    run.now_s = END_S
    assert run.repetition.following(PLAIN) is None
    assert run.plans == [SPEC]


@pytest.mark.parametrize(
    "result",
    [
        replace(PLAIN, notifications=(STARTED,)),
        replace(PLAIN, signals=(REFUSED,)),
        job_result(table_result("ORDERS", status="failed", error="x")),
    ],
    ids=["notification", "signal", "failed table"],
)
def test_a_result_with_something_to_report_is_the_last_one(result: JobResult) -> None:
    run = Run(SPEC)
    assert run.repetition.following(result) is None
    assert run.committed == [], "its commit also reports"


def test_an_offset_that_was_not_stored_ends_the_run() -> None:
    run = Run(SPEC, commit=lambda result: False)
    assert run.repetition.following(PLAIN) is None
    assert run.plans == [SPEC]


def test_a_plan_that_fails_ends_the_run_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> JobSpec | None:
        raise CaptureStoppedError("capture stands still", "Start it.")

    run = Run()
    repetition = replace(run.repetition, plan=failing)
    assert repetition.following(PLAIN) is None
    assert "capture stands still" in caplog.text


def test_a_commit_that_fails_is_an_error() -> None:
    def failing(result: JobResult) -> bool:
        raise OffsetError("the offsets cannot be read", "Repair them.")

    with pytest.raises(OffsetError):
        Run(SPEC, commit=failing).repetition.following(PLAIN)
