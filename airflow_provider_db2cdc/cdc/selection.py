"""What a pipeline carries, by Debezium's rules: which tables, which of their columns, and by which key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from airflow_provider_db2cdc.cdc import key
from airflow_provider_db2cdc.cdc.collection import NO_EXPRESSION
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

Patterns = Sequence[str]

SNAPSHOT_INCLUDE = "snapshot.include.collection.list"


@dataclass(frozen=True)
class Selection:
    """Regular expressions on `schema.table` and `schema.table.column`: anchored, without regard to case.

    Of each pair only one list may be given. Without any list every registered table, every captured column is taken.
    `message_key` is the text of message.key.columns (cdc.key).
    """

    table_include: tuple[str, ...] = ()
    table_exclude: tuple[str, ...] = ()
    column_include: tuple[str, ...] = ()
    column_exclude: tuple[str, ...] = ()
    message_key: str = ""

    def __post_init__(self) -> None:
        for kind, include, exclude in (
            ("table", self.table_include, self.table_exclude),
            ("column", self.column_include, self.column_exclude),
        ):
            if include and exclude:
                raise ConfigurationError(f"{kind}.include.list and {kind}.exclude.list are both given", "Give one.")
            check_patterns(f"{kind}.include.list", include)
            check_patterns(f"{kind}.exclude.list", exclude)
        _ = self.key_rules

    @cached_property
    def key_rules(self) -> tuple[key.KeyRule, ...]:
        """The entries of message.key.columns."""
        return key.parse_key_rules(self.message_key)

    def tables(self, registered: Iterable[TableId]) -> list[TableId]:
        """Return the chosen ones of the registered tables, sorted.

        :raises ConfigurationError: an include pattern, or one of message.key.columns, matches no registered table.
        """
        tables = sorted(set(registered))
        chosen = [table for table in tables if self.chooses(table)]
        check_included("table.include.list", self.table_include, tables, _no_registered)
        self.check_key_rules(tables)
        return chosen

    def chooses(self, table: TableId) -> bool:
        """Whether the lists choose a table, registered or not."""
        return _passes(str(table), self.table_include, self.table_exclude)

    def check_key_rules(self, registered: Iterable[TableId]) -> None:
        """Refuse a pattern of message.key.columns that no registered table matches.

        :raises ConfigurationError: there is one.
        """
        tables = sorted(set(registered))
        for rule in self.key_rules:
            if not any(map(rule.covers, tables)):
                raise _no_registered(key.PROPERTY, rule.pattern, tables)

    def named_key(self, table: TableId) -> key.NamedKey | None:
        """Return the key that message.key.columns names for the table, None where its own is to be taken."""
        return key.named_key(self.key_rules, table)

    def columns(self, table: TableId, names: Iterable[str], key: Sequence[str]) -> list[str]:
        """Return the chosen columns in their order; the key's columns are always chosen, as in Debezium."""
        return [
            name
            for name in names
            if name in key or _passes(f"{table}.{name}", self.column_include, self.column_exclude)
        ]


def matches(pattern: str, table: TableId) -> bool:
    """Whether a pattern of an include or exclude list names the table."""
    return _matches(pattern, str(table))


def check_patterns(name: str, patterns: Patterns) -> None:
    """Refuse a pattern of the list `name` that is no regular expression.

    :raises ConfigurationError: there is one.
    """
    for pattern in patterns:
        try:
            re.compile(pattern)
        except NO_EXPRESSION as error:
            raise ConfigurationError(f"{name}: {pattern!r} is not a regular expression: {error}") from error


def _no_carried(name: str, pattern: str, tables: Sequence[TableId]) -> ConfigurationError:
    return ConfigurationError(
        f"{name}: {pattern!r} matches no table of this pipeline",
        f"Its tables are {', '.join(map(str, tables)) or 'none'}. Patterns match the whole of schema.table.",
    )


def check_included(
    name: str,
    patterns: Patterns,
    tables: Iterable[TableId],
    error: Callable[[str, str, Sequence[TableId]], ConfigurationError] = _no_carried,
) -> None:
    """Refuse a pattern of the list `name` that none of the tables, the pipeline's by default, matches.

    :raises ConfigurationError: there is one; as `error` tells it.
    """
    known = sorted(set(tables))
    for pattern in patterns:
        if not any(matches(pattern, table) for table in known):
            raise error(name, pattern, known)


def _no_registered(name: str, pattern: str, tables: Sequence[TableId]) -> ConfigurationError:
    return ConfigurationError(
        f"{name}: {pattern!r} matches no registered table",
        f"Registered are: {', '.join(map(str, tables)) or 'none'}. Patterns match the whole of "
        "schema.table; register the table for capture (ASNCDC.ADDTABLE, then a reinit) or correct the pattern.",
    )


def _passes(name: str, include: Patterns, exclude: Patterns) -> bool:
    if include:
        return any(_matches(pattern, name) for pattern in include)
    return not any(_matches(pattern, name) for pattern in exclude)


def _matches(pattern: str, name: str) -> bool:
    return _compiled(pattern).fullmatch(name) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile once: Python itself keeps 512 expressions, and compiles all of more than that for each name."""
    return re.compile(pattern, re.IGNORECASE)
