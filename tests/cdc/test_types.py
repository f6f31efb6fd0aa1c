import re
from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.cdc.types import (
    TIME_AS_NUMBER,
    UNCAPTURED_TYPES,
    TypeMapping,
    cuts,
    described,
    map_type,
    sorts_alike,
)
from airflow_provider_db2cdc.errors import ConfigurationError

TABLE = TableId("S", "T")

CASES = [
    (Column("C", "SMALLINT", 2), TypeMapping("{c}", "smallint")),
    (Column("C", "INTEGER", 4), TypeMapping("{c}", "int")),
    (Column("C", "BIGINT", 8), TypeMapping("{c}", "bigint")),
    (Column("C", "REAL", 4), TypeMapping("{c}", "float")),
    (Column("C", "DOUBLE", 8), TypeMapping("{c}", "double")),
    (Column("C", "FLOAT", 8), TypeMapping("{c}", "double")),
    (Column("C", "DECIMAL", 31, 2), TypeMapping("{c}", "decimal(31,2)")),
    (Column("C", "NUMERIC", 5, 0), TypeMapping("{c}", "decimal(5,0)")),
    (Column("C", "DECIMAL", 38, 38), TypeMapping("{c}", "decimal(38,38)")),
    (Column("C", "CHARACTER", 10), TypeMapping("{c}", "string")),
    (Column("C", "CHAR", 10), TypeMapping("{c}", "string")),
    (Column("C", "VARCHAR", 10), TypeMapping("{c}", "string")),
    (Column("C", "LONG VARCHAR", 32700), TypeMapping("{c}", "string")),
    (Column("C", "CHARACTER", 10, bit_data=True), TypeMapping("{c}", "binary")),
    (Column("C", "VARCHAR", 10, bit_data=True), TypeMapping("{c}", "binary")),
    (Column("C", "LONG VARCHAR", 32700, bit_data=True), TypeMapping("{c}", "binary")),
    (Column("C", "BINARY", 10), TypeMapping("{c}", "binary")),
    (Column("C", "VARBINARY", 10), TypeMapping("{c}", "binary")),
    (Column("C", "BLOB", 10), TypeMapping("{c}", "binary")),
    (Column("C", "ROWID", 40), TypeMapping("{c}", "binary")),
    (Column("C", "CLOB", 10), TypeMapping("{c}", "string")),
    (Column("C", "BOOLEAN", 1), TypeMapping("{c}", "boolean")),
    (Column("C", "DATE", 4), TypeMapping("{c}", "date")),
    (Column("C", "TIME", 3), TypeMapping(TIME_AS_NUMBER, "string", "time")),
    (Column("C", "TIMESTAMP", 7, 0), TypeMapping("{c}", "timestamp_ntz")),
    (Column("C", "TIMESTAMP", 10, 6), TypeMapping("{c}", "timestamp_ntz")),
]
NOT_RUN_ON_DB2 = [
    (Column("C", "TIMESTAMP", 11, 7), TypeMapping("CAST({c} AS VARCHAR(32))", "string")),
    (Column("C", "TIMESTAMP", 13, 12), TypeMapping("CAST({c} AS VARCHAR(32))", "string")),
    (Column("C", "DECFLOAT", 8), TypeMapping("CAST({c} AS VARCHAR(42))", "string")),
    (Column("C", "DECFLOAT", 16), TypeMapping("CAST({c} AS VARCHAR(42))", "string")),
    (Column("C", "GRAPHIC", 10), TypeMapping("{c}", "string")),
    (Column("C", "VARGRAPHIC", 10), TypeMapping("{c}", "string")),
    (Column("C", "LONG VARGRAPHIC", 10), TypeMapping("{c}", "string")),
    (Column("C", "DBCLOB", 10), TypeMapping("{c}", "string")),
    (Column("C", "XML"), TypeMapping("XMLSERIALIZE({c} AS CLOB)", "string")),
]


def name_of(case: tuple[Column, TypeMapping]) -> str:
    column = case[0]
    return f"{column.type}({column.length},{column.scale})" + (" bit data" if column.bit_data else "")


@pytest.mark.parametrize(
    ("column", "mapping"),
    [
        *(pytest.param(*case, id=name_of(case)) for case in CASES),
        *(pytest.param(*case, id=f"{name_of(case)} not run on Db2") for case in NOT_RUN_ON_DB2),
    ],
)
def test_each_type_is_read_and_stored_without_loss(column: Column, mapping: TypeMapping) -> None:
    assert map_type(TABLE, column) == mapping


