"""What readers other than Spark read of a target (docs/how-to/read-the-tables.md), and how they refuse the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession
from support.lake import COLUMNS, Lake

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.read import read_changes
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import literal_frame, sql_name

pytestmark = pytest.mark.spark
WITH, WITHOUT, SPACED = (TableId("S", name) for name in ("WITH", "WITHOUT", "SPACED"))
"""Tables whose state has deletion vectors, has none, and has a column name with a blank."""

Reader = Callable[[str, str], list[Any]]
"""Read a column of the Delta table in a folder."""


def query_builder(folder: str, column: str) -> list[Any]:
    found = QueryBuilder().register("t", DeltaTable(folder)).execute(f'SELECT "{column}" FROM t').read_all()
    return list(pa.table(found).column(column).to_pylist())


def pyarrow_table(folder: str, column: str) -> list[Any]:
    return list(DeltaTable(folder).to_pyarrow_table().column(column).to_pylist())


def polars(folder: str, column: str) -> list[Any]:
    return pl.scan_delta(folder).select(column).collect()[column].to_list()


def duckdb_over_pyarrow(folder: str, column: str) -> list[Any]:
    rows = DeltaTable(folder).to_pyarrow_dataset()
    return [row[0] for row in duckdb.from_arrow(rows).project(f'"{column}"').fetchall()]


READERS: list[Reader] = [query_builder, pyarrow_table, polars, duckdb_over_pyarrow]
OVER_PYARROW: list[Reader] = [pyarrow_table, duckdb_over_pyarrow]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A target of three tables. Each state has the rows 1 to 9, of which a statement has deleted 5."""
    made = Lake(spark, tmp_path_factory.mktemp("readers"))
    made.log(WITH, [(1, 10, "c", 1, 60), (2, 20, "d", 1, 120), (2, 20, "c", 2, 120)])
    made.apply(WITH, 1)
    made.apply(WITH, 2)
    for table, has_vectors in ((WITH, True), (WITHOUT, False), (SPACED, False)):
        name = "A b" if table == SPACED else "A"
        schema = TableSchema(table, (COLUMNS[0], replace(COLUMNS[1], name=name)), ("ID",))
        replica = Replica(spark, made.place, schema, deletion_vectors=has_vectors)
        replica.prepare()
        rows = [(id_, 10 * id_, "x") for id_ in range(1, 10)]
        replica.append_rows(literal_frame(spark, rows, f"ID int, `{name}` int, __commit_lsn string").coalesce(1), 1)
        spark.sql(f"DELETE FROM {sql_name(made.place.layout.state(table))} WHERE ID = 5")
    return made


def folder(name: DeltaName) -> str:
    assert name.is_path
    return name.name


@pytest.mark.parametrize("reader", READERS)
def test_the_change_log_is_read_by_all(lake: Lake, reader: Reader) -> None:
    found = reader(folder(lake.place.layout.changes(WITH)), "op")
    expected = [row["op"] for row in read_changes(lake.spark, lake.target, WITH).collect()]
    assert sorted(map(str, found)) == sorted(map(str, expected)) == ["None", "c", "c", "d"]


@pytest.mark.parametrize("reader", READERS)
def test_a_state_without_deletion_vectors_is_read_by_all(lake: Lake, reader: Reader) -> None:
    assert sorted(reader(folder(lake.place.layout.state(WITHOUT)), "ID")) == [1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("reader", READERS)
def test_a_state_with_deletion_vectors_is_read_or_refused(lake: Lake, reader: Reader) -> None:
    state = lake.place.layout.state(WITH)
    details = lake.spark.sql(f"DESCRIBE DETAIL {sql_name(state)}").first()
    assert details is not None
    assert "deletionVectors" in details["tableFeatures"]
    if reader in OVER_PYARROW:
        with pytest.raises(DeltaProtocolError, match=r"reader features: {'deletionVectors'} .* not yet supported"):
            reader(folder(state), "ID")
    else:
        assert sorted(reader(folder(state), "ID")) == [1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("reader", READERS)
def test_a_column_name_with_a_blank_is_read_by_few(lake: Lake, reader: Reader) -> None:
    """Readers over pyarrow return nulls instead of an error, as the documentation warns."""
    state = folder(lake.place.layout.state(SPACED))
    if reader == polars:
        with pytest.raises(DeltaProtocolError, match=r"\(column mapping\), which polars does not support"):
            reader(state, "A b")
    elif reader in OVER_PYARROW:
        assert {*reader(state, "A b"), *reader(state, "ID")} == {None}
    else:
        assert sorted(reader(state, "A b")) == [10, 20, 30, 40, 60, 70, 80, 90]
