"""Drivers that die, hang or meet each other while the target is on S3. Each one is a process, killed by SIGKILL."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil
import pytest
from support.object_store import BUCKET
from support.stored import StoredPipeline, changed, drivers, filled, kill_tree

from airflow_provider_db2cdc.tick.lease.lease import LeaseTimes

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]

COMMITS = {
    "planned batch": "_db2cdc/batches/_delta_log/.*[1-9]\\.json$",
    "change log": "/changes/.*/_delta_log/.*[1-9]\\.json$",
    "state": "/tables/.*/_delta_log/.*[1-9]\\.json$",
    "applied batch": "_db2cdc/commits/_delta_log/.*[1-9]\\.json$",
}


@pytest.mark.parametrize(
    ("commit", "when"),
    [
        ("planned batch", "before"),
        ("change log", "after"),
        ("state", "before"),
        ("state", "after"),
        ("applied batch", "before"),
    ],
)
def test_a_driver_killed_at_a_commit_is_made_good_by_the_next(
    commit: str, when: Literal["before", "after"], new_stored: Callable[..., StoredPipeline]
) -> None:
    pipeline = new_stored()
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    with pipeline.store.holding("PUT", COMMITS[commit], when), pipeline.started("tick") as process:
        pipeline.store.await_held()
        kill_tree(process.pid)
    begun = time.monotonic()
    pipeline.passed("tick")
    assert time.monotonic() - begun >= LeaseTimes().expiry_s, "the lease of a dead driver counts for a minute"
    pipeline.assert_equal(table)
    pipeline.passed("verify")


def test_a_second_driver_waits_until_the_first_has_ended(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    with pipeline.started("tick") as first, pipeline.started("maintain") as second:
        outputs = [process.communicate(timeout=400)[0] for process in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], outputs
    pipeline.assert_equal(table)
    pipeline.passed("verify")


def test_a_driver_that_hung_before_a_commit_is_ended(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    with pipeline.store.holding("PUT", "/changes/.*parquet$"), pipeline.started("tick") as hung:
        pipeline.store.await_held()
        family = [psutil.Process(hung.pid), *drivers(hung.pid)]
        for process in family:
            process.send_signal(signal.SIGSTOP)
        pipeline.passed("tick")
        pipeline.assert_equal(table)
        for process in reversed(family):
            process.send_signal(signal.SIGCONT)
        assert hung.wait(120) == 1
        assert hung.stdout is not None
        assert "lost the lease of its target" in hung.stdout.read()
    pipeline.assert_equal(table)
    changed(pipeline, table, 1001)
    pipeline.passed("tick")
    pipeline.assert_equal(table)
    pipeline.passed("verify")


def test_a_jvm_whose_python_is_stopped_ends_itself(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    with pipeline.store.holding("PUT", "/changes/.*parquet$"), pipeline.started("tick") as hung:
        pipeline.store.await_held()
        [python] = [process for process in drivers(hung.pid) if "python" in Path(process.cmdline()[0]).name]
        python.send_signal(signal.SIGSTOP)
        try:
            assert hung.wait(200) == 1
        finally:
            python.kill()
        assert hung.stdout is not None
        assert "lost the lease of its target" in hung.stdout.read()
    pipeline.passed("tick")
    pipeline.assert_equal(table)
    pipeline.passed("verify")


def test_the_lease_is_one_small_object_that_is_released(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    filled(pipeline)
    pipeline.passed("tick")
    name = f"{BUCKET}/{pipeline.source.schema.lower()}/_db2cdc/_tables.lease"
    assert json.loads(pipeline.store.read(name))["released"] is True
