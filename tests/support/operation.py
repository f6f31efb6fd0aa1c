"""Tables and their statements as data. A history is drawn from these, and a database can execute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

from airflow_provider_db2cdc.cdc.capture.registration import UpdateAs

Value: TypeAlias = int | str | None
Row: TypeAlias = tuple[Value, ...]
Key: TypeAlias = tuple[int | str, ...]
Ranges: TypeAlias = tuple[tuple[str, int, int], ...]
"""Key columns, each with its lowest and highest value. Only integer keys are moved by ranges."""


@dataclass(frozen=True)
class TableShape:
    """A table of key columns, all integers or all texts, and two value columns. Keys come first in rows.

    The values are an integer and a nullable text.
    """

    name: str
    key: tuple[str, ...]
    update_as: UpdateAs = "DI"
    values: tuple[str, str] = ("A", "B")
    text: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns in order."""
        return self.key + self.values

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return cast("Key", row[: len(self.key)])


@dataclass(frozen=True)
class Insert:
    """Insert one row."""

    table: str
    row: Row


@dataclass(frozen=True)
class Update:
    """Set every column of the row with a key. The key may change, and a value may be the same as before."""

    table: str
    key: Key
    row: Row


@dataclass(frozen=True)
class Delete:
    """Delete the row with a key."""

    table: str
    key: Key


@dataclass(frozen=True)
class Shift:
    """Add `delta` to a key column of each row whose key columns all lie in their ranges, ends included."""

    table: str
    column: str
    delta: int
    ranges: Ranges


@dataclass(frozen=True)
class Swap:
    """Mirror a key column. Each value v becomes `total - v`, so low and high values change places."""

    table: str
    column: str
    total: int
    ranges: Ranges


Operation: TypeAlias = Insert | Update | Delete | Shift | Swap


def statement(shape: TableShape, operation: Operation, schema: str) -> tuple[str, tuple[Value, ...]]:
    """Return an operation as SQL with `?` markers and their values."""
    table = f'"{schema}"."{shape.name}"'
    by_key = " AND ".join(f'"{name}" = ?' for name in shape.key)
    match operation:
        case Insert(row=row):
            names = ", ".join(f'"{name}"' for name in shape.columns)
            return f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", row
        case Update(key=key, row=row):
            sets = ", ".join(f'"{name}" = ?' for name in shape.columns)
            return f"UPDATE {table} SET {sets} WHERE {by_key}", (*row, *key)
        case Delete(key=key):
            return f"DELETE FROM {table} WHERE {by_key}", key
        case Shift(column=column, delta=number, ranges=ranges):
            new_value = f'"{column}" + ?'
        case Swap(column=column, total=number, ranges=ranges):
            new_value = f'? - "{column}"'
    within = " AND ".join(f'"{name}" BETWEEN ? AND ?' for name, _, _ in ranges)
    ends = [end for _, low, high in ranges for end in (low, high)]
    return f'UPDATE {table} SET "{column}" = {new_value} WHERE {within}', (number, *ends)


def create_table(shape: TableShape, schema: str, keyed: bool = True) -> str:
    """Return the table's DDL. It has no primary key unless `keyed`, for a database that checks keys row by row.

    The primary key has its columns in the reverse of their order in the table. The code must not confuse the two.
    """
    kind = "VARCHAR(10)" if shape.text else "INTEGER"
    keys = [f'"{name}" {kind} NOT NULL' for name in shape.key]
    columns = [*keys, f'"{shape.values[0]}" INTEGER', f'"{shape.values[1]}" VARCHAR(10)']
    primary = f"PRIMARY KEY ({', '.join(chr(34) + name + chr(34) for name in reversed(shape.key))})"
    return f'CREATE TABLE "{schema}"."{shape.name}" ({", ".join([*columns, *([primary] if keyed else [])])})'


def compared(key: Key) -> Key:
    """Return the key as SQL compares it, without blanks at the end of texts."""
    if not isinstance(key[0], str):
        return key
    return tuple(value.rstrip(" ") if isinstance(value, str) else value for value in key)


def lies_in(key: Key, ranges: Ranges) -> bool:
    """Return whether each column of the key lies in its range."""
    numbers = cast("tuple[int, ...]", key)
    return all(low <= value <= high for value, (_, low, high) in zip(numbers, ranges, strict=True))


def moved(key: Key, at: int, operation: Shift | Swap) -> Key:
    """Return the key after a shift or swap. `at` is the place of the column that it changes."""
    old = cast("tuple[int, ...]", key)[at]
    value = old + operation.delta if isinstance(operation, Shift) else operation.total - old
    return (*key[:at], value, *key[at + 1 :])


def text_key(number: int) -> str:
    """Return a key's text. The texts of an even number and of the next one differ only in case."""
    return f"{'Kk'[number % 2]}{number // 2}"
