"""The window (low, high] of a snapshot's read: what the log says while rows are being read.

`low`: every commit up to it was over before the read began. `high`: every commit that the read can have seen is at or
below it. Between the two a row may have been read before or after any change of it, so the log decides wherever it has
a net effect, and the row that was read wherever it has none. Both marks may be wider than needed; the rule stays right.

This is the rule in its plain form. The Spark side does the same set by set and is tested against it.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stand:
    """What the current state knows of one of its rows: the commit that it shows, and the batch that wrote it."""

    commit: Any
    batch: int


def surviving(staged: Iterable[tuple[Hashable, Hashable]], effects: Container[Hashable]) -> dict[Hashable, Hashable]:
    """Return the staged rows (key, image) whose key has no net effect in the window; they go out as `r`.

    Net effect, not any event: where a key's events cancel out, the log says "unchanged", and the staged row is the only
    one that knows its state. A scan may meet such a row twice; then both are equal.
    """
    return {key: image for key, image in staged if key not in effects}


def vanished(state: Mapping[Hashable, Stand], low: Any, first_batch: int) -> set[Hashable]:
    """Return the keys of the state that a completed snapshot of the whole table did not find at the source.

    `low` is the first group's low mark, `first_batch` the batch that published it. A row that exists was either read
    (then a batch of the snapshot wrote it) or came by a change after `low` (then it shows a later commit). No keys need
    be compared, so this holds for keys of every type, whatever orders them. Both conditions are needed: on an idle
    source a high mark equals the low mark.
    """
    return {key for key, stand in state.items() if stand.batch < first_batch and stand.commit <= low}
