"""Lists in messages: the first items, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 20


def shortened(items: Iterable[object], most: int = MOST, separator: str = ", ") -> str:
    """Return at most so many items in one text. Of more items it says how many follow."""
    texts = list(map(str, items))
    more = [] if len(texts) <= most else [f"and {len(texts) - most} more"]
    return separator.join([*texts[:most], *more])
