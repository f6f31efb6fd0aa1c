"""Other sessions that read a target on S3: the read API, and a catalog's tables by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.object_store import BUCKET
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


def hive(folder: object) -> dict[str, str]:
    """Settings of Spark for a Hive metastore in a folder."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }


NAMED = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("TABLES", sorted(row.tableName for row in spark.sql("SHOW TABLES IN lakehouse").collect()))
print("ROWS", spark.table("lakehouse.{name}").count())
"""


def test_a_catalog_names_the_tables_of_a_target_on_s3(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    schema = pipeline.source.schema.lower()
    pipeline.more_conf = hive(pipeline.folder)
    pipeline.target = "lakehouse"
    location = f"s3a://{BUCKET}/{schema}"
    pipeline.python(
        "from pyspark.sql import SparkSession\n"
        f"SparkSession.builder.getOrCreate().sql(\"CREATE SCHEMA lakehouse LOCATION '{location}'\")"
    )
    table = filled(pipeline)
    pipeline.passed("tick")
    changed(pipeline, table, 1000)
    pipeline.passed("tick")
    pipeline.passed("verify")
    pipeline.passed("maintain")
    printed = pipeline.python(NAMED.format(name=f"{schema}__t"))
    assert f"ROWS {len(pipeline.source.source_rows(table))}" in printed, printed
    assert f"{schema}__t__changes" in printed
    assert f"PUT /{BUCKET}/{schema}/_tables.lease" in pipeline.store.requests()
