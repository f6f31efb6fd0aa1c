"""Logs are trimmed between ticks as far as they may be. What an open snapshot still reads must stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.crash import killed
from support.memory_maintenance import log_horizon, maintain
from support.memory_pipeline import SETTINGS, MemoryPipeline, filled
from support.memory_source import MemorySource
from support.request import execute

from airflow_provider_db2cdc.cdc.table import TableId

A = TableId("S", "A")
MOST_TICKS = 40


def trim(pipeline: MemoryPipeline) -> list[str]:
    """Trim everything that is older than now, and return the errors."""
    summary = pipeline.offsets.summary()
    reported = min(summary.reported_seq, summary.notified_upto)
    return maintain(pipeline.target, pipeline.journal, reported, next(pipeline.plans))


def over_an_abandoned_batch(snapshot_budget_s: float = 0.0) -> MemoryPipeline:
    """Return a pipeline whose table begins again over a batch that died. By default a tick publishes one chunk of it.

    The key is a text, so the snapshot ends with a deletion of missing rows. It reads the `r` events of all its batches.
    """
    source = MemorySource([A], key_type="VARCHAR", chunk_rows=1)
    source.commit({(A, key): 0 for key in range(6)})
    source.capture()
    pipeline = MemoryPipeline(source, replace(SETTINGS, snapshot_group_chunks=1, snapshot_budget_s=snapshot_budget_s))
    while any(snapshot.open_table_ids for snapshot in pipeline.passed().snapshots):
        pass
    pipeline.change(A, 40, 1)
    with killed("append_changes", "after"):
        pipeline.run(pipeline.plan())
    pipeline.source.load(A, 40, None)
    pipeline.restart(A)
    return pipeline


def finish(pipeline: MemoryPipeline) -> list[str]:
    """Do ticks until no snapshot is open, trim after each, and return all errors. The state equals the source then."""
    errors = []
    for _ in range(MOST_TICKS):
        result = pipeline.passed()
        errors += trim(pipeline)
        if not any(snapshot.open_table_ids for snapshot in result.snapshots):
            break
    assert pipeline.images(A) == pipeline.source.images(A)
    return errors


def test_what_an_open_snapshot_reads_is_not_trimmed() -> None:
    pipeline = over_an_abandoned_batch()
    errors = finish(pipeline)
    assert len(errors) > 3
    assert all("shorter than the open snapshot" in error for error in errors)
    keys = {event.key for _, _, event in pipeline.target.log[A] if event.op == "d"}
    assert (40,) in keys, "readers of the log learn that the row of the abandoned batch is gone"
    trim(pipeline)
    assert log_horizon(pipeline.target, A).is_trimmed


def test_progress_that_the_journal_lacks_is_not_trimmed_either() -> None:
    pipeline = over_an_abandoned_batch(60.0)
    with killed("plan_batch", "before", 3):
        pipeline.run(pipeline.plan())
    assert trim(pipeline)
    finish(pipeline)


def test_a_requested_id_is_known_after_a_trim() -> None:
    pipeline = filled(A, rows=3)
    pipeline.passed()
    pipeline.passed(execute("ask", A))
    pipeline.passed()
    trim(pipeline)
    [outcome] = pipeline.tick(execute("ask", A)).signals
    assert outcome.status == "done", "the same request is not carried out again"
    outcomes = pipeline.tick(execute("ask", A, type="blocking")).signals
    assert "refused" in [outcome.status for outcome in outcomes]
    assert sum(pipeline.reads(A).values()) <= 3


@pytest.mark.parametrize("age", [1, 2, 3])
def test_a_trim_keeps_what_is_younger_than_the_retention(age: int) -> None:
    pipeline = filled(A, rows=3)
    pipeline.passed()
    for key in range(10, 16):
        pipeline.change(A, key, key)
        pipeline.passed()
    before, at_ms = len(pipeline.target.log[A]), next(pipeline.plans)
    maintain(pipeline.target, pipeline.journal, 0, at_ms - age)
    assert len(pipeline.target.log[A]) == age < before
    pipeline.change(A, 10, None)
    pipeline.passed()
    assert pipeline.images(A) == pipeline.source.images(A)


def test_the_batch_that_began_a_table_again_stays() -> None:
    """A backfill compares commits since then. LSNs of an earlier history may be greater, or have another length."""
    pipeline = filled(A, rows=6, snapshot_group_chunks=1)
    pipeline.passed()
    before = pipeline.target.planned[-1].batch
    pipeline.restart(A)
    pipeline.passed()
    begun, *_, last = [planned.batch for planned in pipeline.target.planned if planned.batch > before]
    assert begun < last, "the last chunks are of another batch, which stays for its own reason"
    for value in range(1, 4):
        pipeline.change(A, 1, value)
        pipeline.passed()
    trim(pipeline)
    assert log_horizon(pipeline.target, A).batch > begun
    assert begun in [planned.batch for planned in pipeline.target.planned]
