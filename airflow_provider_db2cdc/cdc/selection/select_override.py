"""Selects that snapshots read in place of whole tables.

They are Debezium's snapshot.select.statement.overrides, and the filters of its blocking snapshots.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

PROPERTY = "snapshot.select.statement.overrides"
NO_CODE = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Literals, quoted names and comments of a statement."""

UNCOMMITTED = re.compile(r"\bWITH\s+UR\b(?!\s*(?:\(|AS\b))", re.IGNORECASE)
"""An isolation clause, which a subselect may have too. `WITH UR AS (...)` is a table expression of that name."""


SELECT = re.compile(r"SELECT\b", re.IGNORECASE)


def is_select(filter_: str) -> bool:
    """Return whether a filter is a select, as in Debezium's blocking snapshots, and not a condition."""
    return SELECT.match(filter_) is not None


def reads_uncommitted(select: str) -> bool:
    """Return whether a select asks for rows that are not committed."""
    return UNCOMMITTED.search(NO_CODE.sub(" ", select)) is not None


def check_overrides(listed: Iterable[str], selects: Mapping[str, str]) -> None:
    """Refuse a list of tables and their selects that do not match, and selects of uncommitted rows.

    :raises ConfigurationError: when a table has no select, or a select belongs to no listed table.
    :raises ConfigurationError: when a name is not the name of a table, or a select has WITH UR.
    """
    names = {_meant(name): name for name in listed}
    given = {_meant(name): name for name, select in selects.items() if select.strip()}
    for name in (*names.values(), *given.values()):
        parse_table(name, PROPERTY)
    for name in (names[meant] for meant in names.keys() - given.keys()):
        raise ConfigurationError(f"{PROPERTY}.{name} is missing, though {PROPERTY} names the table", "Give its select.")
    for name in (given[meant] for meant in given.keys() - names.keys()):
        raise ConfigurationError(
            f"{PROPERTY}.{name} is given, though {PROPERTY} does not name the table",
            "Add it to that list, or remove its select.",
        )
    for name in (name for name, select in selects.items() if reads_uncommitted(select)):
        raise ConfigurationError(
            f"{PROPERTY}.{name} reads uncommitted rows (WITH UR): a row of a transaction that is rolled back later "
            "would come into the target, and no change would take it out",
            "Remove WITH UR. WITH CS, RS or RR may stand there.",
        )


def selects_of(selects: Mapping[str, str], tables: Collection[TableId]) -> dict[TableId, str]:
    """Return the selects by the tables that their names mean.

    Names with double quotes are compared exactly, others without regard to case.

    :raises ConfigurationError: when a name means none of the pipeline's tables, or several, or a table has two selects.
    """
    by_table: dict[TableId, str] = {}
    for name, select in selects.items():
        table = _table(name, tables)
        if by_table.setdefault(table, select) != select:
            raise ConfigurationError(f"{PROPERTY}: {table} has two selects", "Give one.")
    return by_table


def is_overridden(table: TableId, selects: Mapping[str, str]) -> bool:
    """Return whether the name of one of the selects may mean the table."""
    names = [name for name, select in selects.items() if select.strip()]
    return any(parse_table(name, PROPERTY) == table or _is_alike(name, table) for name in names)


def _table(name: str, tables: Collection[TableId]) -> TableId:
    exact = parse_table(name, PROPERTY)
    if exact in tables:
        return exact
    alike = [table for table in sorted(tables) if _is_alike(name, table)]
    if len(alike) == 1:
        return alike[0]
    raise ConfigurationError(
        f"{PROPERTY}: '{name}' {'may be several tables' if alike else 'is no table'} of this pipeline",
        f"Name one of {shortened(alike or sorted(tables))}, with double quotes where case matters.",
    )


def _is_alike(name: str, table: TableId) -> bool:
    return '"' not in name and str(table).upper() == name.upper()


def _meant(name: str) -> str:
    return name if '"' in name else name.upper()
