"""Rows that a snapshot does not find, and tables without a key whose rows come and go while they are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.memory_source import MemorySource
from support.request import execute

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.tick.snapshot.publisher import MAX_READS

A = TableId("S", "A")


def keyless() -> MemoryPipeline:
    """Return a pipeline that holds its table without a key."""
    source = MemorySource([A], keyless={A})
    source.commit({(A, key): 0 for key in range(3)})
    source.capture()
    pipeline = MemoryPipeline(source)
    pipeline.passed()
    return pipeline


def with_text_key() -> MemoryPipeline:
    """Return a pipeline whose table has a key that Spark may sort in another order than the source."""
    source = MemorySource([A], key_type="VARCHAR")
    source.commit({(A, key): 0 for key in range(9)})
    source.capture()
    return MemoryPipeline(source)


def over_an_abandoned_batch(pipeline: MemoryPipeline) -> MemoryPipeline:
    """Return the pipeline when its table begins again over a batch that died.

    With a key of text, its snapshot ends with a deletion of missing rows.
    """
    pipeline.passed()
    pipeline.change(A, 40, 1)
    with killed("append_changes", "after"):
        pipeline.run(pipeline.plan())
    pipeline.restart(A)
    return pipeline


def finish(pipeline: MemoryPipeline) -> None:
    """Do ticks until no snapshot is open, and compare the rows of target and source."""
    while any(snapshot.open_table_ids for snapshot in pipeline.passed().snapshots):
        pipeline.source.capture()
    assert pipeline.images(A) == pipeline.folded_images(A) == pipeline.source.images(A)


@pytest.mark.parametrize("made", [lambda: filled(A), with_text_key, keyless], ids=["a key", "a text", "no key"])
def test_restart_deletes_rows_that_only_an_abandoned_batch_has_logged(made: Callable[[], MemoryPipeline]) -> None:
    """The run that died has not merged them into the state."""
    pipeline = over_an_abandoned_batch(made())
    pipeline.source.load(A, 40, None)
    finish(pipeline)


def test_table_without_a_key_that_changes_during_each_read_fails() -> None:
    pipeline, values = keyless(), iter([1, 2] * MAX_READS)
    with failpoint_action("stage_chunks", before=lambda _: pipeline.source.commit({(A, 99): next(values)})):
        result = pipeline.tick(execute("ask", A))
    [failed] = result.failed
    assert f"came or went during each of {MAX_READS} reads" in failed.error
    [shown] = [snapshot for snapshot in result.snapshots if snapshot.id == "ask"]
    assert [table.status for table in shown.tables] == ["reading"], "the next tick reads it again"
    finish(pipeline)


def write_as_another(pipeline: MemoryPipeline, id_: int, value: int) -> None:
    """Change a row of the state as a writer that is no pipeline does."""
    target = pipeline.target
    [(key, at)] = [(key, at) for key, (row, at) in target.state[A].items() if row[0] == id_]
    target.put_rows(A, {key: ((id_, value), at)}, is_own=False)


def test_a_foreign_change_before_the_deletion_stops_the_table() -> None:
    pipeline = over_an_abandoned_batch(with_text_key())
    spec = pipeline.plan()
    with killed("settle_table_snapshot", "after", 2):
        pipeline.run(spec)
    write_as_another(pipeline, 3, 999)
    [failed] = pipeline.run(spec).failed
    assert "somebody else has changed its current state" in failed.error


def test_a_foreign_change_within_the_tick_of_the_deletion_stops_the_table() -> None:
    pipeline = over_an_abandoned_batch(with_text_key())
    with once("settle_table_snapshot", "after", lambda: write_as_another(pipeline, 3, 999), 2):
        [failed] = pipeline.tick().failed
    assert "somebody else has changed its current state" in failed.error


def test_the_newest_applied_commit_is_known_after_the_deletion() -> None:
    """By it a plan notices that the source was restored."""
    pipeline = over_an_abandoned_batch(with_text_key())
    with once("stage_chunks", "after", lambda: pipeline.change(A, 1, 6)):
        pipeline.passed()
    offset = pipeline.offsets.get(A)
    assert offset is not None
    assert offset.commit_lsn is not None
