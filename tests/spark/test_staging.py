"""What a reader stages is divided among several tasks that read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.delta.ownership import Owner, Place
from airflow_provider_db2cdc.spark.delta.staging import Staging

pytestmark = pytest.mark.spark
SCHEMA = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False),), ("ID",))


def test_rows_staged_by_one_reader_are_several_files(spark: SparkSession, tmp_path: Path) -> None:
    """A file of so few bytes as these rows take is read by one task, however many slots there are."""
    staging = Staging(spark, Place(Layout(str(tmp_path)), Owner("test", "ledger")), SCHEMA)
    read = spark.range(0, 250_000, numPartitions=1).selectExpr("named_struct('ID', int(id)) AS row", "0 AS chunk")
    written = staging.write(read)
    assert len(staging.rows(written).inputFiles()) == 3
    added = staging.add(read, written)
    assert added is not None
    assert len(staging.rows(added).inputFiles()) == 6
