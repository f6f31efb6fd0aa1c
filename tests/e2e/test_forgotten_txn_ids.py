"""A session's defaults make Delta forget transaction ids. Each change is still there once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from support.crash import killed
from support.log import check_log, logged_events
from support.pipeline import Pipeline
from support.writing import after_each

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import set_properties
from airflow_provider_db2cdc.spark.session import temporary_conf

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]
RETENTION = "delta.setTransactionRetentionDuration"
DEFAULTS = "spark.databricks.delta.properties.defaults."
FORGETTING = {f"{DEFAULTS}setTransactionRetentionDuration": "interval 1 second"}


@pytest.fixture
def forgetting(spark: SparkSession) -> Iterator[None]:
    """An application that was submitted with such a default: a new session has it, too."""

    def submit(reached: ReachedFailpoint) -> None:
        for name, value in FORGETTING.items():
            reached.result.conf.set(name, value)

    with failpoint_action("open_session", after=submit), temporary_conf(spark, FORGETTING):
        yield


def begin(pipeline: Pipeline) -> TableId:
    """A table of 50 rows that is in the target."""
    ddl = f"CREATE TABLE {pipeline.schema}.X (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(20))"
    table = pipeline.create(ddl, "X")
    pipeline.many(f"INSERT INTO {table} VALUES (?, 'a')", [(at,) for at in range(50)])
    pipeline.captured()
    pipeline.passed()
    return table


def change(pipeline: Pipeline, table: TableId) -> None:
    for text in (f"UPDATE {table} SET V = V || 'u' WHERE ID < 5", f"DELETE FROM {table} WHERE ID = 30"):
        pipeline.execute(text)
    pipeline.execute(f"INSERT INTO {table} VALUES (1000, 'n')")
    pipeline.writer.commit()
    pipeline.captured()


def check(pipeline: Pipeline, table: TableId) -> None:
    first = pipeline.changes(table).where("op = 'r'").first()
    assert first is not None
    logged = logged_events(pipeline, table)
    assert len(logged) == 7
    assert set(logged.values()) == {1}, "an event is there twice"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.long
@pytest.mark.usefixtures("forgetting")
def test_a_batch_that_died_after_its_append_is_appended_once(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = begin(pipeline)
    change(pipeline, table)
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)
    time.sleep(2)

    pipeline.passed()

    check(pipeline, table)


@pytest.mark.long
def test_a_log_that_lost_its_transaction_ids_is_searched(new_pipeline: Callable[..., Pipeline]) -> None:
    """The property was set on the table. A redone batch finds its rows, not its transaction id."""
    pipeline = new_pipeline()
    table = begin(pipeline)
    change(pipeline, table)
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)
    log = Layout(pipeline.target).changes(table)
    time.sleep(2)

    # After a tick's check of this property.
    with after_each("prepare_table", lambda _: set_properties(pipeline.spark, log, {RETENTION: "interval 1 second"})):
        pipeline.passed()

    check(pipeline, table)
