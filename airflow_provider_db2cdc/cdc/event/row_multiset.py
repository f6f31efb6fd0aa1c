"""Tables without a key: all columns together distinguish rows, and equal rows are counted.

For each image (a whole row) the log shows how many copies came and went (`cdc.event.net_effect.count_images`). The
target holds copies 1 to n of it, each as a row of its own. Deleting one of several equal rows removes the last copy. So
no input has to name the deleted copy.

A snapshot of such a table cannot let the log decide as `cdc.event.snapshot_window` does. The log shows by how much a
count changed, not from which value. So a read settles only images that no event touched in its window: their count was
constant. The others stay unknown until a later read finds them untouched.

Unknown images are those that every window so far has touched. So their number only decreases, and one more read is
enough wherever rows are only added. Of many windows it is also right to use only the newest. They leave more images
unknown, and an image that is settled again has the count that was read.

This is the rule in its plain form. The Spark side does the same on sets of rows and is tested against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SourceError


def touched(events: Iterable[Event]) -> set[Hashable]:
    """Return every image that came or went, even if its count is as before: a scan may have met it at any time."""
    return {image for event in events for image in (event.before, event.after) if image is not None}


def renumbered(held: int, delta: int) -> tuple[range, range]:
    """Return the copies to add and the copies to remove when `held` copies change by `delta`.

    The result never has fewer than zero copies. While a first snapshot is being read, more copies may go than are held:
    the read has not settled those yet.
    """
    after = max(0, held + delta)
    return range(held + 1, after + 1), range(after + 1, held + 1)


def settled(
    staged: Iterable[Hashable], moved: Collection[Hashable], unknown: Collection[Hashable] | None
) -> Counter[Hashable]:
    """Return the count of each image that a read settles.

    These are the untouched ones among the `unknown` images, or among all images if `unknown` is None.
    """
    return Counter(image for image in staged if image not in moved and (unknown is None or image in unknown))


def unequal(staged: Counter[Hashable], held: Mapping[Hashable, int]) -> Counter[Hashable]:
    """Return the settled rows whose image the target holds in another number.

    A heal publishes all copies of these, because the rows that were read replace an image's count.
    """
    return Counter({image: count for image, count in staged.items() if count != held.get(image, 0)})


def surplus(
    held: Mapping[Hashable, int],
    staged: Counter[Hashable],
    moved: Collection[Hashable],
    unknown: Collection[Hashable] | None,
) -> Counter[Hashable]:
    """Return how many copies too many the target holds of the images that a read of the whole table settles.

    They are removed at once, not by a deletion of missing rows at the end. A deletion in between removes the last copy,
    which may be a surplus one.
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
