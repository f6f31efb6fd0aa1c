"""Net effects: what a key holds after a range of commits, whatever happened to it on the way.

Per key and commit each inserted image is cancelled against a deleted image that equals it in full. A left-over insert
means present with that image, a left-over delete alone means absent, nothing left means unchanged. It is a count (what
a key holds after a commit is what it held before, plus its inserts, minus its deletes), so `UPDATE t SET id = id + 1`
comes out right, where replay event by event loses rows.

An unchanged key is present where its first image went (there was a row before the commit) or its last one came (there
is one after it). So the log knows a row that is deleted and inserted again as it was; a scan may miss it, for it may
look at the old place behind the deletion and at the new one before the insertion. Else nothing is known: a row came and
went, or a statement moved one away and one that is like it here. The last commit that tells something decides.

This is the rule in its plain form. The Spark side does the same set by set and is tested against it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_db2cdc.cdc.event.change_event import Event


@dataclass(frozen=True)
class Effect:
    """The state of one key: `image` when it is present, None when it is absent; `commit` decided it."""

    commit: Any
    image: Hashable | None

    @property
    def present(self) -> bool:
        """Whether the key has a row."""
        return self.image is not None


def net_effects(events: Iterable[Event]) -> dict[Hashable, Effect]:
    """Return the net effect of each key that has one; a key is not named whose events leave its state unknown."""
    effects: dict[Hashable, Effect] = {}
    for commit, by_key in by_commit(events):
        for key, of_key in by_key.items():
            effect = effect_of(commit, of_key)
            if effect is not None:
                effects[key] = effect
    return effects


def count_images(events: Iterable[Event]) -> Counter[Hashable]:
    """Return how much oftener each image came than it went; none where the two are equal."""
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
    """Return the effect of one commit's events of one key; None where they leave it unknown."""
    if any(event.op == "u" and event.before is None for event in events):
        last = max(events, key=lambda event: event.intent)
        return Effect(commit, last.after)
    images = count_images(events)
    left = [image for image, count in images.items() if count > 0]
    if left:
        return Effect(commit, left[0])
    return Effect(commit, None) if any(count < 0 for count in images.values()) else _unchanged(commit, events)


def _unchanged(commit: Any, events: list[Event]) -> Effect | None:
    first, last = (end(events, key=lambda event: event.intent) for end in (min, max))
    image = last.after if last.after is not None else first.before
    return None if image is None else Effect(commit, image)
