"""A statement: its text and the values of its parameter markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_db2cdc.sql.quoting import text_literal


@dataclass(frozen=True)
class Query:
    """SQL with `?` markers and their values, in order."""

    text: str
    params: tuple[Any, ...] = ()


def count_of(what: str = "*") -> str:
    """Return how many rows, or values of an expression, there are: COUNT ends at 2,147,483,647 on Db2 (an INTEGER)."""
    return f"CAST(COUNT_BIG({what}) AS BIGINT)"


def inline(query: Query) -> str:
    """Return the text with its values, which are texts, in the place of the markers: for statements without markers."""
    first, *rest = query.text.split("?")
    pairs = zip(query.params, rest, strict=True)
    return first + "".join(f"{text_literal(value)}{text}" for value, text in pairs)
