"""A statement: its text and the values of its parameter markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Query:
    """SQL with `?` markers and their values, in order."""

    text: str
    params: tuple[Any, ...] = ()
