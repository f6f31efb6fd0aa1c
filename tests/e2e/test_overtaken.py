"""Runs that another one has overtaken: they hang and wake, or are cleared, and tell nothing that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.crash import Killed, killed
from support.filled import changed, filled, one_update
from support.log import logged_events
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset import Offset
from airflow_provider_db2cdc.sandbox import faults
from airflow_provider_db2cdc.spark import jobs, pull
from airflow_provider_db2cdc.spark.groups import Groups
from airflow_provider_db2cdc.spark.ledger import Ledger
from airflow_provider_db2cdc.spark.target import Target
from airflow_provider_db2cdc.tick import commit_tick

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def test_an_old_run_that_fills_the_state_beside_a_restart_doubles_no_row(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 20)
    spec = pipeline.plan()
    assert spec is not None
    real, waits, errors = Target.fill, [], []

    def hangs(*arguments: Any) -> Any:
        waits.append(arguments)
        raise Killed("it hangs before it fills the state")

    def wakes(*arguments: Any) -> Any:
        while waits:
            try:
                real(*waits.pop())
            except Exception as error:
                errors.append(str(error))
        return real(*arguments)

    monkeypatch.setattr(Target, "fill", hangs)
    with pytest.raises(Killed):
        jobs.run(spec)
    pipeline.offsets.put(Offset(table, Lsn(bytes(16)), 0, restart=True))
    pipeline.captured()
    monkeypatch.setattr(Target, "fill", wakes)
    pipeline.passed()
    assert pipeline.state(table).count() == 20
    [error] = errors
    assert "a later plan has given up batch" in error


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "without the fence"])
def test_a_cleared_run_publishes_no_chunk_that_a_later_plan_has_given_up(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, is_fenced: bool
) -> None:
    """A dies behind its plan; B meets a gap, gives up A's batch, and dies before it has done anything; A is cleared."""
    if not is_fenced:
        monkeypatch.setattr(Target, "fence", lambda *_: None)
    pipeline = new_pipeline(
        **{"snapshot.mode": "when_needed", "incremental.snapshot.chunk.size": 30, "snapshot.group.chunks": 1}
    )
    pipeline.properties = {**pipeline.properties, "table.include.list": rf"{pipeline.schema}\.T"}
    table, other = filled(pipeline, 50), filled(pipeline, 1, "O")
    a = pipeline.plan("A")
    assert a is not None
    floor = changed(pipeline, f"INSERT INTO {other} VALUES (100, 'x')")
    with killed(Ledger, "plan", "after"):
        jobs.run(a)
    faults.prune(pipeline.writer, upto=floor.raw)
    b = pipeline.plan("B")
    assert b is not None
    with killed(Groups, "_await", "before"):
        jobs.run(b)
    commit_tick(jobs.run(a), pipeline.offsets)
    for _ in range(3):
        pipeline.captured()
        if pipeline.tick() is None:
            break
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_a_cleared_run_commits_no_state_that_lacks_what_a_restart_has_kept_from_it(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table, a = one_update(pipeline)
    with killed(Target, "merge", "before"):
        jobs.run(a)
    offset = pipeline.offsets.get(table)
    assert offset is not None
    pipeline.offsets.reset(replace(offset, restart=True))
    b = pipeline.plan("B")
    assert b is not None
    with killed(Groups, "_await", "before"):
        jobs.run(b)
    result = jobs.run(a)
    [line] = result.failed
    assert "a later plan has given up batch" in line.error
    commit_tick(result, pipeline.offsets)
    pipeline.captured()
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_an_old_run_deletes_nothing_of_a_batch_that_another_has_finished(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had read was pruned meanwhile: the change log tells that all of it was read."""
    pipeline = new_pipeline()
    table, spec = one_update(pipeline)
    real, seen = pull._check_all_read, []

    def beside(*arguments: Any) -> Any:
        if not seen:
            seen.append(True)
            commit_tick(jobs.run(spec), pipeline.offsets)
            faults.prune(pipeline.writer)
        return real(*arguments)

    monkeypatch.setattr(pull, "_check_all_read", beside)
    jobs.run(spec)
    assert sum(logged_events(pipeline, table).values()) == 1
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_an_old_run_deletes_nothing_of_a_batch_that_another_is_about_to_finish(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table, spec = one_update(pipeline)
    real_check, real_commit = pull._check_all_read, Ledger.commit
    old: list[Any] = []

    def hangs(*arguments: Any) -> Any:
        if old:
            return real_check(*arguments)
        old.append(arguments)
        result = jobs.run(spec)
        assert not result.failed
        commit_tick(result, pipeline.offsets)
        raise Killed("the old run")

    def wakes(self: Ledger, *arguments: Any) -> Any:
        faults.prune(pipeline.writer)
        real_check(*old[0])
        return real_commit(self, *arguments)

    monkeypatch.setattr(pull, "_check_all_read", hangs)
    monkeypatch.setattr(Ledger, "commit", wakes)
    with pytest.raises(Killed):
        jobs.run(spec)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert sum(logged_events(pipeline, table).values()) == 1
