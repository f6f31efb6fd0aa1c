"""A group that is read ahead, by a source that lets its readers wait, beside the one that is published."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.filled import filled
from support.pipeline import Pipeline
from support.writing import behind

from airflow_provider_db2cdc.spark import reader
from airflow_provider_db2cdc.spark.groups import Groups

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def test_readers_that_wait_for_the_source_do_not_keep_a_group_from_being_published(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Each of the next group's chunks waits for a row of an open transaction, which ends once the first is published.

    Were Spark's two slots all theirs, they would be refused as victims of a timeout.
    """
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 2})
    table = filled(pipeline, 8)
    assert pipeline.spark.sparkContext.defaultParallelism == 2

    def lock(group: int) -> None:
        if group == 1:
            pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID IN (4, 6)")

    with (
        behind(reader, "stage_chunks", lock),
        behind(Groups, "_settle_part", lambda group: pipeline.writer.commit() if group == 1 else None),
    ):
        pipeline.passed()
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
