"""Where a target needs a lease: on S3, under a LogStore of Delta's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.spark.lease.target import needs_lease, target_lease

IMPL = "spark.delta.logStore.s3a.impl"


@pytest.mark.parametrize(
    ("scheme", "conf", "needed"),
    [
        ("s3a", {}, True),
        ("s3", {}, True),
        ("s3a", {IMPL: "io.delta.storage.S3SingleDriverLogStore"}, True),
        ("s3a", {IMPL: "io.delta.storage.GCSLogStore"}, True),
        ("s3a", {"spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.HDFSLogStore"}, True),
        ("s3a", {IMPL: "io.delta.storage.S3DynamoDBLogStore"}, False),
        ("s3a", {"spark.delta.logStore.s3.impl": "io.delta.storage.S3DynamoDBLogStore"}, True),
        ("s3a", {"spark.delta.logStore.class": "com.example.Ours"}, False),
        ("abfss", {}, False),
        ("gs", {}, False),
        ("hdfs", {}, False),
        ("file", {}, False),
    ],
)
def test_a_lease_is_needed_on_s3_with_a_store_for_one_driver(scheme: str, conf: dict[str, str], needed: bool) -> None:
    assert needs_lease(scheme, conf) is needed


@pytest.mark.spark
def test_a_target_in_a_folder_or_a_schema_of_it_gets_no_lease(spark: SparkSession, tmp_path: Path) -> None:
    for target in (str(tmp_path), f"file:{tmp_path}", "default"):
        with target_lease(spark, Layout(target), "run A"):
            assert list(tmp_path.iterdir()) == []
