"""Data collections: how a signal names tables, and filters of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.selection import pattern as patterns
from airflow_provider_db2cdc.cdc.selection.regex_guard import is_endless
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, SignalError

TEXT_OR_NAME = {"'": "text", '"': "quoted name"}


@dataclass(frozen=True)
class Condition:
    """A filter for the tables that `pattern` names: only rows that satisfy it are read.

    For a blocking snapshot it may be a select, which is read in place of the table.
    """

    pattern: str
    filter: str

    def names(self, table: TableId) -> bool:
        """Return whether it applies to the table. `*` means every table that a request names."""
        return self.pattern == "*" or is_named(self.pattern, table)


def match_tables(pattern: str, tables: Iterable[TableId]) -> list[TableId]:
    """Return the tables that a data collection names.

    :raises SignalError: when it does not compile, or matches none of the tables.
    """
    ordered = sorted(set(tables))
    matching = [table for table in ordered if is_named(pattern, table)]
    if not matching:
        listed = shortened(ordered) or "none"
        remedy = patterns.suggest(pattern, map(str, ordered)) or f"Its tables are {listed}."
        raise SignalError(f"'{pattern}' matches no table of this pipeline", remedy)
    return matching


def is_named(pattern: str, table: TableId) -> bool:
    """Return whether a pattern names the table, as in table.include.list (cdc.selection.pattern).

    :raises SignalError: when it does not compile, its quotes are wrong, or it may never end.
    """
    check_pattern(pattern)
    return patterns.is_match(pattern, table.parts)


def name_of(table: TableId) -> str:
    """Return the data collection that names only this table."""
    schema, name = (part.replace('"', '""') for part in (table.schema, table.name))
    return f'"{schema}"."{name}"'


def parse_table(name: str, setting: str) -> TableId:
    """Return the table that a setting names, as schema.table or quoted.

    :raises ConfigurationError: when it is neither.
    """
    try:
        return TableId(*patterns.unquoted(name, 2))
    except ConfigurationError:
        raise ConfigurationError(
            f"{setting}: '{name}' is not schema.table", "Remove the database, and quote a name that holds a dot."
        ) from None


def condition_of(table: TableId, conditions: Sequence[Condition]) -> str:
    """Return the filter of the first condition whose pattern names the table, empty for none."""
    return next((condition.filter for condition in conditions if condition.names(table)), "")


def check_condition(text: str, label: str = "") -> None:
    """Refuse a filter that could be anything but one condition: selects contain it in parentheses.

    `label` follows the word `condition` in an error, to say which one it is.

    :raises SignalError: when it has `;` or a comment outside of quotes, or leaves quotes or parentheses open.
    """
    depth, quote = 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in TEXT_OR_NAME:
            quote = character
        elif character == ";" or text[index : index + 2] in ("--", "/*"):
            raise SignalError(
                f"the condition{label} holds {text[index : index + 2].strip()!r}", "Give only one SQL condition."
            )
        else:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                break
    if quote:
        raise SignalError(f"the condition{label} leaves a {TEXT_OR_NAME[quote]} open", "Close it.")
    if depth:
        raise SignalError(f"the condition{label} has parentheses that do not match", "Close each where it is opened.")


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that cannot name any table.

    :raises SignalError: when it is neither a quoted name nor a regular expression, or may never end.
    """
    try:
        patterns.check_pattern(pattern)
    except ConfigurationError as error:
        raise SignalError(error.problem, error.remedy) from None
    if '"' not in pattern and is_endless(pattern):
        raise SignalError(
            f"'{pattern}' repeats what may itself match in several ways, or repeats too much, and may never end",
            "Write several patterns, or a simpler one: S\\..* names all tables of a schema.",
        )
