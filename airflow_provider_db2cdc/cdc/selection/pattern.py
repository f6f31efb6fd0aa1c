r"""Patterns: how an entry of a list, or of a signal's data collections, names tables or columns.

A pattern is either a quoted name or a regular expression of Python's `re`. A quoted name (`"S"."ORDER$"`,
`"S"."T"."COL"`) is compared exactly. An expression matches the whole of schema.table, or schema.table.column, without
regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache

from airflow_provider_db2cdc.cdc.selection.java_syntax import find_java
from airflow_provider_db2cdc.errors import ConfigurationError

Names = tuple[str, ...]
"""Schema and table, or schema, table and column."""

PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')
QUOTED = re.compile(rf"(?:{PART.pattern})(?:\.(?:{PART.pattern}))*")
NO_EXPRESSION = (re.error, OverflowError, RecursionError)
"""The errors of `re` for an invalid expression, for one that repeats too often, and for one nested too deep."""

FORMS = {2: '"schema"."table"', 3: '"schema"."table"."column"'}
PLAIN = "Put a backslash before each sign that stands for itself, or write {}."
NEAR = 0.8
MAX_COMPARED = 20_000
"""Names that are compared with a misspelt one. That takes about a second."""


def check_pattern(pattern: str, parts: int = 2) -> None:
    """Refuse a pattern that cannot name any table or column with this number of parts.

    :raises ConfigurationError: when its quotes are wrong, it is not a regular expression, or its syntax is Java's.
    """
    if '"' in pattern:
        unquoted(pattern, parts)
    else:
        _compiled(pattern, parts)


def is_match(pattern: str, names: Names) -> bool:
    """Return whether a pattern names the table or column.

    :raises ConfigurationError: when the pattern is invalid (`check_pattern`).
    """
    if '"' in pattern:
        return unquoted(pattern, len(names)) == names
    return _compiled(pattern, len(names)).fullmatch(".".join(names)) is not None


@lru_cache(maxsize=10_000)
def unquoted(pattern: str, parts: int) -> Names:
    """Return the parts of a quoted name. A part may be without quotes.

    :raises ConfigurationError: when it is not a quoted name with this number of parts.
    """
    names = PART.findall(pattern) if QUOTED.fullmatch(pattern) else []
    if len(names) != parts:
        raise ConfigurationError(f"'{pattern}' is not a quoted name", f"Write it as {FORMS[parts]}.")
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in names)


def is_about(pattern: str, table: Names) -> bool:
    """Return whether the part of a column's pattern before the column matches the table."""
    if '"' in pattern:
        return unquoted(pattern, 3)[:2] == table
    return any(_compiles_to_match(start, table) for start in _starts(pattern))


def literal_names(pattern: str) -> list[Names]:
    """Return the names that a pattern means if read without regular expressions: as it is, and in capitals."""
    if '"' in pattern:
        return [tuple(part[1:-1].replace('""', '"') if part[0] == '"' else part for part in PART.findall(pattern))]
    parts = tuple(_literal(pattern).split("."))
    return list(dict.fromkeys([parts, tuple(part.upper() for part in parts)]))


def suggest(pattern: str, known: Iterable[str]) -> str:
    """Return a sentence with known names that a pattern without a match may mean, empty if there are none."""
    names = sorted(set(known))
    meant = ".".join(literal_names(pattern)[0])
    if exact := [name for name in names if name.upper() == meant.upper()]:
        written = re.escape(exact[0])
        return f"Write {written} for {exact[0]}: signs such as $ need a backslash, and quoted names are exact."
    by_capitals = {name.upper(): name for name in names[:MAX_COMPARED]}
    if near := get_close_matches(meant.upper(), by_capitals, cutoff=NEAR):
        return f"Near it: {', '.join(by_capitals[name] for name in near)}."
    return ""


def _starts(pattern: str) -> Iterator[str]:
    return (pattern[: dot.start()] for dot in re.finditer(r"\\?\.", pattern) if dot.start() > 0)


def _compiles_to_match(pattern: str, table: Names) -> bool:
    try:
        return is_match(pattern, table)
    except ConfigurationError:
        return False


def _literal(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern)


@lru_cache(maxsize=10_000)
def _compiled(pattern: str, parts: int) -> re.Pattern[str]:
    """Compile an expression once.

    Python itself caches 512 expressions. Beyond that it compiles all of them again for each name.
    """
    if java := find_java(pattern):
        syntax, remedy = java
        raise ConfigurationError(f"'{pattern}' has {syntax}, and patterns are regular expressions of Python", remedy)
    try:
        return re.compile(pattern, re.IGNORECASE)
    except NO_EXPRESSION as error:
        raise ConfigurationError(
            f"'{pattern}' is not a regular expression: {error}", PLAIN.format(FORMS[parts])
        ) from None
