"""Names and texts as they stand in Spark SQL."""

from __future__ import annotations


def quoted(column: str) -> str:
    """Return a column's name in an expression."""
    return f"`{column.replace('`', '``')}`"


def text_literal(value: str) -> str:
    """Return a text as it stands in a statement."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
