"""The window (low, high] of a snapshot's read: the changes in the log while rows are being read.

`low`: every commit up to it was over before the read began. `high`: every commit that the read can have seen is at or
below it. In between a row may have been read before or after any change of it. So the log decides wherever it has a net
effect, and elsewhere the row that was read. Both watermarks may be wider than needed. The rule stays right.

In the target, batches define the window. It begins after the table's last batch when the read began (the low batch). It
ends with the batch that publishes. Positions would not do. After a restore from a backup, or after capture is set up
again, a source counts its commits from the start. What the target already holds may then have any position.

This is the rule in its plain form. The Spark side does the same on sets of rows and is tested against it.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping


def surviving(staged: Iterable[tuple[Hashable, Hashable]], effects: Container[Hashable]) -> dict[Hashable, Hashable]:
    """Return the staged rows (key, image) whose key has no net effect in the window. They are published as `r`.

    The test is the net effect, not any event. Where a key's events leave its state open, only the staged row shows it.
    A scan may meet such a key twice. Then both rows are equal.
    """
    return {key: image for key, image in staged if key not in effects}


def vanished(batches: Mapping[Hashable, int], read: Container[Hashable], low_batch: int) -> set[Hashable]:
    """Return the keys of the state that a completed snapshot of the whole table did not find at the source.

    It also works for a range of keys that a group has read. Then it takes the rows of the state in that range, and the
    group's low batch.

    `batches` has for each key the batch that wrote its row of the state. `read` has the keys that were published as `r`
    after `low_batch`, the first group's. An existing row was either read, or came by a change after the low watermark,
    whose batch wrote it. An event is not evidence of a row: a key may come and go within a commit, and leave the state
    as it was.
    """
    return {key for key, batch in batches.items() if batch <= low_batch and key not in read}
