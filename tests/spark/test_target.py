"""A window and a sweep are told by the batches that wrote rows, not by the LSNs that the rows stand at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.changes import log_ddl
from airflow_provider_db2cdc.spark.delta import literal_frame
from airflow_provider_db2cdc.spark.target import Owner, Place, Target

pytestmark = pytest.mark.spark
SCHEMA = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))
LATE, EARLY = (f"{time}:00000001:{'0' * 16}" for time in ("00000099", "00000011"))


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    """A table whose source was restored to an older state behind batch 2: LSNs begin anew."""
    made = Target(spark, Place(Layout(str(tmp_path)), Owner("test", "ledger")), SCHEMA)
    made.prepare()
    return made


def fill(target: Target, batch: int, rows: Iterable[tuple[int, str]]) -> None:
    frame = literal_frame(target.spark, [(id_, 0, lsn) for id_, lsn in rows], "ID int, A int, __commit_lsn string")
    target.fill(frame, batch)


def log(target: Target, batch: int, id_: int, lsn: str) -> None:
    rows = target.spark.sql(f"SELECT {batch}L AS __batch, '{lsn}' AS __commit_lsn, named_struct('ID', {id_}) AS key")
    names = {field.split()[0] for field in ("__batch", "__commit_lsn", "key")}
    empty = target.spark.createDataFrame([], log_ddl(SCHEMA)).drop(*names)
    target.append_changes(rows.join(empty, how="left"), batch, "changes")


def test_a_sweep_finds_the_rows_that_no_later_batch_wrote(target: Target) -> None:
    fill(target, 1, [(1, LATE), (2, LATE)])
    fill(target, 3, [(3, EARLY)])
    assert sorted(row["row"]["ID"] for row in target.swept(2).collect()) == [1, 2]
    assert sorted(row["row"]["ID"] for row in target.swept(3).collect()) == [1, 2, 3]


def test_a_window_is_the_batches_since_the_read_began(target: Target) -> None:
    for batch, lsn in ((1, LATE), (2, LATE), (3, EARLY), (4, EARLY)):
        log(target, batch, batch, lsn)
    assert sorted(row["key"]["ID"] for row in target.window(1, 3).collect()) == [2, 3]
    assert target.window(3, 3).isEmpty()
