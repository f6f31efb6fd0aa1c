"""A target that is a schema of a Hive metastore: every command, and sessions that know only the catalog."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.object_store import BUCKET
from support.stored import StoredPipeline, changed, filled, serve_every_command

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]

READ = """
from pyspark.sql import SparkSession
from airflow_provider_db2cdc.read import BatchRange, last_batch, read_changes, read_state

spark = SparkSession.builder.getOrCreate()
batch = last_batch(spark, "lakehouse", {table!r})
print("STATE", read_state(spark, "lakehouse")[{table!r}].count())
print("CHANGES", read_changes(spark, "lakehouse", {table!r}, BatchRange(0, batch)).count())
"""


def test_a_schema_of_a_hive_metastore_serves_every_command(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    pipeline.use_hive(f"file:{pipeline.folder}/lake")
    table = filled(pipeline)
    serve_every_command(pipeline, table)
    name = f"lakehouse.{pipeline.source.schema.lower()}__t"

    pipeline.sql(f"DELETE FROM {name} WHERE ID = 5")
    assert pipeline.run("verify").returncode == 1
    pipeline.passed("heal", str(table))
    pipeline.assert_equal(table)
    pipeline.passed("verify")

    rows = len(pipeline.source.source_rows(table))
    assert pipeline.sql(f"SELECT count(*) FROM {name}").split() == [str(rows)]
    shown = pipeline.sql("SHOW TABLES IN lakehouse").split()
    assert {f"{pipeline.source.schema.lower()}__t", f"{pipeline.source.schema.lower()}__t__changes"} < {*shown}
    assert f"STATE {rows}" in pipeline.python(READ.format(table=str(table))).splitlines()


def test_a_schema_of_a_hive_metastore_on_s3_has_its_lease(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    schema = pipeline.source.schema.lower()
    pipeline.use_hive(f"s3a://{BUCKET}/{schema}")
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    pipeline.passed("tick")
    pipeline.passed("verify")
    pipeline.passed("maintain")
    pipeline.assert_equal(table)
    rows = len(pipeline.source.source_rows(table))
    assert pipeline.sql(f"SELECT count(*) FROM lakehouse.{schema}__t").split() == [str(rows)]
    assert f"PUT /{BUCKET}/{schema}/_tables.lease" in pipeline.store.requests()


def test_a_schema_that_is_missing_is_named_before_anything_is_written(
    new_stored: Callable[..., StoredPipeline],
) -> None:
    pipeline = new_stored()
    pipeline.use_hive(f"file:{pipeline.folder}/lake")
    pipeline.target = "no_such_schema"
    filled(pipeline)
    done = pipeline.run("tick")
    assert done.returncode == 1
    assert "no_such_schema" in done.stderr
    assert "CREATE SCHEMA" in done.stderr, done.stderr
    assert not (pipeline.folder / "warehouse").exists()
