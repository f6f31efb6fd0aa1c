"""A value that must be there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """Return the value. Fail if it is None."""
    assert value is not None
    return value
