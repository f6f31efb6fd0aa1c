"""A statement: its text and the values of its parameter markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_db2cdc.sql.quoting import text_literal


@dataclass(frozen=True)
class Query:
    """An SQL text with `?` markers, and their values in order."""

    text: str
    params: tuple[Any, ...] = ()


def count_of(expression: str = "*") -> str:
    """Return the SQL that counts rows, or values of an expression.

    COUNT is an INTEGER on Db2, and ends at 2,147,483,647.
    """
    return f"CAST(COUNT_BIG({expression}) AS BIGINT)"


def inline(query: Query) -> str:
    """Return the SQL text with its values, which are texts, as literals in place of the markers."""
    first, *rest = query.text.split("?")
    pairs = zip(query.params, rest, strict=True)
    return first + "".join(f"{text_literal(value)}{text}" for value, text in pairs)
