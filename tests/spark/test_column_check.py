"""Columns that differ from those of the plan are found in the catalog's rows of a table and its change table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.jdbc.column_check import column_errors
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection

TABLE, CHANGES = TableId("S", "T"), TableId("ASNCDC", "CDC_T")
ID, A = Column("ID", "INTEGER", 4, 0, False), Column("A", "DECIMAL", 5, 2)
B, LOB = Column("B", "INTEGER", 4, 0), Column("L", "CLOB", 99, 0)


class Catalog(DriverConnection):
    """A connection that knows the columns of a table and of its change table."""

    def __init__(self, source: list[Column], carried: list[Column]) -> None:
        super().__init__(jvm=None, connection=None)
        self.tables = {TABLE: source, CHANGES: carried}

    def text_rows(self, select: str) -> list[list[str | None]]:
        return [_row(table, column) for table, columns in self.tables.items() for column in columns]


def _row(table: TableId, column: Column) -> list[str | None]:
    sizes = [str(column.length), str(column.scale)]
    return [f"{table.schema}  ", table.name, column.name, column.type, *sizes, "NY"[column.nullable], "1208"]


def planned(*missing: str, left_out: tuple[str, ...] = (), carried: tuple[str, ...] = ("ID", "A")) -> TableTask:
    identity, columns = CaptureIdentity(str(CHANGES), "", "", ""), tuple(Column(name, "INTEGER") for name in carried)
    capture = CaptureRegistration(
        TABLE, CHANGES.schema, CHANGES.name, "A", "", "DI", None, None, None, columns, identity
    )
    schema = TableSchema(TABLE, (ID, A), ("ID",), uncaptured_columns=missing, excluded_columns=left_out)
    return TableTask(schema, capture, None, Lsn(bytes(16)), 0)


@pytest.mark.parametrize(
    ("task", "source", "carried", "names"),
    [
        (planned(), [ID, A], [ID, A], ""),
        (planned(), [ID, A, B], [ID, A], ""),
        (planned(), [ID, A, B], [ID, A, B], "B"),
        (planned(carried=("ID", "A", "B")), [ID, A, B], [ID, A, B], "B"),
        (planned(left_out=("B",)), [ID, A, B], [ID, A, B], ""),
        (planned("B"), [ID, A, B], [ID, A, B], "B"),
        (planned("L", carried=("ID", "A", "L")), [ID, A, LOB], [ID, A, LOB], ""),
        (planned(), [ID, replace(A, length=9, scale=4)], [ID, A], "A"),
        (planned(), [ID], [ID, A], "A"),
        (planned(), [], [], "ID, A"),
    ],
    ids=[
        "as it was", "not captured", "came", "first in the change table", "excluded", "captured by now",
        "of a type that is not read", "widened", "dropped", "the table is gone",
    ],
)  # fmt: skip
def test_columns_that_would_be_lost_or_cut_are_reported(
    task: TableTask, source: list[Column], carried: list[Column], names: str
) -> None:
    errors = column_errors([task], Catalog(source, carried))
    assert [*errors] == ([TABLE] if names else [])
    assert all(f"S.T: columns {names} changed, or came, while" in str(error) for error in errors.values())


def test_without_tables_no_statement_is_run() -> None:
    assert column_errors([], Catalog([], [])) == {}


@pytest.mark.parametrize("spelled", ["T", "T "])
def test_a_catalog_name_with_a_final_blank_is_the_same_table(spelled: str) -> None:
    task = planned()
    catalog = Catalog([], [ID, A])
    catalog.tables[TableId("S", spelled)] = [ID, A]
    assert column_errors([task], catalog) == {}
