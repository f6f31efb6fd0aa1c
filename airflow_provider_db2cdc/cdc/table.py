"""Tables and columns as Db2's catalog describes them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from hashlib import sha256

from airflow_provider_db2cdc.errors import ConfigurationError

RESERVED_PREFIX = "__"
RESERVED_NAMES = {"_metadata", "_row_dropped_"}
"""Columns that Spark and Delta put beside a table's own when it is read or merged, in any case of letters."""


@dataclass(frozen=True, order=True)
class TableId:
    """A table by schema and name, exactly as the catalog spells them."""

    schema: str
    name: str

    @classmethod
    def in_catalog(cls, schema: str | None, name: str | None) -> TableId:
        """Return a table as the catalog or a registration spells it: Db2 may pad a schema's name, never a table's."""
        return cls((schema or "").rstrip(" "), name or "")

    def among(self, asked: Set[TableId]) -> TableId | None:
        """Return the one of the asked tables that a row of the catalog with this name is about, None if there is none.

        SQL finds `"T "` when it is asked for `T`. Db2 keeps blanks at the end of a name, but no two names differ only
        in them. So a registration may spell a name without the blanks that the catalog has.
        """
        if self in asked:
            return self
        alike = (table for table in asked if table.schema == self.schema)
        return next((table for table in alike if table.name.rstrip(" ") == self.name.rstrip(" ")), None)

    @property
    def parts(self) -> tuple[str, str]:
        """The schema and the name."""
        return self.schema, self.name

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Column:
    """One column of a source table, in SYSCAT.COLUMNS' words.

    `length` is bytes (characters for GRAPHIC) or a decimal's precision; `scale` a decimal's scale or a timestamp's
    fractional digits; `bit_data` says FOR BIT DATA (CODEPAGE 0 of a character type).
    """

    name: str
    type: str
    length: int = 0
    scale: int = 0
    nullable: bool = True
    bit_data: bool = False


@dataclass(frozen=True)
class TableSchema:
    """A table's captured columns in catalog order, and the names of those that are its key.

    `key` is empty for a table without one, whose equal rows are counted (cdc.copies); its columns may be nullable, and
    nulls equal each other. `unique` says that the source sees to it that no two rows have one key; of a key that
    somebody has named nobody does. `uncaptured_columns` names source columns that the change table does not carry
    (LOBs, BOOLEAN, columns left out of the registration): they are not replicated. Nor are those `excluded_columns` by
    the configuration.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    uncaptured_columns: tuple[str, ...] = ()
    unique: bool = True
    excluded_columns: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column of that exact name.

        :raises KeyError: when there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that rows are told apart by: the key's, or all where there is none."""
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
        """A short digest of columns, types and key: unequal exactly when one of them changed."""
        text = repr((self.columns, self.key))
        return sha256(text.encode()).hexdigest()[:16]


def check_names(schema: TableSchema) -> None:
    """Refuse column names that a Delta table cannot hold beside each other.

    :raises ConfigurationError: two names differ by case alone (Delta compares without case), or one is kept by Spark or
        Delta, or starts with the two underscores that this provider keeps for itself.
    """
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.startswith(RESERVED_PREFIX):
            raise ConfigurationError(
                f"{schema.table}: column '{name}' starts with {RESERVED_PREFIX!r}, which is kept for this provider",
                "Leave it out with column.exclude.list.",
            )
        if name.lower() in RESERVED_NAMES:
            raise ConfigurationError(
                f"{schema.table}: column '{name}' has the name of one that Spark or Delta puts beside a table's own",
                "Leave it out with column.exclude.list.",
            )
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise ConfigurationError(
                f"{schema.table}: columns '{other}' and '{name}' differ by case alone, and Delta ignores case",
                "Leave one out with column.exclude.list.",
            )
