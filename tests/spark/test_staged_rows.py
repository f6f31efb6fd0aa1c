"""Rows that a snapshot has read are read once, belong to one run, and free their storage."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.spark.apply.staged_rows import StagedRows

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    listed = ", ".join(map(str, ids))
    return spark.sql(f"SELECT named_struct('ID', id) AS row, id AS chunk FROM (SELECT explode(array({listed})) AS id)")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["row"]["ID"] for row in frame.collect())


def kept_frames(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().getPersistentRDDs().size())


@pytest.mark.parametrize("is_few", [True, False])
def test_pieces_of_a_group_are_one_read(spark: SparkSession, is_few: bool) -> None:
    staged = StagedRows()
    read_id = staged.add(rows(spark, 1, 2), is_few)
    other_id = staged.add(rows(spark, 9), is_few)
    assert staged.add(rows(spark, 3), is_few, read_id) == read_id
    assert (ids(staged.rows(spark, read_id)), ids(staged.newest(read_id))) == ([1, 2, 3], [3])
    assert ids(staged.rows(spark, other_id)) == [9]


def test_rows_are_read_once_and_then_the_same_in_each_session(spark: SparkSession) -> None:
    staged, session = StagedRows(), spark.newSession()
    read_id = staged.add(spark.range(3).selectExpr("named_struct('ID', rand()) AS row", "0 AS chunk"), True)
    there = staged.rows(session, read_id)
    assert there.sparkSession is session
    assert ids(there) == ids(staged.rows(spark, read_id))
    assert there.schema == staged.newest(read_id).schema


def test_dropped_rows_free_their_storage_and_are_unknown(spark: SparkSession) -> None:
    staged = StagedRows()
    read_id = staged.add(rows(spark, 1), False)
    staged.add(rows(spark, 2), False, read_id)
    before = kept_frames(spark)
    staged.drop(read_id)
    assert kept_frames(spark) == before - 2
    assert read_id not in staged
    staged.drop(read_id)


def test_rows_of_another_run_are_unknown(spark: SparkSession) -> None:
    read_id = StagedRows().add(rows(spark, 1), True)
    assert read_id not in StagedRows()
    assert "" not in StagedRows()
