"""Reads of the source's control tables and catalog: registrations, capture position, columns and keys."""

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
    """An index of a table, with its columns in order.

    `nulls` says whether the index holds null keys. A unique index of Db2 treats null as a value like any other,
    unless it was created with EXCLUDE NULL KEYS.
    """

    name: str
    primary: bool
    unique: bool
    nulls: bool
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Conditions:
    """The conditions under which the agent captures a registered table. It skips other tables without a message.

    `option_flags` is OPTION_FLAGS, `prune_controls` the number of rows in IBMSNAP_PRUNCNTL, `data_capture` DATACAPTURE.
    `extended_rows` says that rows may be longer than a page. Db2 then stores some of their texts as it stores LOBs.
    """

    option_flags: str
    prune_controls: int
    data_capture: str
    extended_rows: bool


@dataclass(frozen=True)
class CaptureState:
    """The registrations, and the capture position. The position was read first."""

    position: CapturePosition
    registrations: Mapping[TableId, CaptureRegistration]


@failpoint("read_capture")
def read_capture(source: Source, asn_schema: str) -> CaptureState:
    """Read the capture position, then the registrations.

    That takes four statements, and three more for each further 100 tables.

    :raises CaptureStoppedError: when the agent never ran.
    :raises SourceError: when the control tables cannot be read.
    """
    position = read_capture_position(source, asn_schema)
    return CaptureState(position, read_registrations(source, asn_schema))


def read_capture_position(source: Source, asn_schema: str) -> CapturePosition:
    """Read the position up to which capture has written every change.

    :raises CaptureStoppedError: when the agent never ran, so that SYNCHPOINT or SYNCHTIME is null.
    """
    [(synchpoint, newest, synchtime, clock, timezone)] = source.rows(asn.capture_position(asn_schema))
    positions = [lsn for lsn in map(synchpoint_of, (synchpoint, newest)) if lsn is not None]
    # The registration of a quiet table may keep an LSN of another length, from before the agent's level changed.
    positions = [lsn for lsn in positions if len(lsn.raw) == len(positions[0].raw)]
    if not positions or synchtime is None:
        raise CaptureStoppedError(
            f"the capture agent of schema {asn_schema} never ran: {asn_schema}.IBMSNAP_REGISTER holds no "
            "SYNCHPOINT and SYNCHTIME in its global row",
            f"Start it: asncap capture_server={source.database} capture_schema={asn_schema}.",
        )
    age_s = (_timestamp(clock) - _timestamp(synchtime)).total_seconds()
    return CapturePosition(max(positions), _iso(synchtime), _iso(clock), age_s, timezone_s(int(timezone)))


def timezone_s(digits: int) -> int:
    """Return the seconds of a CURRENT TIMEZONE: hours, minutes and seconds as two digits each, with a sign."""
    hours, rest = divmod(abs(digits), 10_000)
    seconds = hours * 3600 + rest // 100 * 60 + rest % 100
    return -seconds if digits < 0 else seconds


def read_pruned_upto(source: Source, asn_schema: str) -> dict[TableId, Lsn | None]:
    """Read up to which LSN each registered table's changes may be pruned."""
    return {
        _table(owner, name): synchpoint_of(floor) for owner, name, floor in source.rows(asn.pruned_upto(asn_schema))
    }


def read_registrations(source: Source, asn_schema: str) -> dict[TableId, CaptureRegistration]:
    """Read all registrations, with the columns that their change tables have in the catalog.

    If views over a table are registered too, the table's own registration counts.
    """
    rows = source.rows(asn.registrations(asn_schema))
    change_tables = sorted({_change_table(row) for row in rows if row[3]})
    named_tables = sorted({*change_tables, *(_table(row[0], row[1]) for row in rows)})
    table_rows = _read_tables(source, named_tables)
    columns = _read_columns(source, change_tables)
    registrations: dict[TableId, CaptureRegistration] = {}
    for row in rows:
        registration = _registration(row, table_rows, columns)
        registrations.setdefault(registration.table, registration)
    return registrations


def read_schemas(
    source: Source, registrations: Iterable[CaptureRegistration], selection: Selection
) -> dict[TableId, TableSchema]:
    """Read each table's key, and its chosen columns that the change table carries.

    This takes two statements per 100 tables. The key is the columns that message.key.columns names. If that names a
    column that the table lacks, the key is empty. If it names none of the table, the key is the first of these whose
    columns are all captured:

    1. the primary key
    2. the smallest unique index of NOT NULL columns
    3. the smallest unique index with nullable columns

    A table that the catalog does not have comes without columns.
    """
    captures = {registration.table: registration for registration in registrations}
    columns = _read_columns(source, list(captures))
    indexes = read_indexes(source, list(captures))
    return {
        table: _schema(table, columns[table], indexes[table], frozenset(capture.cd_names), selection)
        for table, capture in captures.items()
    }


