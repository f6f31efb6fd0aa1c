"""A model of snapshots of a table without a key: writer, capture, pulls, reads and crashes in random order.

    CopiesModel(seed=7).run()      raises Wrong if the target does not become equal to the source

The table's rows lie in places. A read looks at each place at a different moment. An update may move its row to another
place, so a read may meet the row twice or not at all. `mistake` plants one known mistake.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import count_images
from airflow_provider_db2cdc.cdc.event.row_multiset import renumbered, settled, surplus, touched

SWEPT = "what is too much is swept in the end"
MISTAKES = (
    "only changed counts are touched",
    "window of the last batch alone",
    "one read is enough",
    "what is too much stays",
    SWEPT,
)
IMAGES = "abcd"
PLACES = range(12)
Image = Hashable


class Wrong(AssertionError):
    """The target is not equal to the source."""


@dataclass
class CopiesModel:
    """One random history. The target begins with other rows than the source, as after a time without capture.

    Only the newest windows are known, up to a fixed number.
    """

    seed: int
    mistake: str = ""
    newest: int = 10
    rows: dict[int, Image] = field(default_factory=dict)
    commits: list[list[RowChange]] = field(default_factory=list)
    counts: list[Counter[Image]] = field(default_factory=lambda: [Counter()])
    log: list[tuple[int, Event]] = field(default_factory=list)
    copies: dict[tuple[Image, int], int] = field(default_factory=dict)
    offset: int = 0
    batch: int = 1
    windows: list[tuple[int, int]] = field(default_factory=list)

    def run(self) -> None:
        """Write, pull and read until the snapshot is over, then compare. The writer slows down in the end."""
        self.random = random.Random(self.seed)
        for _ in range(self.random.randrange(8)):
            self.write()
        self.offset = len(self.commits)
        for image in self.random.choices(IMAGES, k=self.random.randrange(5)):
            self.copies[image, 1 + sum(of == image for of, _ in self.copies)] = self.batch
        self.eagerness = 0.6
        while not self.read():
            self.eagerness *= 0.7
            self.pull(self.random.randint(self.offset, len(self.commits)))
        if self.mistake == SWEPT:
            self.sweep()
        self.pull(len(self.commits))
        self.check(set())

    def check(self, unknown: set[Image], is_over: bool = True) -> None:
        """Compare the target with the source at the offset, for all images except the `unknown` ones.

        Until the snapshot `is_over`, the target may have more: rows that the final deletion of missing rows removes.
        """
        shown, right = self.state(), self.counts[self.offset]
        is_more_well = self.mistake == SWEPT and not is_over
        known = {*IMAGES} - unknown
        if any(shown[image] < right[image] or (shown[image] > right[image] and not is_more_well) for image in known):
            raise Wrong(f"{self.seed}: {shown} is not {right}, unknown are {unknown}")

    def state(self) -> Counter[Image]:
        """Return what the target shows. The copies of an image are always numbered without gaps."""
        shown = Counter(image for image, _ in self.copies)
        assert all((image, copy) in self.copies for image, count in shown.items() for copy in range(1, count + 1))
        return shown

    def write(self) -> None:
        """Commit a transaction of a few changes."""
        at, changes = len(self.commits) + 1, list[RowChange]()

        def note(op: Literal["D", "I"], image: Image) -> None:
            changes.append(RowChange(at, len(changes), op, None, image))

        for _ in range(self.random.choice((1, 1, 2, 3))):
            free, taken = [place for place in PLACES if place not in self.rows], sorted(self.rows)
            kind = self.random.choice("idum")
            if kind == "i" and free:
                self.rows[place := self.random.choice(free)] = self.random.choice(IMAGES)
                note("I", self.rows[place])
            elif kind != "i" and taken:
                note("D", self.rows.pop(place := self.random.choice(taken)))
                if kind != "d":
                    place = self.random.choice([place, *free]) if kind == "m" else place
                    self.rows[place] = self.random.choice(IMAGES)
                    note("I", self.rows[place])
        self.commits.append(changes)
        self.counts.append(Counter(self.rows.values()))

    def scan(self) -> list[Image]:
        """Read each place once, while the writer continues."""
        found = []
        for place in PLACES:
            if self.random.random() < self.eagerness / 2:
                self.write()
            if place in self.rows:
                found.append(self.rows[place])
        return found

    def pull(self, upto: int) -> None:
        """Append the commits up to `upto` to the log and apply them to the target, as one batch."""
        self.batch += 1
        events = events_of(change for commit in self.commits[self.offset : upto] for change in commit)
        self.log += [(self.batch, event) for event in events]
        self.apply(count_images(events))
        self.offset = upto

    def apply(self, changed: Counter[Image]) -> None:
        """Apply changed counts to the state."""
        held = self.state()
        for image, delta in changed.items():
            added, removed = renumbered(held[image], delta)
            self.copies |= {(image, copy): self.batch for copy in added}
            for copy in removed:
                del self.copies[image, copy]

    def remove(self, gone: Counter[Image]) -> None:
        """Remove copies of images from the state."""
        self.apply(Counter({image: -count for image, count in gone.items()}))

    def read(self) -> bool:
        """Read the table once and publish what that settles. Return whether everything is settled now."""
        low, low_offset = self.batch, self.offset
        staged = Counter(self.scan())
        seen_upto = len(self.commits)
        while self.random.random() < 0.4:
            self.write()
            self.pull(self.random.randint(self.offset, seen_upto))
        high = max(seen_upto, self.offset, self.random.randint(low_offset, len(self.commits)))
        self.pull(high)
        if self.mistake == "window of the last batch alone":
            low = self.batch - 1
        before = self.windows[1 - self.newest :]
        self.windows = [*before, (low, self.batch)]
        self.publish(staged, [self.touched_in(window) for window in before], self.touched_in(self.windows[-1]))
        unknown = set.intersection(*(self.touched_in(window) for window in self.windows))
        self.check(unknown, is_over=False)
        return not unknown or self.mistake == "one read is enough"

    def publish(self, staged: Counter[Image], earlier: list[set[Image]], moved: set[Image]) -> None:
        """Apply to the state what a read settles."""
        unknown = set.intersection(*earlier) if earlier else None
        if not self.mistake.startswith("what is too much"):
            self.remove(surplus(self.state(), staged, moved, unknown))
        for image, count in settled(staged.elements(), moved, unknown).items():
            self.copies |= {(image, copy): self.batch for copy in range(1, count + 1)}

    def sweep(self) -> None:
        """Remove the copies that no batch of the snapshot wrote. That is right only for rows with keys."""
        low = self.windows[0][0]
        self.remove(Counter(image for (image, _), batch in self.copies.items() if batch <= low))

    def touched_in(self, window: tuple[int, int]) -> set[Image]:
        """Return the images that the log touches in the batches of a window."""
        events: Iterable[Event] = (event for batch, event in self.log if window[0] < batch <= window[1])
        return {*count_images(events)} if self.mistake == "only changed counts are touched" else touched(events)
