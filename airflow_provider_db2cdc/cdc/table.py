"""Tables and columns as Db2's catalog describes them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from hashlib import sha256

from airflow_provider_db2cdc.errors import ConfigurationError

RESERVED_PREFIX = "__"
RESERVED_NAMES = {"_metadata", "_row_dropped_"}
"""Columns that Spark and Delta add to a table's own when it is read or merged, in any case of letters."""


@dataclass(frozen=True, order=True)
class TableId:
    """A table by schema and name, exactly as the catalog spells them."""

    schema: str
    name: str

    @classmethod
    def in_catalog(cls, schema: str | None, name: str | None) -> TableId:
        """Return the table that a row of the catalog or a registration names.

        Db2 may pad the name of a schema with blanks, never the name of a table.
        """
        return cls((schema or "").rstrip(" "), name or "")

    def among(self, tables: Set[TableId]) -> TableId | None:
        """Return the table of `tables` that a catalog row with this name describes, None if there is none.

        SQL finds `"T "` when it is asked for `T`. Db2 keeps blanks at the end of a name, but no two names differ only
        in them. So a registration may spell a name without the blanks that the catalog has.
        """
        if self in tables:
            return self
        alike = (table for table in tables if table.schema == self.schema)
        return next((table for table in alike if table.name.rstrip(" ") == self.name.rstrip(" ")), None)

    @property
    def parts(self) -> tuple[str, str]:
        """The schema and the name."""
        return self.schema, self.name

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Column:
    """One column of a source table, in the terms of SYSCAT.COLUMNS.

    `length` is in bytes, for GRAPHIC types in characters, and for decimals the precision. `scale` is a decimal's scale,
    or the fractional digits of a timestamp. `bit_data` means FOR BIT DATA (CODEPAGE 0 of a character type).
    """

    name: str
    type: str
    length: int = 0
    scale: int = 0
    nullable: bool = True
    bit_data: bool = False


@dataclass(frozen=True)
class TableSchema:
    """A table's captured columns in catalog order, and the names of its key columns.

    `key` is empty for a table without a key. Its equal rows are counted (cdc.event.row_multiset). Key columns may be
    nullable, and nulls equal each other. `unique` says that the source enforces one row per key. For a key that an
    operator has named it does not.

    `uncaptured_columns` names source columns that the change table does not carry: LOBs, BOOLEAN, columns excluded from
    the registration. They are not replicated. Neither are the `excluded_columns` of the configuration.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    uncaptured_columns: tuple[str, ...] = ()
    unique: bool = True
    excluded_columns: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column of exactly that name.

        :raises KeyError: when there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that distinguish rows: those of the key, or all where there is no key."""
        return self.key or self.names

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in catalog order."""
        return tuple(column.name for column in self.columns)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of all columns of the source table, carried or not."""
        return *self.names, *self.uncaptured_columns, *self.excluded_columns

    @property
    def fingerprint(self) -> str:
        """A short digest of columns, types and key. Two digests differ exactly when one of these changed."""
        text = repr((self.columns, self.key))
        return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RejectedTable:
    """A table that the plan had to exclude, and why.

    It is reported as failed. The other tables continue. `is_replicated` is False for a signal table whose changes are
    not wanted.
    """

    table: TableId
    error: str
    is_replicated: bool = True


def check_names(schema: TableSchema) -> None:
    """Refuse column names that a Delta table cannot hold together.

    :raises ConfigurationError: when two names differ only in case, because Delta compares without case.
    :raises ConfigurationError: when a name is reserved by Spark or Delta, or starts with this provider's two
        underscores.
    """
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.startswith(RESERVED_PREFIX):
            raise ConfigurationError(
                f"{schema.table}: column '{name}' starts with {RESERVED_PREFIX!r}, which is reserved for this provider",
                "Exclude it with column.exclude.list.",
            )
        if name.lower() in RESERVED_NAMES:
            raise ConfigurationError(
                f"{schema.table}: column '{name}' has the name of a column that Spark or Delta adds to a table",
                "Exclude it with column.exclude.list.",
            )
        if (first := seen.setdefault(name.lower(), name)) != name:
            raise ConfigurationError(
                f"{schema.table}: columns '{first}' and '{name}' differ only in case, and Delta ignores case",
                "Exclude one with column.exclude.list.",
            )
