"""Db2's types: how each is selected over JDBC, and its type in Delta."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.errors import ConfigurationError

Clean = Literal["", "time"]

MAX_DELTA_PRECISION = 38
MICROSECOND_DIGITS = 6
SHORT_DECFLOAT_BYTES = 8

CHARACTER_TYPES = {"CHARACTER", "CHAR", "VARCHAR", "LONG VARCHAR"}
GRAPHIC_TYPES = {"GRAPHIC", "VARGRAPHIC", "LONG VARGRAPHIC", "DBCLOB"}
BINARY_TYPES = {"BINARY", "VARBINARY", "BLOB", "ROWID"}
UNCAPTURED_TYPES = {"BLOB", "CLOB", "DBCLOB", "XML", "BOOLEAN", "BINARY", "VARBINARY"}
"""Types whose values SQL Replication does not put into change tables: LOBs by indicator only, BOOLEAN not at all.

It replicates BINARY and VARBINARY only between z/OS systems (IBM, "General data restrictions for replication").
"""

FIXED = {
    "SMALLINT": "smallint",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "REAL": "float",
    "DOUBLE": "double",
    "FLOAT": "double",
    "DATE": "date",
    "BOOLEAN": "boolean",
    "CLOB": "string",
}

TIME_AS_NUMBER = "HOUR({c}) * 10000 + MINUTE({c}) * 100 + SECOND({c})"

LONG_TYPES = {"LONG VARCHAR", "LONG VARGRAPHIC"}
"""Types whose values Db2's log holds only where DATA CAPTURE says so (SYSCAT.TABLES.DATACAPTURE 'L')."""

DIGITS = {"DECIMAL", "NUMERIC", "DECFLOAT", "TIMESTAMP"}
"""Types whose values lose digits, and nothing else, in a column that has fewer digits."""

SORTED_ALIKE = {"SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC"}
"""Types that Spark sorts as every source does: code pages, collations and calendars do not affect them."""


@dataclass(frozen=True)
class TypeMapping:
    """How one column travels: `select` is SQL around `{c}`, `delta` a Spark DDL type, `clean` a last conversion."""

    select: str
    delta: str
    clean: Clean = ""


def map_type(table: TableId, column: Column) -> TypeMapping:
    """Return the lossless mapping of a column.

    TIMESTAMP has no zone in Db2 and becomes `timestamp_ntz`. With more than six digits it becomes text, as DECFLOAT
    does, because no Delta type holds either.

    TIME becomes text `HH:MM:SS`, because Db2 allows 24:00:00. It travels as a number, because its text depends on how
    the packages were bound (DATETIME). The USA format lacks the seconds.

    DECFLOAT, GRAPHIC, XML and TIMESTAMP beyond six digits have not been run against a real Db2.

    :raises ConfigurationError: when the type has no mapping (DISTINCT, ARRAY, ROW). The text names the column.
    """
    kind = column.type.upper()
    if kind in FIXED:
        return TypeMapping("{c}", FIXED[kind])
    if kind in CHARACTER_TYPES:
        return TypeMapping("{c}", "binary" if column.bit_data else "string")
    if kind in GRAPHIC_TYPES:
        return TypeMapping("{c}", "string")
    if kind in BINARY_TYPES:
        return TypeMapping("{c}", "binary")
    if kind in ("DECIMAL", "NUMERIC") and column.length <= MAX_DELTA_PRECISION:
        return TypeMapping("{c}", f"decimal({column.length},{column.scale})")
    if kind == "DECFLOAT":
        return TypeMapping("CAST({c} AS VARCHAR(42))", "string")
    if kind == "TIME":
        return TypeMapping(TIME_AS_NUMBER, "string", "time")
    if kind == "TIMESTAMP":
        return _timestamp(column)
    if kind == "XML":
        return TypeMapping("XMLSERIALIZE({c} AS CLOB)", "string")
    raise ConfigurationError(
        f"{table}: column {column.name!r} has type {column.type}, which has no mapping to Delta",
        "Exclude it with column.exclude.list.",
    )


def described(column: Column) -> str:
    """Return a column's type as its definition writes it."""
    match kind := column.type.upper():
        case "DECIMAL" | "NUMERIC":
            return f"{kind}({column.length},{column.scale})"
        case "TIMESTAMP":
            return f"{kind}({column.scale})"
        case "DECFLOAT":
            return f"{kind}({16 if column.length == SHORT_DECFLOAT_BYTES else 34})"
        case _ if kind in CHARACTER_TYPES | GRAPHIC_TYPES:
            return f"{kind}({column.length}){' FOR BIT DATA' if column.bit_data else ''}"
    return kind


def cuts(column: Column, carried: Column) -> bool:
    """Return whether a change table's column of this type silently shortens values of the source's column.

    A text that is too long for the column does not count: the agent cannot write it.
    """
    kind = column.type.upper()
    digits = (column.length, carried.length) if kind == "DECFLOAT" else (column.scale, carried.scale)
    is_other_type = (kind, column.bit_data) != (carried.type.upper(), carried.bit_data)
    return is_other_type or (kind in DIGITS and digits[0] > digits[1])


def sorts_alike(columns: Iterable[Column]) -> bool:
    """Return whether Spark sorts rows by these columns as the source does."""
    return all(column.type.upper() in SORTED_ALIKE and not column.nullable for column in columns)


def _timestamp(column: Column) -> TypeMapping:
    if column.scale <= MICROSECOND_DIGITS:
        return TypeMapping("{c}", "timestamp_ntz")
    return TypeMapping("CAST({c} AS VARCHAR(32))", "string")
