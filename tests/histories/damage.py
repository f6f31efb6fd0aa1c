"""What a history has damaged on purpose: rows of states, and events of change logs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from support.memory_source import row_of
from support.memory_target import Logged

from airflow_provider_db2cdc.cdc.event.change_event import Event

Part = tuple[int | None, ...]
"""A row's key. Rows of a table without a key have only the one column, so there it is the whole row."""


@dataclass
class Damage:
    """The damage of one table.

    Rows of `parts` may be wrong. `is_foreign`: another writer has changed the state, so other batches may refuse to
    continue. `lost` and `doubled` are events of the change log.

    The log's last word on `stale` parts may be wrong: the state had lost a row, so a snapshot that did not find it at
    the source wrote no event. A repair that trusts the log puts it back.
    """

    parts: set[Part] = field(default_factory=set)
    is_foreign: bool = False
    lost: list[Logged] = field(default_factory=list)
    doubled: list[Logged] = field(default_factory=list)
    stale: set[Part] = field(default_factory=set)

    def note_state_mended(self) -> None:
        """Note that the state is right again, as long as no repair trusts the log."""
        self.parts, self.is_foreign = self.of_log, False

    @property
    def of_log(self) -> set[Part]:
        """The parts on which the log's last word may be wrong."""
        return parts_of(event for _, _, event in self.lost) | self.stale


def part_of(row: Hashable) -> Part:
    """Return the part of a row."""
    return row_of(row)[:1]


def parts_of(events: Iterable[Event]) -> set[Part]:
    """Return the parts that events are about."""
    return {part_of(image) for event in events for image in (event.before, event.after) if image is not None}
