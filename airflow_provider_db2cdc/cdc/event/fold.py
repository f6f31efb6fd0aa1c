"""The order of a change log that is safe to fold: the last event of each key says what the key holds.

Events keep the source's order, with one exception per key and commit. A statement like `UPDATE t SET id = id + 1`
inserts a key's new row before it deletes the old one. Then the key's last event is a deletion although the key has a
row. In that case the event that shows the outcome moves after the last event of its key in its commit. Only its place
changes.

The outcome is the net effect of the commit (`cdc.event.net_effect`). Where that is unknown, the key's state before the
commit decides. The commit inserted and deleted equal images, so the key has a row after it if it had one before.

This is the rule in its plain form. The Spark side does the same on sets of rows and is tested against it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.event.net_effect import Effect, by_commit, effect_of

EVENT, MOVED = 0, 2
"""The ordinal of an event at its own place, and of one that moved. A tombstone has the ordinal after its event's."""


@dataclass(frozen=True)
class Placed:
    """An event and its place in the log: within its commit by `intent`, then by `ordinal`."""

    event: Event
    intent: Any
    ordinal: int = EVENT


def placed(events: Iterable[Event], held: Collection[Hashable]) -> list[Placed]:
    """Return a batch's events in the order of the log, given the keys that the state holds before it."""
    present, log = set(held), list[Placed]()
    for commit, by_key in by_commit(events):
        for key, key_events in by_key.items():
            effect = effect_of(commit, key_events)
            is_present = key in present if effect is None else effect.present
            (present.add if is_present else present.discard)(key)
            log += _in_order(key_events, is_present, effect)
    return sorted(log, key=lambda entry: (entry.event.commit, entry.intent, entry.ordinal))


def folded(log: Iterable[Placed]) -> dict[Hashable, Hashable]:
    """Return each key's row as seen by a reader that keeps the last event of each key."""
    last = {entry.event.key: entry.event.after for entry in log}
    return {key: image for key, image in last.items() if image is not None}


def _in_order(events: list[Event], is_present: bool, effect: Effect | None) -> Iterator[Placed]:
    last = max(events, key=lambda event: event.intent)
    decisive = [event for event in events if _is_decisive(event, is_present, effect)]
    moved = None if last in decisive or not decisive else max(decisive, key=lambda event: event.intent)
    for event in events:
        yield Placed(event, last.intent, MOVED) if event is moved else Placed(event, event.intent)


def _is_decisive(event: Event, is_present: bool, effect: Effect | None) -> bool:
    if not is_present:
        return event.op == "d"
    return event.after is not None and (effect is None or event.after == effect.image)
