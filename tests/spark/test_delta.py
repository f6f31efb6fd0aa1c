"""What exactly-once hangs on: Delta's transaction pair, on the pinned versions."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.spark.progress import describe
from airflow_provider_db2cdc.spark.session import table_session
from airflow_provider_db2cdc.spark.target import APP_ID, APP_VERSION, _transaction

pytestmark = pytest.mark.spark


def append(spark: SparkSession, path: str, rows: str, version: int) -> None:
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, a)")
    frame.write.format("delta").mode("append").options(txnAppId="app", txnVersion=str(version)).save(path)


def actions(path: str) -> list[dict[str, Any]]:
    files = sorted((Path(path) / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in files[-1].read_text().splitlines()]


def test_an_append_of_a_version_happens_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append(spark, path, "(1, 'x')", 5)
    append(spark, path, "(2, 'y')", 5)
    append(spark, path, "(3, 'z')", 4)

    assert [row[0] for row in spark.read.format("delta").load(path).collect()] == [1]


def test_a_merge_carries_the_pair_and_its_replay_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append(spark, path, "(1, 'x')", 1)
    session = table_session(spark, 1)
    merge = (
        DeltaTable.forPath(session, path)
        .alias("t")
        .merge(session.sql("SELECT 1 AS id, 'new' AS a").alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
    )
    with _transaction(session, "merge", 7):
        done = merge.execute().first()
    assert done is not None
    [pair] = [one["txn"] for one in actions(path) if "txn" in one]
    assert pair["version"] == 7

    with _transaction(session, "merge", 7):
        again = merge.execute().first()

    assert again is None
    assert session.conf.get(APP_ID, None) is None
    assert session.conf.get(APP_VERSION, None) is None


def test_a_writer_that_was_overtaken_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path, begun, go = str(tmp_path / "t"), tmp_path / "begun", tmp_path / "go"
    append(spark, path, "(1, 'x')", 1)
    errors: list[str] = []

    @F.udf("string")
    def held(text: str) -> str:
        begun.touch()
        deadline = time.monotonic() + 60
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return text

    def slow() -> None:
        rows = (
            table_session(spark, 1).range(9, 10, 1, 1).select(F.col("id").cast("int"), held(F.lit("late")).alias("a"))
        )
        try:
            rows.write.format("delta").mode("append").options(txnAppId="app", txnVersion="2").save(path)
        except PySparkException as error:
            errors.append(describe(error))

    thread = threading.Thread(target=slow)
    thread.start()
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    append(table_session(spark, 1), path, "(2, 'first')", 2)
    go.touch()
    thread.join(60)

    assert sorted(row[0] for row in spark.read.format("delta").load(path).collect()) == [1, 2]
    assert len(errors) == 1
    assert "another run wrote this batch" in errors[0]
