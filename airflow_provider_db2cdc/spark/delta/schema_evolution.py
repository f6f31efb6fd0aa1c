"""Columns of the source table in its Delta tables: new ones are added, the others must keep their types."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.offset.offset import restart_hint
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import map_type
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.spark.delta.conflict import repeat_on_conflict
from airflow_provider_db2cdc.spark.delta.table_io import load, sql_name
from airflow_provider_db2cdc.spark.quoting import quoted

Path = tuple[str, ...]
FIXED = ("key", "headers", "source", "transaction")
"""Columns of the change log that never get new fields. With another key it would be another table."""

TYPES = "db2cdc.types"
"""The state's property with the source's types of columns that are text or bytes in Delta."""

PADDED_TYPES = {"CHARACTER", "CHAR", "GRAPHIC", "BINARY"}
"""Types of a fixed length, to which Db2 pads each value."""


def fit_columns(
    spark: SparkSession, table: TableId, name: DeltaName, ddl: str, fixed: Collection[str] = ()
) -> list[str]:
    """Add the columns that a Delta table lacks, each at its place in `ddl`, and return their names.

    Existing rows have null in them until they change or are snapshotted. Columns in `fixed` get no new fields.

    :raises TargetError: when a column of the Delta table has another type than in `ddl`.
    """
    wanted = cast(StructType, StructType.fromDDL(ddl))
    existing = load(spark, name).schema
    added = _add(spark, name, existing, wanted, fixed)
    _check(table, name, load(spark, name).schema if added else existing, wanted)
    return added


def types_text(schema: TableSchema) -> str:
    """Return the property TYPES of a new state with these columns."""
    return json.dumps(_source_types(schema), separators=(",", ":"))


def checked_types(schema: TableSchema, text: str) -> str:
    """Return the new property TYPES of a state, given its current one (`text`, empty if it has none).

    When a column of text or bytes gets another length, Db2 pads the stored values and captures no change. The target
    would keep the old values, and the merge would not find their keys.

    :raises TargetError: when a column's type has changed.
    """
    known, now = json.loads(text or "{}"), _source_types(schema)
    changed = [
        f"{name} from {known[digest]} to {now[digest]}"
        for name in schema.names
        if (digest := _digest(name)) in known.keys() & now.keys() and known[digest] != now[digest]
    ]
    if changed:
        raise TargetError(
            f"{schema.table}: the source has changed the type of {', '.join(changed)}, which may have changed "
            "the values that it holds without telling of it",
            f"Have it snapshotted again: run {restart_hint(schema.table)}.",
        )
    return json.dumps({**known, **now}, separators=(",", ":"))


def check_same_columns(spark: SparkSession, schema: TableSchema, state: DeltaName, is_begun: bool) -> None:
    """Check that a table without a key still has the columns of its state. These identify its rows.

    :raises TargetError: when it lost a column, or gained one and does not start again (`is_begun`).
    """
    held = [name for name in load(spark, state).columns if not name.startswith("__")]
    lost, gained = {*held} - {*schema.names}, {*schema.names} - {*held}
    if lost or (gained and not is_begun):
        away = "move the target's tables of it away and " if lost else ""
        raise TargetError(
            f"{schema.table}: it has no key, and its columns are no longer those of its target: "
            f"{', '.join(sorted(lost | gained))}. These columns identify its rows",
            f"Have it snapshotted again: {away}run {restart_hint(schema.table)}.",
        )


def row_ddl(schema: TableSchema) -> str:
    """Return the DDL of all columns of a row."""
    return ", ".join(f"{quoted(column.name)} {map_type(schema.table, column).delta}" for column in schema.columns)


def ends_kept(schema: TableSchema) -> list[str]:
    """Return the state's columns with minima and maxima per file. Delta refuses binary ones."""
    columns = [schema.column(name) for name in schema.row_key]
    kept = [column.name for column in columns if map_type(schema.table, column).delta != "binary"]
    return [quoted(name) for name in (*kept, "__commit_lsn", "__batch")]


def _source_types(schema: TableSchema) -> Mapping[str, str]:
    # Names are hashed: Spark redacts a property whose value looks like a secret or an address.
    kept = [column for column in schema.columns if map_type(schema.table, column).delta in ("string", "binary")]
    return {_digest(column.name): _type_text(column) for column in kept}


def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:12]


def _type_text(column: Column) -> str:
    """Return a type with what decides the form of its values: the length of padding, the digits of a timestamp."""
    kind = column.type.upper()
    if kind == "TIMESTAMP":
        return f"{kind}({column.scale})"
    return f"{kind}({column.length})" if kind in PADDED_TYPES else kind


def _add(
    spark: SparkSession, name: DeltaName, existing: StructType, wanted: StructType, fixed: Collection[str]
) -> list[str]:
    known = {path for path, _ in _leaves(existing)}
    leaves = [*_leaves(wanted)]
    added = []
    for index, (path, kind) in enumerate(leaves):
        if path in known or path[0] in fixed:
            continue
        before = leaves[index - 1][0] if index else ()
        place = f"AFTER {quoted(before[-1])}" if before[:-1] == path[:-1] and before else "FIRST"
        column = ".".join(map(quoted, path))
        statement = f"ALTER TABLE {sql_name(name)} ADD COLUMNS ({column} {kind.simpleString()} {place})"
        repeat_on_conflict(partial(spark.sql, statement), name.name)
        added.append(path[-1])
    return list(dict.fromkeys(added))


def _check(table: TableId, name: DeltaName, existing: StructType, wanted: StructType) -> None:
    types = {field.name: field.dataType for field in existing}
    for field in wanted.fields:
        if types.get(field.name) != field.dataType:
            held = types[field.name].simpleString()[:200] if field.name in types else "no such column"
            or_key = ", or name the old key in message.key.columns if it is still unique" if field.name == "key" else ""
            raise TargetError(
                f"{table}: {name.name} needs column {field.name} {field.dataType.simpleString()[:200]}, it has {held}",
                f"The source table's columns changed: change the column in the target{or_key}, or move the target's "
                f"tables of it away and have it snapshotted again by {restart_hint(table)}.",
            )


def _leaves(struct: StructType, within: Path = ()) -> Iterator[tuple[Path, DataType]]:
    for field in struct.fields:
        path = (*within, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        else:
            yield path, field.dataType
