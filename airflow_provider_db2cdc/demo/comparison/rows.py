"""Rows as both sides of the comparison write them: one exact text per value, independent of the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

Portable = str | None
Key = tuple[Portable, ...]


def portable(value: Any) -> Portable:
    """Return a value as text that is equal only for equal values of one type, or None for NULL.

    Raises:
        TypeError: a type that the shop does not have.
    """
    match value:
        case None:
            return None
        case str():
            return f"text {value}"
        case bool():
            raise TypeError("the shop has no BOOLEAN")
        case int():
            return f"integer {value}"
        case float():
            return f"double {value.hex()}"
        case Decimal():
            return f"decimal {value:f}"
        case datetime():
            return f"timestamp {value.isoformat(timespec='microseconds')}"
        case date():
            return f"date {value.isoformat()}"
    raise TypeError(f"the shop has no {type(value).__name__}")


def by_key(columns: Sequence[str], rows: Iterable[Sequence[Portable]], key: Sequence[str]) -> dict[Key, list[Key]]:
    """Return rows by their key columns. Several rows under one key are kept, because that is an error to show."""
    places = [columns.index(name) for name in key]
    rows_by_key: dict[Key, list[Key]] = {}
    for row in rows:
        rows_by_key.setdefault(tuple(row[place] for place in places), []).append(tuple(row))
    return rows_by_key


def differing(source: dict[Key, list[Key]], target: dict[Key, list[Key]]) -> list[Key]:
    """Return the keys that one side lacks, or whose rows are not the same in every column."""
    keys = source.keys() | target.keys()
    return sorted((key for key in keys if source.get(key) != target.get(key)), key=str)
