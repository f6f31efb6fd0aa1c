"""A group that is read ahead while another is published, from a source that makes its readers wait."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.filled import ask, filled
from support.pipeline import Pipeline
from support.writing import after_each, once_before

from airflow_provider_db2cdc.spark.session import slots

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]


def test_readers_that_wait_for_the_source_do_not_block_a_publication(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Each chunk of the next group waits for a row of an open transaction. It ends once the first group is compared.

    If they had both slots of Spark, nothing could be compared, and Db2 would end them after a timeout.
    """
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 2})
    table = filled(pipeline, 8)
    pipeline.passed()
    assert slots(pipeline.spark) == 2
    read, is_let_go = [0], list[int]()

    def lock(group: int) -> None:
        read[0] = group
        if group == 1:
            pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID IN (4, 6)")

    def let_go(_: int) -> None:
        if not is_let_go:
            is_let_go.append(read[0])
            pipeline.writer.commit()

    with (
        after_each("stage_chunks", lock),
        once_before("publish_group", lambda: _await_read(pipeline)),
        after_each("compare_state", let_go),
    ):
        pipeline.passed(ask(table))
    assert is_let_go == [1], "the second group was read before the first was compared: nothing was to be shown"
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)


def _await_read(pipeline: Pipeline) -> None:
    """Wait until a task of Spark's, which may be another test's, has been at work for a second."""
    tracker, begun = pipeline.spark.sparkContext.statusTracker(), dict[int, float]()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = time.monotonic()
        begun = {stage: begun.get(stage, now) for stage in tracker.getActiveStageIds()}
        if any(now - since > 1 for since in begun.values()):
            return
        time.sleep(0.2)
    raise AssertionError("nothing was read ahead")