def test_type_names_are_known_in_any_case() -> None:
    assert map_type(TABLE, Column("C", "varchar", 5)) == TypeMapping("{c}", "string")


@pytest.mark.parametrize(
    ("column", "longest"),
    [
        (Column("C", "DECFLOAT", 16), "-1.234567890123456789012345678901234E-6143"),
        (Column("C", "TIMESTAMP", 13, 12), "9999-12-31-23.59.59.999999999999"),
    ],
    ids=lambda value: getattr(value, "type", None),
)
def test_the_text_of_a_type_has_room_for_its_longest_value(column: Column, longest: str) -> None:
    [room] = re.findall(r"CHAR\((\d+)\)", map_type(TABLE, column).select)
    assert len(longest) <= int(room)


@pytest.mark.parametrize(
    "column",
    [*(Column("C", kind) for kind in ("DISTINCT", "ARRAY", "ROW", "REFERENCE", "")), Column("C", "DECIMAL", 39)],
)
def test_a_type_without_a_lossless_mapping_is_refused_by_column(column: Column) -> None:
    with pytest.raises(ConfigurationError, match=r"S\.T: column 'C' has type .*no mapping") as raised:
        map_type(TABLE, column)
    assert "column.exclude.list" in raised.value.remedy


def test_every_uncaptured_type_has_a_mapping_for_snapshots() -> None:
    for kind in UNCAPTURED_TYPES:
        assert map_type(TABLE, Column("C", kind, 1)).delta


@pytest.mark.parametrize(
    ("columns", "alike"),
    [
        ([Column("A", "INTEGER", nullable=False), Column("B", "decimal", 5, 2, nullable=False)], True),
        ([Column("A", "BIGINT", nullable=False), Column("B", "VARCHAR", 5, nullable=False)], False),
        ([Column("A", "SMALLINT")], False),
        ([Column("A", "DOUBLE", nullable=False)], False),
    ],
    ids=["numbers", "a text", "nulls", "NaN and -0.0"],
)
def test_spark_sorts_exact_numbers_as_any_source_does(columns: list[Column], alike: bool) -> None:
    assert sorts_alike(columns) is alike


@pytest.mark.parametrize(
    ("source", "carried", "expected"),
    [
        (("DECIMAL", 11, 4), ("DECIMAL", 9, 2), True),
        (("DECIMAL", 11, 2), ("DECIMAL", 9, 2), False),
        (("DECIMAL", 9, 2), ("DECIMAL", 11, 4), False),
        (("TIMESTAMP", 10, 6), ("TIMESTAMP", 8, 3), True),
        (("TIMESTAMP", 8, 3), ("TIMESTAMP", 10, 6), False),
        (("DECFLOAT", 16), ("DECFLOAT", 8), True),
        (("DECFLOAT", 8), ("DECFLOAT", 16), False),
        (("DOUBLE", 8), ("REAL", 4), True),
        (("BIGINT", 8), ("INTEGER", 4), True),
        (("VARCHAR", 20), ("VARCHAR", 9), False),
        (("VARCHAR", 20), ("CHARACTER", 20), True),
        (("CHARACTER", 4, 0, True, True), ("CHARACTER", 4), True),
        (("INTEGER", 4, 0, False), ("INTEGER", 4), False),
    ],
    ids=str,
)
def test_change_table_column_with_other_digits_cuts_values(
    source: tuple[Any, ...], carried: tuple[Any, ...], expected: bool
) -> None:
    assert cuts(Column("C", *source), Column("C", *carried)) is expected


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (("DECIMAL", 11, 4), "DECIMAL(11,4)"),
        (("TIMESTAMP", 7, 0), "TIMESTAMP(0)"),
        (("TIMESTAMP", 13, 12), "TIMESTAMP(12)"),
        (("DECFLOAT", 8), "DECFLOAT(16)"),
        (("DECFLOAT", 16), "DECFLOAT(34)"),
        (("VARCHAR", 20, 0, True, True), "VARCHAR(20) FOR BIT DATA"),
        (("INTEGER", 4), "INTEGER"),
    ],
    ids=str,
)
def test_type_is_described_as_it_is_defined(column: tuple[Any, ...], text: str) -> None:
    assert described(Column("C", *column)) == text
