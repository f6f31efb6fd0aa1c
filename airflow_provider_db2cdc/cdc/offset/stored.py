"""The document of a pipeline's offsets as a store keeps it: one entry per table, by the table's name.

Only commits write it. An entry that cannot be read stops only its own table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.offset.offset import WAYS, Offset, command_hint
from airflow_provider_db2cdc.cdc.selection.table_names import name_of, parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

VERSION = 1

PLAIN = re.compile(r"[\w$#@]+\.[\w$#@]+")
"""Matches a table's name that is the same with and without quotes."""


NOT_STORED = frozenset({"table", "restart", "restore"})
"""Fields of an offset that its entry lacks: its name is the table's, and requests have a document of their own."""


@dataclass(frozen=True)
class StoredOffsets:
    """The offsets that commits have stored. `where` names the document in messages.

    `entries` holds JSON data by the tables' names. `error` says why the document as a whole cannot be read.
    """

    where: str
    entries: Mapping[str, Any] = field(default_factory=dict)
    error: OffsetError | None = None
    _read: dict[TableId, Offset] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str | None, where: str) -> StoredOffsets:
        """Read the document. A missing one has no entries."""
        try:
            return cls(where, parse_document(text).get("tables", {}))
        except (ValueError, ConfigurationError) as error:
            problem = f"the offsets kept in {where} cannot be read ({type(error).__name__}: {error})"
            remedy = f"Restore them by `db2cdc offset restore --all-failed` ({WAYS['restore']}), or put back the last "
            return cls(where, error=OffsetError(problem, f"{remedy}good text."))

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset, or None if it has no entry.

        :raises OffsetError: when the entry, or the whole document, cannot be read.
        """
        if self.error is not None:
            raise self.error
        if table in self._read:
            return self._read[table]
        data = self.entries.get(entry_name(table))
        if data is None:
            return None
        try:
            self._read[table] = offset = _offset(table, data)
            return offset
        except (ConfigurationError, OffsetError) as error:
            raise OffsetError(
                f"the offset of {table} kept in {self.where} cannot be read ({type(error).__name__}: {error})",
                f"Restore it by {command_hint('restore', table)}, or put back its last good text.",
            ) from error

    @property
    def tables(self) -> list[TableId]:
        """The tables that have an entry."""
        return tables_of(self.entries)

    def updated(self, moved: Mapping[TableId, Offset], removed: Iterable[TableId] = ()) -> StoredOffsets:
        """Return the document with these offsets, and without those of `removed` tables. Other entries stay as is."""
        if not moved and not {*removed} & {*self.tables}:
            return self
        names = {entry_name(table) for table in removed}
        kept = {name: data for name, data in self.entries.items() if name not in names}
        return replace(
            self, entries={**kept, **{entry_name(table): _entry(moved[table]) for table in moved}}, error=None
        )

    def to_text(self) -> str:
        """Return the text to be kept, with a line for each table."""
        return document_text({}, self.entries)


def entry_name(table: TableId) -> str:
    """Return the name of a table's entry: `SCHEMA.TABLE`, quoted if the name needs it."""
    return str(table) if PLAIN.fullmatch(str(table)) else name_of(table)


def tables_of(entries: Mapping[str, Any]) -> list[TableId]:
    """Return the tables that have entries. A name that is no table's is ignored."""
    tables = list[TableId]()
    for name in entries:
        try:
            tables.append(parse_table(name, "the entry"))
        except ConfigurationError:
            continue
    return sorted(tables)


def parse_document(text: str | None) -> Mapping[str, Any]:
    """Return the data of a document, empty for a missing one.

    :raises ValueError: when it is not JSON.
    :raises ConfigurationError: when it is not a document of this version, or has no entries by table.
    """
    if text is None:
        return {}
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("tables"), dict):
        raise ConfigurationError('it is not an object with an entry for each table in "tables"')
    if data.get("version") != VERSION:
        raise ConfigurationError(f"it has version {data.get('version')}, expected {VERSION}")
    return data


def document_text(head: Mapping[str, Any], entries: Mapping[str, Any]) -> str:
    """Return a document's text: first the version and `head`, then a line for each table."""
    first = json.dumps({"version": VERSION, **head}, sort_keys=True).removesuffix("}")
    lines = [f"{json.dumps(name)}: {json.dumps(entries[name], sort_keys=True)}" for name in sorted(entries)]
    return f'{first}, "tables": {{\n' + ",\n".join(lines) + "\n}}"


def compact(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON data, without the fields that have their default."""
    defaults = {each.name: each.default for each in fields(value) if each.default is not MISSING}
    unset = object()
    return {name: data for name, data in to_data(value).items() if getattr(value, name) != defaults.get(name, unset)}


def _entry(offset: Offset) -> dict[str, Any]:
    return {name: data for name, data in compact(offset).items() if name not in NOT_STORED}


def _offset(table: TableId, data: Any) -> Offset:
    if not isinstance(data, dict) or NOT_STORED & data.keys():
        raise ConfigurationError("it is not the entry of an offset")
    offset: Offset = from_data(Offset, {**data, "table": to_data(table)})
    return offset
