"""Row changes as the change table holds them, and the Debezium events that they amount to.

This is the rule in its plain form. The Spark side does the same on sets of rows and is tested against it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal

Op = Literal["c", "u", "d", "r"]
KeyChangeDetection = Literal["adjacent", "none"]


@dataclass(frozen=True)
class RowChange:
    """One row of a change table: `op` is D (the old row), I (the new row) or U (only the after image)."""

    commit: Any
    intent: Any
    op: Literal["D", "I", "U"]
    key: Hashable
    image: Hashable


@dataclass(frozen=True)
class Event:
    """One change event of a key. `newkey` and `oldkey` are Debezium's headers of a key change."""

    commit: Any
    intent: Any
    op: Op
    key: Hashable
    before: Hashable | None
    after: Hashable | None
    newkey: Hashable | None = None
    oldkey: Hashable | None = None


def events_of(
    changes: Iterable[RowChange], detection: KeyChangeDetection = "adjacent", one_row: bool = False
) -> list[Event]:
    """Return the events of one table's changes, in order.

    A D directly before an I of the same commit and the same key is one update. With unequal keys the two are a delete
    and a create. Under `adjacent` (Debezium's rule) each then names the other's key in a header. In a change table a
    key change looks the same as the deletion and insertion of two adjacent rows.

    With `one_row` an update is one row of the change table, with both images. Then only its own two halves pair: they
    have the same intent.
    """
    ordered = sorted(changes, key=lambda change: (change.commit, change.intent))
    commits = groupby(ordered, key=lambda change: change.commit)
    return [event for _, commit in commits for event in _commit(commit, detection, one_row)]


def _commit(changes: Iterable[RowChange], detection: KeyChangeDetection, one_row: bool) -> Iterator[Event]:
    rows: list[RowChange | None] = [None, *changes, None]
    for (previous, row), (_, following) in zip(pairwise(rows[:-1]), pairwise(rows[1:]), strict=True):
        if row is None:
            continue
        old = previous if previous is not None and _is_pair(previous, row, one_row) else None
        new = following if following is not None and _is_pair(row, following, one_row) else None
        if new is not None and new.key == row.key:
            continue
        yield _event(row, old, new, detection)


def _is_pair(old: RowChange, new: RowChange, one_row: bool) -> bool:
    return (old.op, new.op) == ("D", "I") and (not one_row or old.intent == new.intent)


def _event(row: RowChange, old: RowChange | None, new: RowChange | None, detection: KeyChangeDetection) -> Event:
    headers = detection == "adjacent"
    if row.op == "U":
        return Event(row.commit, row.intent, "u", row.key, None, row.image)
    if row.op == "D":
        newkey = new.key if new is not None and headers else None
        return Event(row.commit, row.intent, "d", row.key, row.image, None, newkey=newkey)
    if old is not None and old.key == row.key:
        return Event(row.commit, row.intent, "u", row.key, old.image, row.image)
    oldkey = old.key if old is not None and headers else None
    return Event(row.commit, row.intent, "c", row.key, None, row.image, oldkey=oldkey)
