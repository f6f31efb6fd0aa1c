"""Other sessions that read a target on S3 by the read API."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.stored import StoredPipeline, changed, filled

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]

READ = """
from pyspark.sql import SparkSession
from airflow_provider_db2cdc.read import BatchRange, fold, last_batch, read_changes, read_state

spark = SparkSession.builder.getOrCreate()
state = read_state(spark, {target!r})[{table!r}]
batch = last_batch(spark, {target!r}, {table!r})
changes = read_changes(spark, {target!r}, {table!r}, BatchRange(0, batch))
print("STATE", state.count(), "CHANGES", changes.count(), "BATCH", batch)
"""


def test_the_read_api_reads_a_target_on_s3(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    pipeline.passed("tick")
    [line] = [
        line
        for line in pipeline.python(READ.format(target=pipeline.target, table=str(table))).splitlines()
        if line.startswith("STATE")
    ]
    assert line.split()[:2] == ["STATE", str(len(pipeline.source.source_rows(table)))], line
