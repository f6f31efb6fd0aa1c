"""Tables without a key: rows are told apart by all their columns, and equal rows are counted.

The log says of an image (a whole row) how many copies came and went (`cdc.effect.count_images`); what the target holds
of it are copies 1 to n, each a row of its own. Deleting one of several equal rows takes the last copy, so nothing has
to say which one it was.

A snapshot of such a table cannot let the log decide as `cdc.window` does: the log knows by how much a count changed,
not from what. So a read settles only the images that no event touched in its window: they had one count all along. The
others are unknown until a later read finds them untouched. What is unknown is what every window so far has touched, so
it only ever gets less, and one more read is enough wherever rows are merely added. Of many windows the newest are as
right: they leave more unknown, and an image that is settled once more has the count that was read.

This is the rule in its plain form. The Spark side does the same set by set and is tested against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SourceError


def touched(events: Iterable[Event]) -> set[Hashable]:
    """Return every image that came or went, also one whose count is as before: a scan may have met it at any time."""
    return {image for event in events for image in (event.before, event.after) if image is not None}


def renumbered(held: int, delta: int) -> tuple[range, range]:
    """Return the copies to add and those to remove where `held` ones become `delta` more, and never fewer than none.

    More may go than are held while a first snapshot is being read: those that it has not settled yet.
    """
    after = max(0, held + delta)
    return range(held + 1, after + 1), range(after + 1, held + 1)


def settled(
    staged: Iterable[Hashable], moved: Collection[Hashable], unknown: Collection[Hashable] | None
) -> Counter[Hashable]:
    """Return how often each image is there that a read settles: of those unknown (None: of all) the untouched ones."""
    return Counter(image for image in staged if image not in moved and (unknown is None or image in unknown))


def surplus(
    held: Mapping[Hashable, int],
    staged: Counter[Hashable],
    moved: Collection[Hashable],
    unknown: Collection[Hashable] | None,
) -> Counter[Hashable]:
    """Return how many copies too many the target holds of the images that a read of the whole table settles.

    At once, not by a sweep at the end: a deletion meanwhile takes the last copy, which may be one that is too many.
    """
    images = (image for image in held if image not in moved and (unknown is None or image in unknown))
    counts = {image: held[image] - staged[image] for image in images}
    return Counter({image: count for image, count in counts.items() if count > 0})


def unsettled(table: TableId, reads: int) -> SourceError:
    """Return the error of a table that was read so often, and some of whose rows came or went each time."""
    return SourceError(
        f"{table}: it has no key, and some of its rows came or went during each of {reads} reads of it",
        "It is read again by the next tick. Give it a key, name columns whose values are unique with "
        f"{PROPERTY}, or have it snapshotted while it is quiet.",
    )
