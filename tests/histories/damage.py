"""What a history has damaged on purpose: rows of states, and events of change logs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from support.memory_target import Logged

from airflow_provider_db2cdc.cdc.event.change_event import Event

Part = tuple[int | None, ...]
"""A row's key. Rows of a table without a key have only the one column, so there it is the whole row."""


@dataclass
class Damage:
    """The damage of one table.

    Rows of `parts` may be wrong. `is_foreign`: another writer has changed the state, so other batches may refuse to
    continue. `lost` and `doubled` are events of the change log.
    """

    parts: set[Part] = field(default_factory=set)
    is_foreign: bool = False
    lost: list[Logged] = field(default_factory=list)
    doubled: list[Logged] = field(default_factory=list)

    def note_state_mended(self) -> None:
        """Note that the state is right again. A repair that trusts the log may make rows of lost events wrong."""
        self.parts, self.is_foreign = parts_of(event for _, _, event in self.lost), False


def part_of(row: Hashable) -> Part:
    """Return the part of a row."""
    assert isinstance(row, tuple)
    return row[:1]


def parts_of(events: Iterable[Event]) -> set[Part]:
    """Return the parts that events are about."""
    return {part_of(image) for event in events for image in (event.before, event.after) if image is not None}
