"""Db2's types: how each is selected over JDBC and what it becomes in Delta."""

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
"""Types whose values SQL Replication does not put into change tables (LOBs by indicator only, BOOLEAN not at all).

BINARY and VARBINARY it replicates between z/OS systems alone (IBM's "General data restrictions for replication").
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
"""Types of which Db2's log holds the values only where DATA CAPTURE says so (SYSCAT.TABLES.DATACAPTURE 'L')."""

DIGITS = {"DECIMAL", "NUMERIC", "DECFLOAT", "TIMESTAMP"}
"""Types whose values lose digits, and not more, where they are put into a column of fewer."""

SORTED_ALIKE = {"SMALLINT", "INTEGER", "BIGINT", "DECIMAL", "NUMERIC"}
"""Types whose values Spark sorts as every source does: no code page, collation or calendar bears on them."""


@dataclass(frozen=True)
class TypeMapping:
    """How one column travels: `select` is SQL around `{c}`, `delta` a Spark DDL type, `clean` a last touch."""

    select: str
    delta: str
    clean: Clean = ""


def map_type(table: TableId, column: Column) -> TypeMapping:
    """Return the lossless mapping of a column.

    TIMESTAMP has no zone in Db2 and becomes `timestamp_ntz`; beyond six digits it becomes text, as DECFLOAT does
    (no Delta type holds either). TIME becomes text `HH:MM:SS`, because Db2 allows 24:00:00; it travels as a number, for
    its text is as the packages were bound (DATETIME), and lacks the seconds where that was USA.
    DECFLOAT, GRAPHIC, XML and TIMESTAMP beyond six digits have not been run against a real Db2.

    :raises ConfigurationError: a type without a mapping (DISTINCT, ARRAY, ROW), with the column's name.
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
        "Leave it out with column.exclude.list.",
    )


def described(column: Column) -> str:
    """Return a column's type as its definition has it."""
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
    """Return whether a change table's column of this type cuts values of the source's column without a word.

    A text that is too long for it is no such case: the agent cannot write it.
    """
    kind = column.type.upper()
    digits = (column.length, carried.length) if kind == "DECFLOAT" else (column.scale, carried.scale)
    other = (kind, column.bit_data) != (carried.type.upper(), carried.bit_data)
    return other or (kind in DIGITS and digits[0] > digits[1])


def sorts_alike(columns: Iterable[Column]) -> bool:
    """Return whether Spark sorts rows by these columns as the source does."""
    return all(column.type.upper() in SORTED_ALIKE and not column.nullable for column in columns)


def _timestamp(column: Column) -> TypeMapping:
    if column.scale <= MICROSECOND_DIGITS:
        return TypeMapping("{c}", "timestamp_ntz")
    return TypeMapping("CAST({c} AS VARCHAR(32))", "string")
