"""Entries that match nothing at the source, for each list of tables or columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.selection import message_key
from airflow_provider_db2cdc.cdc.selection.pattern import Names, is_about, is_match, literal_names, suggest
from airflow_provider_db2cdc.cdc.selection.table_names import is_named
from airflow_provider_db2cdc.cdc.selection.tables import (
    COLUMN_EXCLUDE,
    COLUMN_INCLUDE,
    SNAPSHOT_INCLUDE,
    TABLE_EXCLUDE,
    TABLE_INCLUDE,
    Selection,
)
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConfigurationError

TABLE_PARTS, COLUMN_PARTS = 2, 3
SHOWN = 20
REGISTERED, OF_PIPELINE = "registered table", "table of this pipeline"
KNOWN = {REGISTERED: "Registered are:", OF_PIPELINE: "Its tables are"}

HARMLESS = {TABLE_EXCLUDE, COLUMN_INCLUDE}
"""Lists whose entries may match nothing. Such an entry lets no column through, and no row is missing without it."""


@dataclass(frozen=True)
class Unmatched:
    """An entry that matches nothing. A `refused` one stops the plan."""

    list_name: str
    entry: str
    problem: str
    remedy: str
    refused: bool


def given_lists(selection: Selection, snapshot_include: Sequence[str]) -> list[str]:
    """Return the names of the lists that have entries."""
    given = {
        TABLE_INCLUDE: selection.table_include,
        TABLE_EXCLUDE: selection.table_exclude,
        COLUMN_INCLUDE: selection.column_include,
        COLUMN_EXCLUDE: selection.column_exclude,
        message_key.PROPERTY: selection.key_rules,
        SNAPSHOT_INCLUDE: snapshot_include,
    }
    return [name for name, entries in given.items() if entries]


def unmatched_tables(
    selection: Selection, snapshot_include: Sequence[str], registered: Collection[TableId]
) -> list[Unmatched]:
    """Return the entries that match no registered table. Those of the snapshots' list must match chosen tables."""
    chosen = selection.tables(registered)
    keys = [rule.pattern for rule in selection.key_rules]
    return [
        *_without_table(TABLE_INCLUDE, selection.table_include, registered),
        *_without_table(TABLE_EXCLUDE, selection.table_exclude, registered),
        *_without_table(message_key.PROPERTY, keys, registered),
        *_without_table(SNAPSHOT_INCLUDE, snapshot_include, chosen, OF_PIPELINE),
    ]


def unmatched_columns(
    selection: Selection,
    schemas: Mapping[TableId, TableSchema],
    others: Mapping[TableId, Sequence[str]] | None = None,
) -> list[Unmatched]:
    """Return the entries of the column lists that have no effect on the chosen tables, whose schemas are given.

    `others` are the columns of tables that are not chosen. An entry that matches one of those is not refused.
    """
    columns = {table: schema.source_names for table, schema in schemas.items()}
    known = _names({**columns, **(others or {})})
    unmatched: list[Unmatched] = []
    for entry in selection.column_include:
        if not any(is_match(entry, names) for names in _names(columns)):
            unmatched.append(_without_column(COLUMN_INCLUDE, entry, known))
    left_out = _names({table: schema.excluded_columns for table, schema in schemas.items()})
    for entry in selection.column_exclude:
        if any(is_match(entry, names) for names in left_out):
            continue
        if any(is_match(entry, names) for names in _names(columns)):
            unmatched.append(_key_only(entry))
        elif any(is_match(entry, names) for names in known) or _is_about_gone(entry, columns):
            unmatched.append(_elsewhere(entry))
        else:
            unmatched.append(_without_column(COLUMN_EXCLUDE, entry, known))
    return unmatched


def tables_in_doubt(
    unmatched: Iterable[Unmatched], registered: Iterable[TableId], known: Collection[TableId]
) -> list[TableId]:
    """Return the tables whose columns the refused entries of column.exclude.list may mean, without the known tables.

    They are registered, or an entry names them without signs of a regular expression.
    """
    entries = [item.entry for item in unmatched if item.refused and item.list_name == COLUMN_EXCLUDE]
    named = (names[:TABLE_PARTS] for entry in entries for names in literal_names(entry) if len(names) == COLUMN_PARTS)
    about = (table for table in registered if any(is_about(entry, table.parts) for entry in entries))
    return sorted({*(TableId(*names) for names in named), *about} - set(known))


def refuse(unmatched: Iterable[Unmatched]) -> None:
    """Refuse the configuration where entries are refused.

    :raises ConfigurationError: when there is a refused entry. The text names all of them.
    """
    refused = [item for item in unmatched if item.refused]
    if refused:
        problems = dict.fromkeys(item.problem for item in refused)
        remedies = dict.fromkeys(item.remedy for item in refused)
        raise ConfigurationError("; ".join(problems), " ".join(remedies))


def _without_table(
    list_name: str, entries: Iterable[str], tables: Collection[TableId], what: str = REGISTERED
) -> Iterator[Unmatched]:
    known = sorted(map(str, tables))
    for entry in entries:
        if not any(is_named(entry, table) for table in tables):
            remedy = f"{suggest(entry, known) or _listed(known, what)} Correct the entry or remove it."
            if list_name in (TABLE_INCLUDE, message_key.PROPERTY):
                remedy += " Or register the table for capture (ASNCDC.ADDTABLE, then a reinit)."
            problem = f"{list_name}: '{entry}' matches no {what}"
            yield Unmatched(list_name, entry, problem, remedy, list_name not in HARMLESS)


def _listed(known: Sequence[str], what: str) -> str:
    names = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
    return f"{KNOWN[what]} {names or 'none'}."


def _without_column(list_name: str, entry: str, known: Collection[Names]) -> Unmatched:
    near = suggest(entry, map(".".join, known))
    if list_name != COLUMN_EXCLUDE:
        remedy = f"{near} Correct the entry or remove it.".lstrip()
        return Unmatched(list_name, entry, f"{list_name}: '{entry}' matches no column", remedy, False)
    why = "the column that it should exclude may be carried"
    remedy = f"{near} Correct the entry. Remove it only if there is no such column.".lstrip()
    return Unmatched(list_name, entry, f"{list_name}: '{entry}' matches no column, so {why}", remedy, True)


def _key_only(entry: str) -> Unmatched:
    problem = f"{COLUMN_EXCLUDE}: '{entry}' matches only columns of keys, which are always carried"
    remedy = f"Name another key with {message_key.PROPERTY}, or remove the entry."
    return Unmatched(COLUMN_EXCLUDE, entry, problem, remedy, False)


def _elsewhere(entry: str) -> Unmatched:
    problem = f"{COLUMN_EXCLUDE}: '{entry}' matches no column of a table that this pipeline carries"
    return Unmatched(COLUMN_EXCLUDE, entry, problem, "Keep it if the table comes later, else remove it.", False)


def _is_about_gone(entry: str, columns: Mapping[TableId, Sequence[str]]) -> bool:
    """Return whether an entry applies to a chosen table that is not in the catalog: none of its columns is carried."""
    return any(not names and is_about(entry, table.parts) for table, names in columns.items())


def _names(columns: Mapping[TableId, Sequence[str]]) -> list[Names]:
    return [(*table.parts, name) for table, names in columns.items() for name in names]
