"""Quoted names and text literals for Spark SQL."""

from __future__ import annotations


def quoted(column: str) -> str:
    """Return a column's name in backticks, for an expression."""
    return f"`{column.replace('`', '``')}`"


def text_literal(value: str) -> str:
    """Return a text as a string literal, for a statement."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
