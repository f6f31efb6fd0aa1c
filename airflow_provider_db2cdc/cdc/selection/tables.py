"""The tables, columns and keys that a pipeline carries, by Debezium's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from airflow_provider_db2cdc.cdc.selection import message_key, pattern
from airflow_provider_db2cdc.cdc.selection.message_key import KeyRule, NamedKey
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

Patterns = Sequence[str]

TABLE_INCLUDE, TABLE_EXCLUDE = "table.include.list", "table.exclude.list"
COLUMN_INCLUDE, COLUMN_EXCLUDE = "column.include.list", "column.exclude.list"
SNAPSHOT_INCLUDE = "snapshot.include.collection.list"


@dataclass(frozen=True)
class Selection:
    """Patterns of `schema.table` and `schema.table.column` (cdc.selection.pattern).

    Only one list of each pair may be given. Without a list every registered table and every captured column is carried.
    `message_key` is the text of message.key.columns (cdc.selection.message_key).

    :raises ConfigurationError: when both lists of a pair are given, or an entry is invalid.
    """

    table_include: tuple[str, ...] = ()
    table_exclude: tuple[str, ...] = ()
    column_include: tuple[str, ...] = ()
    column_exclude: tuple[str, ...] = ()
    message_key: str = ""

    def __post_init__(self) -> None:
        if self.table_include and self.table_exclude:
            raise ConfigurationError(f"{TABLE_INCLUDE} and {TABLE_EXCLUDE} are both given", "Give one.")
        if self.column_include and self.column_exclude:
            raise ConfigurationError(f"{COLUMN_INCLUDE} and {COLUMN_EXCLUDE} are both given", "Give one.")
        check_patterns(TABLE_INCLUDE, self.table_include)
        check_patterns(TABLE_EXCLUDE, self.table_exclude)
        check_patterns(COLUMN_INCLUDE, self.column_include, parts=3)
        check_patterns(COLUMN_EXCLUDE, self.column_exclude, parts=3)
        _ = self.key_rules

    @cached_property
    def key_rules(self) -> tuple[KeyRule, ...]:
        """The entries of message.key.columns."""
        return message_key.parse_key_rules(self.message_key)

    def tables(self, registered: Iterable[TableId]) -> list[TableId]:
        """Return the chosen tables among the registered ones, sorted."""
        return [table for table in sorted(set(registered)) if self.chooses(table)]

    def chooses(self, table: TableId) -> bool:
        """Return whether the lists choose a table, registered or not."""
        return _passes(table.parts, self.table_include, self.table_exclude)

    def named_key(self, table: TableId) -> NamedKey | None:
        """Return the key that message.key.columns names for the table, None where the table's own is used."""
        return message_key.named_key(self.key_rules, table)

    def columns(self, table: TableId, names: Iterable[str], key: Sequence[str]) -> list[str]:
        """Return the chosen columns in their order. As in Debezium, the key's columns are always chosen."""
        return [
            name
            for name in names
            if name in key or _passes((*table.parts, name), self.column_include, self.column_exclude)
        ]


def matches(entry: str, table: TableId) -> bool:
    """Return whether an entry of an include or exclude list names the table."""
    return pattern.is_match(entry, table.parts)


def check_patterns(name: str, entries: Patterns, parts: int = 2) -> None:
    """Refuse an entry of the list `name` that cannot name any table (two parts) or column (three parts).

    :raises ConfigurationError: when there is one.
    """
    for entry in entries:
        try:
            pattern.check_pattern(entry, parts)
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: {error.problem}", error.remedy) from error


def _passes(names: pattern.Names, include: Patterns, exclude: Patterns) -> bool:
    if include:
        return any(pattern.is_match(entry, names) for entry in include)
    return not any(pattern.is_match(entry, names) for entry in exclude)
