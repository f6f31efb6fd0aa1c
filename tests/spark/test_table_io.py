"""The base of exactly-once: Delta's transaction ids, in the pinned versions."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.spark.delta.table_io import (
    APP_ID,
    APP_VERSION,
    TxnId,
    append,
    append_first,
    commit_with,
    delta_table,
    literal_frame,
    load,
    newest_version,
)
from airflow_provider_db2cdc.submit.command import DEFAULTS
from airflow_provider_db2cdc.tick.log import describe

pytestmark = pytest.mark.spark


def named(path: Path) -> DeltaName:
    return DeltaName(str(path), is_path=True)


def write(spark: SparkSession, name: DeltaName, rows: str, number: int) -> int | None:
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, a)")
    return append(frame, name, ("app", number))


def actions(path: str) -> list[dict[str, Any]]:
    files = sorted((Path(path) / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in files[-1].read_text().splitlines()]


def ids(spark: SparkSession, name: DeltaName, version: int | None = None) -> list[int]:
    return sorted(row[0] for row in load(spark, name, version).collect())


def test_an_append_with_a_transaction_id_happens_once(spark: SparkSession, tmp_path: Path) -> None:
    name = named(tmp_path / "t")
    assert write(spark, name, "(1, 'x')", 5) == 0
    assert write(spark, name, "(2, 'y')", 5) is None
    assert write(spark, name, "(3, 'z')", 4) is None
    assert ids(spark, name) == [1]
    assert write(spark, name, "(4, 'z')", 6) == 1 == newest_version(spark, name)
    assert ids(spark, name, 0) == [1]


def test_a_merge_has_a_transaction_id_and_its_replay_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    name = named(tmp_path / "t")
    write(spark, name, "(1, 'x')", 1)
    session = spark.newSession()
    merge = (
        delta_table(session, name)
        .alias("t")
        .merge(session.sql("SELECT 1 AS id, 'new' AS a").alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
    )
    done, version = commit_with(session, ("merge", 7), lambda: merge.execute().first())
    assert done is not None
    assert version == 1
    [pair] = [one["txn"] for one in actions(name.name) if "txn" in one]
    assert pair["version"] == 7

    assert commit_with(session, ("merge", 7), lambda: merge.execute().first()) == (None, None)
    assert session.conf.get(APP_ID, None) is None
    assert session.conf.get(APP_VERSION, None) is None


@pytest.fixture
def overtaken(spark: SparkSession, tmp_path: Path) -> Callable[[Callable[[DataFrame, DeltaName, TxnId], Any]], Any]:
    """Append while another writer commits the same transaction id. Return the result, or the text of the error."""

    def run(step: Callable[[DataFrame, DeltaName, TxnId], Any]) -> Any:
        name, begun, go = named(tmp_path / "t"), tmp_path / "begun", tmp_path / "go"
        write(spark, name, "(1, 'x')", 1)

        @F.udf("string", useArrow=False)
        def held(text: str) -> str:
            begun.touch()
            deadline = time.monotonic() + 60
            while not go.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            return text

        rows = spark.newSession().range(9, 10, 1, 1).select(F.col("id").cast("int"), held(F.lit("late")).alias("a"))
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(step, rows, name, ("app", 2))
            deadline = time.monotonic() + 60
            while not begun.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            write(spark.newSession(), name, "(2, 'first')", 2)
            go.touch()
            error = slow.exception(60)
        assert ids(spark, name) == [1, 2]
        return describe(error) if error else slow.result()

    return run


def test_an_overtaken_writer_writes_nothing(overtaken: Callable[..., Any]) -> None:
    assert "another run wrote this batch" in overtaken(append)


def test_an_append_that_is_overtaken_while_it_writes_is_not_the_first(overtaken: Callable[..., Any]) -> None:
    assert overtaken(append_first) is False


CHUNKS = [[], [(1, "'ä \U0001f600'", None, 2**53 + 1)], [(at, "'\"\\\0\n'", "${x}", -at) for at in range(3000)]]


@pytest.mark.parametrize("chunks", CHUNKS, ids=["none", "one", "thousands"])
def test_literal_rows_are_unchanged(spark: SparkSession, chunks: list[Any]) -> None:
    chunk = "n: int, s: string, t: string, c: bigint"
    ddl = f"n bigint, s string, b boolean, m map<string, bigint>, chunks array<struct<{chunk}>>"
    rows = [(2**53 + 1, "it's \\ ${x}", True, {"a": 1}, chunks), (None, None, None, None, None)]
    frame = literal_frame(spark, rows, ddl)
    assert len(re.findall("from_json", frame._jdf.logicalPlan().toString())) == 1, "one text, however many they are"
    first, second = (row.asDict() for row in frame.collect())
    assert [*first.values()] == [*rows[0]]
    assert [*second.values()] == [None] * 5


def test_checksums_of_a_jobs_commits_list_no_files(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.databricks.delta.allFilesInCrc.enabled"
    for number, value in enumerate((DEFAULTS[name], "true")):
        session = spark.newSession()
        session.conf.set(name, value)
        write(session, named(tmp_path), "(1, 'a')", number)
    without, listing = (json.loads(file.read_text()) for file in sorted((tmp_path / "_delta_log").glob("*.crc")))
    assert "allFiles" not in without
    assert len(listing["allFiles"]) == listing["numFiles"] == 2
