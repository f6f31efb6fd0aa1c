"""What the snapshot model keeps: rows of the state and of the change log, and groups that wait for capture."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.event.net_effect import net_effects
from airflow_provider_db2cdc.cdc.lsn import Lsn


@dataclass(frozen=True)
class Stand:
    """What the state shows of a row: the commit, and the batch that wrote it."""

    commit: Lsn
    batch: int


@dataclass(frozen=True)
class Entry:
    """One row of the change log, in the order of appending."""

    batch: int
    commit: Lsn
    kind: str
    event: Event | None
    key: Hashable
    image: Hashable | None


@dataclass(frozen=True)
class Group:
    """A group that is staged and waits for capture. Positions are indexes of the history's commits."""

    chunk: int
    low: int
    low_batch: int
    begin: int
    token: int
    fence: int
    rows: tuple[tuple[Hashable, Hashable], ...]


def folded(log: Sequence[Entry]) -> dict[Hashable, Hashable]:
    """Return each key's row for a reader that keeps the last entry of each key."""
    last = {entry.key: entry.image for entry in log}
    return {key: image for key, image in last.items() if image is not None}


def rebuilt(log: Sequence[Entry]) -> dict[Hashable, Hashable]:
    """Return each key's row after the net effects of each commit and the snapshot events after them."""
    held: dict[Hashable, Hashable | None] = {}
    for commit in sorted({entry.commit for entry in log}):
        entries = [entry for entry in log if entry.commit == commit]
        effects = net_effects(entry.event for entry in entries if entry.event is not None)
        held.update({key: effect.image for key, effect in effects.items()})
        held.update({entry.key: entry.image for entry in entries if entry.event is None})
    return {key: image for key, image in held.items() if image is not None}
