"""Rows that a snapshot does not find, and tables without a key whose rows come and go while they are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed
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


def finish(pipeline: MemoryPipeline) -> None:
    """Do ticks until no snapshot is open, and compare the rows of target and source."""
    while any(snapshot.open_table_ids for snapshot in pipeline.passed().snapshots):
        pipeline.source.capture()
    assert pipeline.images(A) == pipeline.folded_images(A) == pipeline.source.images(A)


@pytest.mark.parametrize("made", [lambda: filled(A), keyless], ids=["a key", "no key"])
def test_restart_deletes_rows_that_only_an_abandoned_batch_has_logged(made: Callable[[], MemoryPipeline]) -> None:
    """They are in the change log and not in the state, so a comparison of chunks with the state does not find them."""
    pipeline = made()
    pipeline.passed()
    pipeline.change(A, 40, 1)
    with killed("append_changes", "after"):
        pipeline.run(pipeline.plan())
    pipeline.source.load(A, 40, None)
    pipeline.restart(A)
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
