"""A target belongs to one pipeline and one batch log. A batch is appended once even if Delta forgot its id."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta.ownership import VECTORS, Owner, Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load, set_properties, table_properties
from airflow_provider_db2cdc.spark.events.envelope import log_ddl
from airflow_provider_db2cdc.spark.ledger import batch_log
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog

pytestmark = pytest.mark.spark
SCHEMA = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))
OWNER = Owner("test", "ledger")
FORGETS = {"delta.setTransactionRetentionDuration": "interval 1 second"}


def replica(spark: SparkSession, folder: Path, owner: Owner = OWNER) -> Replica:
    """Return the tables of one source table."""
    return Replica(spark, Place(Layout(str(folder)), owner), SCHEMA)


def test_a_target_of_another_pipeline_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    BatchLog(spark, Layout(str(tmp_path)), "test").prepare()
    with pytest.raises(TargetError, match="belongs to pipeline 'test'"):
        BatchLog(spark, Layout(str(tmp_path)), "other").prepare()


def test_a_table_that_outlived_its_batch_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    replica(spark, tmp_path).prepare()
    with pytest.raises(TargetError, match="pipeline 'test' under another ledger"):
        replica(spark, tmp_path, Owner("test", "new ledger")).prepare()


def test_a_redone_append_is_skipped_even_if_delta_forgot_its_id(spark: SparkSession, tmp_path: Path) -> None:
    first = replica(spark, tmp_path)
    first.prepare()
    read = spark.sql("SELECT 1L AS __batch, 'r' AS op, named_struct('ID', 1) AS key")
    rows = read.join(spark.createDataFrame([], log_ddl(SCHEMA)).drop(*read.columns), how="left")
    assert first.append_changes(rows, 1, "reads")
    time.sleep(2)
    set_properties(spark, first.layout.changes(SCHEMA.table), FORGETS)
    assert not replace(first, is_redone=True).append_changes(rows, 1, "reads")
    assert first.batch_events(1).count() == 1


def test_small_files_of_the_logs_are_compacted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_log, "OPTIMIZE_EVERY", 5)
    log, layout = BatchLog(spark, Layout(str(tmp_path)), "test"), Layout(str(tmp_path))
    log.prepare()
    batches = layout.internal("batches")
    for number in (1, 2):
        spark.sql(f"INSERT INTO delta.`{batches.name}` (batch) VALUES ({number})")
    log.optimize(3, 4)
    assert len(load(spark, batches).inputFiles()) == 2
    log.optimize(4, 5)
    assert len(load(spark, batches).inputFiles()) == 1


def test_deletion_vectors_of_a_state_are_as_configured(spark: SparkSession, tmp_path: Path) -> None:
    def vectors(configured: bool | None, folder: str = "p") -> tuple[str, str, int]:
        made = replace(replica(spark, tmp_path / folder), deletion_vectors=configured)
        made.prepare()
        state, log = (
            table_properties(spark, name) for name in (made.layout.state(made.table), made.layout.changes(made.table))
        )
        return state[VECTORS], log[VECTORS], made.newest_version()

    assert vectors(None) == ("true", "false", 0)
    assert vectors(False) == ("false", "false", 1)
    assert vectors(None) == ("false", "false", 1), "a person may have set it"
    assert vectors(True) == ("true", "false", 2)
    assert vectors(True) == ("true", "false", 2)
    assert vectors(False, "other") == ("false", "false", 0)
