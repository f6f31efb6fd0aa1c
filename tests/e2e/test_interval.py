"""A run that ends at its data interval, from the source's log of commits to the Delta tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from support.filled import changed, filled
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def interval_until_now(pipeline: Pipeline) -> DataInterval:
    """Return an interval that ends now, once capture has passed its end."""
    interval = DataInterval.of(None, datetime.now(UTC))
    pipeline.captured()
    return interval


def run(pipeline: Pipeline, interval: DataInterval) -> JobResult:
    """Do the tick of an interval."""
    spec = pipeline.plan(interval=interval)
    assert spec is not None, "there was nothing to do"
    result = job.run(spec)
    pipeline.commit(result)
    assert not result.failed, result.failed
    return result


def values(pipeline: Pipeline, table: TableId) -> set[str]:
    """Return the values of the updates in a table's change log."""
    return {row[0] for row in pipeline.changes(table).where("op = 'u'").selectExpr("after.A").collect()}


def test_each_event_is_in_the_run_of_its_interval(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"end.at": "interval", "max.rows.per.batch": 1})
    tables = [filled(pipeline, 5, name) for name in ("T1", "T2")]
    pipeline.passed()
    updates = [f"UPDATE {table} SET A = '{{value}}' WHERE ID < 3" for table in tables]
    changed(pipeline, *(update.format(value="first") for update in updates))
    first = interval_until_now(pipeline)
    changed(pipeline, *(update.format(value="second") for update in updates))
    second = interval_until_now(pipeline)
    assert pipeline.tick() is None, "a run without an interval takes nothing from an interval's run"
    result = run(pipeline, first)
    assert result.interval == first
    assert [line.updates for line in result.tables] == [3, 3], "the row limit does not cut an interval"
    assert [values(pipeline, table) for table in tables] == [{"first"}] * 2
    assert pipeline.plan(interval=first) is None
    assert [line.updates for line in run(pipeline, second).tables] == [3, 3]
    assert [values(pipeline, table) for table in tables] == [{"first", "second"}] * 2
    assert [pipeline.rows(table) for table in tables] == [pipeline.source_rows(table) for table in tables]
