"""What the source's control tables and catalog say: registrations, the fence, columns and keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.lsn import Lsn, synchpoint_of
from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import UNCAPTURED_TYPES
from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.source.connection import Source
from airflow_provider_db2cdc.sql import asn, catalog
from airflow_provider_db2cdc.sql.query import Query

TABLES_PER_STATEMENT = 100
_table = TableId.in_catalog

Row = tuple[Any, ...]
NO_TABLE: Row = ("", "", "")


@dataclass(frozen=True)
class Index:
    """An index of a table: its columns in order, whether it is the primary key or unique, and of nulls too.

    To a unique index of Db2 null is a value like any other, unless it was created with EXCLUDE NULL KEYS.
    """

    name: str
    primary: bool
    unique: bool
    nulls: bool
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Conditions:
    """What the agent insists on before it captures a registered table; without it, it says nothing and skips it.

    With `extended_rows` Db2 keeps the texts of a row that is longer than its page as it keeps LOBs.
    """

    option_flags: str
    prune_controls: int
    data_capture: str
    extended_rows: bool


@dataclass(frozen=True)
class CaptureState:
    """What is captured and how far; the fence was read before everything else."""

    position: CapturePosition
    registrations: Mapping[TableId, CaptureRegistration]


@failpoint("read_capture")
def read_capture(source: Source, asn_schema: str) -> CaptureState:
    """Read the fence, then the registrations, in four statements (three more a further hundred tables).

    :raises CaptureStoppedError: the agent never ran.
    :raises SourceError: the control tables cannot be read.
    """
    fence = read_capture_position(source, asn_schema)
    return CaptureState(fence, read_registrations(source, asn_schema))


def read_capture_position(source: Source, asn_schema: str) -> CapturePosition:
    """Read how far capture has proven to have written everything.

    :raises CaptureStoppedError: the agent never ran: there is no SYNCHPOINT or SYNCHTIME yet.
    """
    [(synchpoint, newest, synchtime, clock)] = source.rows(asn.capture_position(asn_schema))
    proven = [lsn for lsn in map(synchpoint_of, (synchpoint, newest)) if lsn is not None]
    # A quiet table may keep one of before the agent's level changed.
    proven = [lsn for lsn in proven if len(lsn.raw) == len(proven[0].raw)]
    if not proven or synchtime is None:
        raise CaptureStoppedError(
            f"the capture agent of schema {asn_schema} never ran: {asn_schema}.IBMSNAP_REGISTER holds no "
            "SYNCHPOINT and SYNCHTIME in its global row",
            f"Start it: asncap capture_server={source.database} capture_schema={asn_schema}.",
        )
    age_s = (_timestamp(clock) - _timestamp(synchtime)).total_seconds()
    return CapturePosition(max(proven), _iso(synchtime), _iso(clock), age_s)


def read_pruned_upto(source: Source, asn_schema: str) -> dict[TableId, Lsn | None]:
    """Read how far each registered table may be pruned."""
    return {
        _table(owner, name): synchpoint_of(floor) for owner, name, floor in source.rows(asn.pruned_upto(asn_schema))
    }


def read_registrations(source: Source, asn_schema: str) -> dict[TableId, CaptureRegistration]:
    """Read all registrations with the columns that their change tables really have.

    Where views over a table are registered too, the table's own registration is taken.
    """
    registered = source.rows(asn.registrations(asn_schema))
    change_tables = sorted({_change_table(row) for row in registered if row[3]})
    named = sorted({*change_tables, *(_table(row[0], row[1]) for row in registered)})
    found = _read_tables(source, named)
    columns = _read_columns(source, change_tables)
    instances: dict[TableId, CaptureRegistration] = {}
    for row in registered:
        instance = _instance(row, found, columns)
        instances.setdefault(instance.table, instance)
    return instances


def read_schemas(
    source: Source, instances: Iterable[CaptureRegistration], selection: Selection
) -> dict[TableId, TableSchema]:
    """Read each table's chosen columns that its change table carries, and its key, in two statements per 100 tables.

    The key is what message.key.columns names; else, of those whose columns are all captured, the primary key, the
    smallest unique index of NOT NULL columns, the smallest of nullable ones. A table of which columns are named that it
    does not have comes out without a key, one that the catalog does not have without columns.
    """
    captures = {instance.table: instance for instance in instances}
    columns = _read_columns(source, list(captures))
    indexes = read_indexes(source, list(captures))
    return {
        table: _schema(table, columns[table], indexes[table], frozenset(capture.cd_names), selection)
        for table, capture in captures.items()
    }


def read_indexes(source: Source, tables: Sequence[TableId]) -> Mapping[TableId, list[Index]]:
    """Read the indexes of tables; a table without one has an empty list."""
    parts: dict[tuple[TableId, str, str, bool], list[str]] = defaultdict(list)
    for table, (index_schema, index, rule, nulls, column) in _in_groups(source, tables, catalog.indexes):
        parts[table, f"{index_schema.rstrip()}.{index}", rule, nulls != "N"].append(column)
    found: dict[TableId, list[Index]] = defaultdict(list)
    for (table, index, rule, nulls), names in parts.items():
        found[table].append(Index(index, rule == "P", rule in ("P", "U"), nulls, tuple(names)))
    return found


def read_columns(source: Source, tables: Sequence[TableId]) -> Mapping[TableId, list[Column]]:
    """Read all columns of tables in catalog order; a table that does not exist has none."""
    return _read_columns(source, tables)


def read_conditions(source: Source, asn_schema: str) -> dict[TableId, Conditions]:
    """Read what the agent insists on, for every registered table (not for registered views)."""
    registered = source.rows(asn.capture_conditions(asn_schema))
    tables = [_table(schema, name) for schema, name, *_ in registered]
    found = {**dict.fromkeys(tables, NO_TABLE), **_read_tables(source, tables)}
    return {
        table: Conditions((flags or "").rstrip(), int(controls), found[table][1] or "", found[table][2] == "Y")
        for table, flags, controls in ((_table(schema, name), *rest) for schema, name, *rest in registered)
    }


def _read_tables(source: Source, tables: Sequence[TableId]) -> dict[TableId, Row]:
    """Return CREATE_TIME, DATACAPTURE and EXTENDED_ROW_SIZE of those of the tables that exist."""
    return dict(_in_groups(source, tables, catalog.tables))


def _read_columns(source: Source, tables: Sequence[TableId]) -> Mapping[TableId, list[Column]]:
    found: dict[TableId, list[Column]] = defaultdict(list)
    for table, described in _in_groups(source, tables, catalog.columns):
        found[table].append(catalog.column_of(described))
    return found


def _in_groups(
    source: Source, tables: Sequence[TableId], query: Callable[[Sequence[TableId]], Query]
) -> Iterable[tuple[TableId, Row]]:
    """Yield for each row that table of `tables` which it is about, and the row's columns after the table's name."""
    for start in range(0, len(tables), TABLES_PER_STATEMENT):
        group = tables[start : start + TABLES_PER_STATEMENT]
        asked = frozenset(group)
        for schema, name, *rest in source.rows(query(group)):
            if (table := _table(schema, name).among(asked)) is not None:
                yield table, tuple(rest)


def _schema(
    table: TableId, columns: Sequence[Column], indexes: Iterable[Index], carried: frozenset[str], selection: Selection
) -> TableSchema:
    captured = [column for column in columns if column.name in carried and column.type not in UNCAPTURED_TYPES]
    names = [column.name for column in captured]
    named = selection.named_key(table)
    key = named.found(names) if named else _key(indexes, captured)
    chosen = frozenset(selection.columns(table, [column.name for column in columns], key))
    return TableSchema(
        table,
        columns=tuple(column for column in captured if column.name in chosen),
        key=() if named and named.lacking(names) else key,
        uncaptured_columns=tuple(column.name for column in columns if column.name in chosen and column not in captured),
        unique=named is None,
        excluded_columns=tuple(column.name for column in columns if column.name not in chosen),
    )


def _key(indexes: Iterable[Index], captured: Iterable[Column]) -> tuple[str, ...]:
    nullable = {column.name: column.nullable for column in captured}

    def may_be_null(index: Index) -> bool:
        return any(nullable[name] for name in index.columns)

    keys = [index for index in indexes if index.unique and nullable.keys() >= set(index.columns)]
    usable = [index for index in keys if index.nulls or not may_be_null(index)]
    best = min(
        usable, key=lambda index: (not index.primary, may_be_null(index), len(index.columns), index.name), default=None
    )
    return best.columns if best else ()


def _instance(
    row: Row, found: Mapping[TableId, Row], columns: Mapping[TableId, Sequence[Column]]
) -> CaptureRegistration:
    owner, name, _, _, state, state_info, as_pair, prefix, floor, newest, first = row
    table, change_table = _table(owner, name), _change_table(row)
    cold_start, (_, data_capture, _) = synchpoint_of(first), found.get(table, NO_TABLE)
    created, source_created = (_iso(found[one][0]) if one in found else "" for one in (change_table, table))
    return CaptureRegistration(
        table=table,
        cd_owner=change_table.schema,
        cd_table=change_table.name,
        state=(state or "").strip(),
        state_info=(state_info or "").strip(),
        update_as="DI" if as_pair == "Y" else "U",
        before_prefix=(prefix or "").strip() or None,
        pruned_upto=synchpoint_of(floor),
        new_synchpoint=synchpoint_of(newest),
        cd_columns=tuple(columns.get(change_table, ())),
        identity=CaptureIdentity(str(change_table), created, source_created, str(cold_start or "")),
        data_capture=data_capture or "",
    )


def _change_table(row: Row) -> TableId:
    """Return the change table that a row of the registrations names; an empty name where it names none."""
    return _table(row[2], row[3])


def _timestamp(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _iso(value: datetime | str) -> str:
    return _timestamp(value).isoformat(timespec="microseconds")
