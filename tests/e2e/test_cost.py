"""What a tick of few changes costs: Spark jobs, not seconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.filled import filled
from support.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

JOBS = {
    "read the batch log and the commit log": 4,
    "read the journal": 2,
    "plan the batch": 2,
    "read the change rows": 1,
    "count them": 1,
    "append to the change log": 2,
    "merge into the state": 5,
    "record the batch": 1,
    "write the manifest": 2,
}
"""The jobs of a tick of one table. Delta computes a table's snapshot once for each write with a transaction id."""


def test_a_tick_of_few_changes_has_few_jobs_and_idle_tables_have_none(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table, *_ = [filled(pipeline, 30, name) for name in ("T1", "T2", "T3")]
    pipeline.passed()
    found = []
    for value in ("a", "b"):
        pipeline.execute(f"UPDATE {table} SET A = '{value}' WHERE ID < 20")
        pipeline.writer.commit()
        pipeline.captured()
        before = _next_job(pipeline)
        pipeline.passed()
        found.append(_next_job(pipeline) - before)
    assert found[1] <= sum(JOBS.values()), found


def _next_job(pipeline: Pipeline) -> int:
    context = pipeline.spark.sparkContext._jsc.sc()
    return int(context.dagScheduler().nextJobId())
