"""Statements on SYSCAT: columns and indexes of many tables at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.cdc.types import CHARACTER_TYPES
from airflow_provider_db2cdc.sql.query import Query


def tables(tables: Sequence[TableId]) -> Query:
    """Return the select of the tables that exist.

    Columns: TABSCHEMA, TABNAME, CREATE_TIME, DATACAPTURE, EXTENDED_ROW_SIZE (since Db2 10.5).
    """
    return Query(
        "SELECT TABSCHEMA, TABNAME, CREATE_TIME, DATACAPTURE, EXTENDED_ROW_SIZE FROM SYSCAT.TABLES "
        f"WHERE {_any_of(tables, 'TABSCHEMA', 'TABNAME')}",
        _names(tables),
    )


def created_then(created: Mapping[TableId, str]) -> Query:
    """Return the select of the tables that were created at these times (ISO texts): TABSCHEMA, TABNAME."""
    conditions = " OR ".join(["(TABSCHEMA = ? AND TABNAME = ? AND CREATE_TIME = TIMESTAMP(?))"] * len(created))
    values = [text for table, time in created.items() for text in (table.schema, table.name, time.replace("T", " "))]
    return Query(f"SELECT TABSCHEMA, TABNAME FROM SYSCAT.TABLES WHERE {conditions}", tuple(values))


def columns(tables: Sequence[TableId]) -> Query:
    """Return the select of the tables' columns in catalog order.

    Columns: TABSCHEMA, TABNAME, COLNAME, TYPENAME, LENGTH, SCALE, NULLS, CODEPAGE (0 is bit data for character types).
    """
    return Query(
        "SELECT TABSCHEMA, TABNAME, COLNAME, TYPENAME, LENGTH, SCALE, NULLS, CODEPAGE FROM SYSCAT.COLUMNS "
        f"WHERE {_any_of(tables, 'TABSCHEMA', 'TABNAME')} ORDER BY TABSCHEMA, TABNAME, COLNO",
        _names(tables),
    )


def column_of(row: Sequence[Any]) -> Column:
    """Return the column that a row of `columns` describes, without the table's name. Numbers may be texts."""
    name, kind, length, scale, nulls, codepage = row
    bit_data = kind.rstrip() in CHARACTER_TYPES and int(codepage) == 0
    return Column(name, kind.rstrip(), int(length), int(scale or 0), nulls != "N", bit_data)


def indexes(tables: Sequence[TableId]) -> Query:
    """Return the select of the tables' indexes: one row per column, in the index's order, without INCLUDE columns.

    Columns: TABSCHEMA, TABNAME, INDSCHEMA, INDNAME, UNIQUERULE (P primary key, U unique, D neither), NULLKEYS, COLNAME.
    With NULLKEYS N, the index omits rows whose key is null. Such rows need not be unique.
    """
    return Query(
        "SELECT I.TABSCHEMA, I.TABNAME, I.INDSCHEMA, I.INDNAME, I.UNIQUERULE, I.NULLKEYS, U.COLNAME "
        "FROM SYSCAT.INDEXES I JOIN SYSCAT.INDEXCOLUSE U ON U.INDSCHEMA = I.INDSCHEMA AND U.INDNAME = I.INDNAME "
        f"WHERE U.COLORDER <> 'I' AND ({_any_of(tables, 'I.TABSCHEMA', 'I.TABNAME')}) "
        "ORDER BY I.TABSCHEMA, I.TABNAME, I.INDSCHEMA, I.INDNAME, U.COLSEQ",
        _names(tables),
    )


def _any_of(tables: Sequence[TableId], schema: str, name: str) -> str:
    return " OR ".join([f"({schema} = ? AND {name} = ?)"] * len(tables))


def _names(tables: Sequence[TableId]) -> tuple[str, ...]:
    return tuple(part for table in tables for part in (table.schema, table.name))