def read_indexes(source: Source, tables: Sequence[TableId]) -> Mapping[TableId, list[Index]]:
    """Read the indexes of tables. A table without an index has an empty list."""
    column_names: dict[tuple[TableId, str, str, bool], list[str]] = defaultdict(list)
    for table, (index_schema, index, rule, nulls, column) in _in_groups(source, tables, catalog.indexes):
        column_names[table, f"{index_schema.rstrip()}.{index}", rule, nulls != "N"].append(column)
    indexes: dict[TableId, list[Index]] = defaultdict(list)
    for (table, index, rule, nulls), names in column_names.items():
        indexes[table].append(Index(index, rule == "P", rule in ("P", "U"), nulls, tuple(names)))
    return indexes


def read_columns(source: Source, tables: Sequence[TableId]) -> Mapping[TableId, list[Column]]:
    """Read all columns of tables in catalog order. A table that does not exist has none."""
    return _read_columns(source, tables)


def read_conditions(source: Source, asn_schema: str) -> dict[TableId, Conditions]:
    """Read the agent's conditions of every registered table, without registered views."""
    rows = source.rows(asn.capture_conditions(asn_schema))
    tables = [_table(schema, name) for schema, name, *_ in rows]
    described = {**dict.fromkeys(tables, NO_TABLE), **_read_tables(source, tables)}
    return {
        table: Conditions((flags or "").rstrip(), int(controls), described[table][1] or "", described[table][2] == "Y")
        for table, flags, controls in ((_table(schema, name), *rest) for schema, name, *rest in rows)
    }


def _read_tables(source: Source, tables: Sequence[TableId]) -> dict[TableId, Row]:
    """Return CREATE_TIME, DATACAPTURE and EXTENDED_ROW_SIZE of each of the tables that exists."""
    return dict(_in_groups(source, tables, catalog.tables))


def _read_columns(source: Source, tables: Sequence[TableId]) -> Mapping[TableId, list[Column]]:
    columns: dict[TableId, list[Column]] = defaultdict(list)
    for table, row in _in_groups(source, tables, catalog.columns):
        columns[table].append(catalog.column_of(row))
    return columns


def _in_groups(
    source: Source, tables: Sequence[TableId], query: Callable[[Sequence[TableId]], Query]
) -> Iterable[tuple[TableId, Row]]:
    """Yield for each row the table that it describes, and the row's columns after the table's name."""
    for start in range(0, len(tables), TABLES_PER_STATEMENT):
        group = tables[start : start + TABLES_PER_STATEMENT]
        group_tables = frozenset(group)
        for schema, name, *rest in source.rows(query(group)):
            if (table := _table(schema, name).among(group_tables)) is not None:
                yield table, tuple(rest)


def _schema(
    table: TableId, columns: Sequence[Column], indexes: Iterable[Index], carried: frozenset[str], selection: Selection
) -> TableSchema:
    captured = [column for column in columns if column.name in carried and column.type not in UNCAPTURED_TYPES]
    names = [column.name for column in captured]
    named_key = selection.named_key(table)
    key = named_key.found(names) if named_key else _key(indexes, captured)
    chosen = frozenset(selection.columns(table, [column.name for column in columns], key))
    return TableSchema(
        table,
        columns=tuple(column for column in captured if column.name in chosen),
        key=() if named_key and named_key.lacking(names) else key,
        uncaptured_columns=tuple(column.name for column in columns if column.name in chosen and column not in captured),
        unique=named_key is None,
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


def _registration(
    row: Row, table_rows: Mapping[TableId, Row], columns: Mapping[TableId, Sequence[Column]]
) -> CaptureRegistration:
    owner, name, _, _, state, state_info, as_pair, prefix, floor, newest, first = row
    table, change_table = _table(owner, name), _change_table(row)
    cold_start, (_, data_capture, _) = synchpoint_of(first), table_rows.get(table, NO_TABLE)
    created, source_created = (
        _iso(table_rows[name][0]) if name in table_rows else "" for name in (change_table, table)
    )
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
    """Return the change table that a row of the registrations names. Without one the name is empty."""
    return _table(row[2], row[3])


def _timestamp(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _iso(value: datetime | str) -> str:
    return _timestamp(value).isoformat(timespec="microseconds")
