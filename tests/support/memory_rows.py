"""The rows of a state in memory, by the plain rules: what a batch changes, and what the change log adds up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.event.net_effect import count_images, net_effects
from airflow_provider_db2cdc.cdc.event.row_multiset import renumbered
from support.memory_source import Row
from support.memory_target import Logged, State

Images: TypeAlias = Mapping[Hashable, Row | None]
"""Rows by key. None stands for a row that is deleted."""


def keyed_changes(own: Sequence[Logged], state: State) -> Images:
    """Return the rows that a batch's events set or delete. Rows that were read and are there are not written."""
    effects = net_effects(event for _, step, event in own if step == "changes")
    snapshot = {event.key: event.after for _, step, event in own if step != "changes"}
    differing = {key: image for key, image in snapshot.items() if key not in state or state[key][0] != image}
    return {key: effect.image for key, effect in effects.items()} | differing  # type: ignore[return-value]


def keyless_changes(own: Iterable[Logged], state: State) -> Images:
    """Return the copies that a batch's events add or remove. Rows that were read replace the copies that are there."""
    logged = [event for _, _, event in own]
    read, held = Counter(event.after for event in logged if event.op == "r"), copies(state)
    deltas = count_images(event for event in logged if event.op != "r")
    changed: dict[Hashable, Row | None] = {}
    for image, delta in deltas.items():
        added, removed = renumbered(held[image], delta)
        changed |= {(image, copy): image for copy in added}  # type: ignore[misc]
        changed |= {(image, copy): None for copy in removed}
    changed |= {(image, copy): image for image, count in read.items() for copy in range(1, count + 1)}  # type: ignore[misc]
    return {key: image for key, image in changed.items() if image is None or key not in state}


def copies(state: State) -> Counter[Hashable]:
    """Return how often a state has each row."""
    return Counter(image for image, _ in state.values())


def misnumbered(state: State) -> set[Hashable]:
    """Return the rows of a state whose equal rows are not numbered from 1 without a gap."""
    held = copies(state)
    images = {image for key, (image, _) in state.items() if key[1] > held[image]}  # type: ignore[index]
    return {key for key, (image, _) in state.items() if image in images}


def numbered(state: State) -> State:
    """Return rows of a state whose equal rows are numbered from 1 without a gap."""
    count: Counter[Hashable] = Counter()
    rows: State = {}
    for image, batch in state.values():
        count[image] += 1
        rows[image, count[image]] = (image, batch)
    return rows


def folded_by_key(log: Iterable[Logged]) -> State:
    """Return the rows after the last event of each key, with the batches of these events."""
    last = {event.key: (event.after, batch) for batch, _, event in log}
    return {key: (image, batch) for key, (image, batch) in last.items() if image is not None}  # type: ignore[misc]


def folded_by_copies(log: Iterable[Logged]) -> State:
    """Return the copies that the change log adds up to. Rows that a batch has read replace the count before it."""
    held: Counter[Hashable] = Counter()
    newest: dict[Hashable, int] = {}
    by_batch: dict[int, list[Event]] = {}
    for batch, _, event in log:
        by_batch.setdefault(batch, []).append(event)
    for batch, events in sorted(by_batch.items()):
        deltas = count_images(event for event in events if event.op != "r")
        read = Counter(event.after for event in events if event.op == "r")
        for image in deltas.keys() | read.keys():
            held[image] = read[image] or max(0, held[image] + deltas[image])
            newest[image] = batch
    return {
        (image, copy): (image, newest[image])  # type: ignore[misc]
        for image, count in held.items()
        for copy in range(1, count + 1)
    }
