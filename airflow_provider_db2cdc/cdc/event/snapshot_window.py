"""The window (low, high] of a snapshot's read: what the log says while rows are being read.

`low`: every commit up to it was over before the read began. `high`: every commit that the read can have seen is at or
below it. Between the two a row may have been read before or after any change of it, so the log decides wherever it has
a net effect, and the row that was read wherever it has none. Both marks may be wider than needed; the rule stays right.

In the target the window is told by batches: what lies behind the table's last batch when the read began (the low batch)
and is not behind the batch that publishes. Positions would not do: a source that was restored from a backup, or whose
capture was set up anew, counts its commits anew, and what the target holds of before may have any position.

This is the rule in its plain form. The Spark side does the same set by set and is tested against it.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping


def surviving(staged: Iterable[tuple[Hashable, Hashable]], effects: Container[Hashable]) -> dict[Hashable, Hashable]:
    """Return the staged rows (key, image) whose key has no net effect in the window; they go out as `r`.

    Net effect, not any event: where a key's events leave open what it holds, the staged row is the only one that knows.
    A scan may meet such a key twice; then both rows are equal.
    """
    return {key: image for key, image in staged if key not in effects}


def vanished(batches: Mapping[Hashable, int], read: Container[Hashable], low_batch: int) -> set[Hashable]:
    """Return the keys of the state that a completed snapshot of the whole table did not find at the source.

    Or those of a range of keys that a group has read: then of what the state has in it, and by the group's low batch.
    `batches` are those that wrote the rows of the state, `read` the keys that went out as `r` behind `low_batch`, the
    first group's. A row that exists was either read, or came by a change behind the low mark, whose batch wrote it.
    A mere event is no sign of life: a key may come and go within a commit, and leave the state as it was.
    """
    return {key for key, batch in batches.items() if batch <= low_batch and key not in read}
