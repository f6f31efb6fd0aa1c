"""Net effects: what a key holds after a range of commits, whatever happened in between.

Per key and commit each inserted image is cancelled against an equal deleted image. A left-over insert means that the
key is present with that image. If only a delete is left over, the key is absent. If nothing is left over, the key is
unchanged.

The rule is a count: what a key held before, plus its inserts, minus its deletes. So `UPDATE t SET id = id + 1` comes
out right, where replay event by event loses rows.

An unchanged key is present if its first image was deleted: there was a row before the commit. It is also present if its
last image was inserted: there is a row after the commit. So a row that is deleted and inserted again unchanged is known
from the log. A scan may miss such a row. It may look at the old place after the deletion, and at the new one before the
insertion.

Otherwise nothing is known. A row came and went, or a statement moved one row away and an equal row here. The last
commit with a known effect decides.

This is the rule in its plain form. The Spark side does the same on sets of rows and is tested against it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_db2cdc.cdc.event.change_event import Event


@dataclass(frozen=True)
class Effect:
    """The state of one key: `image` when it is present, None when it is absent. `commit` decided it."""

    commit: Any
    image: Hashable | None

    @property
    def present(self) -> bool:
        """Whether the key has a row."""
        return self.image is not None


def net_effects(events: Iterable[Event]) -> dict[Hashable, Effect]:
    """Return the net effect of each key that has one, without keys whose events leave their state unknown."""
    effects: dict[Hashable, Effect] = {}
    for commit, by_key in by_commit(events):
        for key, key_events in by_key.items():
            effect = effect_of(commit, key_events)
            if effect is not None:
                effects[key] = effect
    return effects


def count_images(events: Iterable[Event]) -> Counter[Hashable]:
    """Return per image how many more times it was inserted than deleted, without the images where both are equal."""
    images: Counter[Hashable] = Counter()
    for event in events:
        if event.after is not None:
            images[event.after] += 1
        if event.before is not None:
            images[event.before] -= 1
    return Counter({image: count for image, count in images.items() if count})


def by_commit(events: Iterable[Event]) -> list[tuple[Any, Mapping[Hashable, list[Event]]]]:
    """Return each commit with its events by key, in order of the commits."""
    commits: dict[Any, dict[Hashable, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        commits[event.commit][event.key].append(event)
    return sorted(commits.items())


def effect_of(commit: Any, events: list[Event]) -> Effect | None:
    """Return the effect of one commit's events of one key, None where they leave it unknown."""
    if any(event.op == "u" and event.before is None for event in events):
        last = max(events, key=lambda event: event.intent)
        return Effect(commit, last.after)
    images = count_images(events)
    leftover = [image for image, count in images.items() if count > 0]
    if leftover:
        return Effect(commit, leftover[0])
    return Effect(commit, None) if any(count < 0 for count in images.values()) else _unchanged(commit, events)


def _unchanged(commit: Any, events: list[Event]) -> Effect | None:
    first, last = (pick(events, key=lambda event: event.intent) for pick in (min, max))
    image = last.after if last.after is not None else first.before
    return None if image is None else Effect(commit, image)
