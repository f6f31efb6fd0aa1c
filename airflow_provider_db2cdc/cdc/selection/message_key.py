"""Keys that an operator names in place of the tables' own: Debezium's message.key.columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.selection.table_names import check_pattern, is_named
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError

PROPERTY = "message.key.columns"
FORM = "Write <schema.table>:<column>,<column>;<schema.table>:<column>."

ENTRIES = re.compile(r'(?:[^";]|"[^"]*")+')
COLUMNS = re.compile(r'(?:[^",]|"[^"]*")+')
ENTRY = re.compile(r'(.+):((?:[^":]|"[^"]*")+)', re.DOTALL)
COLUMN = re.compile(r'"(?:[^"]|"")+"|[^"]+')


@dataclass(frozen=True)
class NamedKey:
    """The columns that are named as one table's key, as written: `"Id"` exactly, others without regard to case."""

    columns: tuple[str, ...]

    def found(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the key's column names among a table's, each once and in the order of the key."""
        known = list(names)
        return tuple(dict.fromkeys(name for column in self.columns if (name := _find(column, known)) is not None))

    def lacking(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the named columns that are not among a table's."""
        known = list(names)
        return tuple(column for column in self.columns if _find(column, known) is None)


@dataclass(frozen=True)
class KeyRule:
    """One entry of the property: the key of the tables that a pattern names, as `is_named` reads it."""

    pattern: str
    columns: tuple[str, ...]

    def covers(self, table: TableId) -> bool:
        """Return whether the entry applies to the table."""
        return is_named(self.pattern, table)


def parse_key_rules(text: str) -> tuple[KeyRule, ...]:
    """Return the entries of the property, none for an empty one.

    The last colon of an entry ends its table, so a regex may contain colons.

    :raises ConfigurationError: when an entry has no colon, a pattern is not a regular expression, or quotes are wrong.
    """
    if text.count('"') % 2:
        raise ConfigurationError(f"{PROPERTY} leaves a double quote open", "Close it.")
    return tuple(_rule(entry) for entry in map(str.strip, ENTRIES.findall(text)) if entry)


def named_key(rules: Iterable[KeyRule], table: TableId) -> NamedKey | None:
    """Return the key that the entries name for a table, None where no entry applies.

    Where several entries apply, the key has the columns of all of them.
    """
    columns = tuple(column for rule in rules if rule.covers(table) for column in rule.columns)
    return NamedKey(columns) if columns else None


def _rule(entry: str) -> KeyRule:
    parts = ENTRY.fullmatch(entry)
    pattern, listed = (part.strip() for part in parts.groups()) if parts else ("", "")
    columns = tuple(column for column in map(str.strip, COLUMNS.findall(listed)) if column)
    if not pattern or not columns:
        raise ConfigurationError(f"{PROPERTY}: '{entry}' is not a table, a colon and columns", FORM)
    for column in columns:
        if COLUMN.fullmatch(column) is None:
            raise ConfigurationError(f"{PROPERTY}: '{column}' is not a column's name", 'Quote the whole of it: "a b".')
    try:
        check_pattern(pattern)
    except SignalError as error:
        raise ConfigurationError(f"{PROPERTY}: {error.problem}", error.remedy) from None
    return KeyRule(pattern, columns)


def _find(column: str, names: list[str]) -> str | None:
    """Return the name that a written column means.

    The result is None if there is no such name, or several that differ only in case.
    """
    if column.startswith('"'):
        exact = column[1:-1].replace('""', '"')
        return exact if exact in names else None
    if column in names:
        return column
    alike = [name for name in names if name.upper() == column.upper()]
    return alike[0] if len(alike) == 1 else None
