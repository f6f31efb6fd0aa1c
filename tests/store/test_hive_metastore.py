"""A target that is a schema of a Hive metastore: every command, and sessions that know only the catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from support.object_store import BUCKET
from support.stored import StoredPipeline, changed, filled

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]

READ = """
from pyspark.sql import SparkSession
from airflow_provider_db2cdc.read import BatchRange, last_batch, read_changes, read_state

spark = SparkSession.builder.getOrCreate()
batch = last_batch(spark, "lakehouse", {table!r})
print("STATE", read_state(spark, "lakehouse")[{table!r}].count())
print("CHANGES", read_changes(spark, "lakehouse", {table!r}, BatchRange(0, batch)).count())
"""


def since_yesterday() -> list[str]:
    """The interval of a backfill that ends a moment ago."""
    now = datetime.now(UTC)
    return ["--from", (now - timedelta(days=1)).isoformat(), "--to", (now - timedelta(seconds=5)).isoformat()]


def test_a_schema_of_a_hive_metastore_serves_every_command(new_stored: Callable[..., StoredPipeline]) -> None:
    pipeline = new_stored()
    signals = pipeline.folder / "signals.jsonl"
    pipeline.properties = {"signal.enabled.channels": "file", "signal.file": str(signals)}
    pipeline.use_hive(f"file:{pipeline.folder}/lake")
    table = filled(pipeline)
    name = f"lakehouse.{pipeline.source.schema.lower()}__t"

    pipeline.passed("tick")
    pipeline.assert_equal(table)
    changed(pipeline, table, 1000)
    pipeline.passed("tick")
    pipeline.assert_equal(table)

    signals.write_text(json.dumps({"id": "s1", "type": "execute-snapshot", "data": {"data-collections": [str(table)]}}))
    changed(pipeline, table, 1001)
    pipeline.passed("tick")
    pipeline.passed("tick")
    pipeline.assert_equal(table)
    pipeline.passed("verify")

    pipeline.sql(f"DELETE FROM {name} WHERE ID = 5")
    assert pipeline.run("verify").returncode == 1
    pipeline.passed("heal", str(table))
    pipeline.assert_equal(table)
    pipeline.passed("verify")

    pipeline.passed("maintain")
    pipeline.passed("replay", str(table))
    pipeline.passed("backfill", str(table), *since_yesterday())
    pipeline.passed("status")
    pipeline.passed("doctor")
    pipeline.assert_equal(table)

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
