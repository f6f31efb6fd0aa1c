"""What a repair compares, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from airflow_provider_db2cdc.cdc.lsn import Lsn

RepairKind = Literal["backfill", "replay"]


@dataclass(frozen=True)
class Backfill:
    """The comparison of an interval: commits after `begin_ms` and up to `end_ms`, both in UTC milliseconds.

    `after` and `upto` are the last commits at or before these times, as the source's log of commits has them. Either is
    None if that log has no commit from before its time: it is pruned. Then the time of an event decides.
    """

    begin_ms: int
    end_ms: int
    after: Lsn | None = None
    upto: Lsn | None = None
    type: Literal["backfill"] = "backfill"

    def holds(self, commit: Lsn, at_ms: int) -> bool:
        """Return whether a commit belongs to the interval. `at_ms` is its time in UTC milliseconds."""
        is_after = self.begin_ms < at_ms if self.after is None else self.after < commit
        return is_after and (at_ms <= self.end_ms if self.upto is None else commit <= self.upto)


@dataclass(frozen=True)
class Replay:
    """The comparison of the whole change log of a table with its state."""

    type: Literal["replay"] = "replay"


Repair: TypeAlias = Backfill | Replay
"""What is compared."""


@dataclass(frozen=True)
class Findings:
    """What the comparison of one table found.

    `commits` and `events` of the source, and `keys` of events (images of a table without a key), are those of the
    interval. A replay counts the whole log. `events_added` are those that the log lacked. `events_only_in_log` are
    those that the change table lacks, although it is not pruned there. `events_doubled` are copies of events in the
    log.

    `rows_corrected` are the rows of the state that differed. Change rows could be compared from `comparable_since_ms`
    on, None if none could. `is_foreign`: another writer has changed the state. `note` says why a table was not
    compared, or not all of it.
    """

    commits: int = 0
    events: int = 0
    keys: int = 0
    events_added: int = 0
    events_only_in_log: int = 0
    events_doubled: int = 0
    rows_corrected: int = 0
    comparable_since_ms: int | None = None
    is_foreign: bool = False
    note: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether there is nothing to correct."""
        return not self.events_added and not self.rows_corrected


@dataclass(frozen=True)
class PlannedRepair:
    """The repair that a batch carries out, and what it found before it was planned."""

    repair: Repair
    found: Findings

    @property
    def is_needed(self) -> bool:
        """Whether the batch would change anything.

        A replay has read the whole state. So it also ends the refusal of other batches after another writer's change.
        """
        return not self.found.is_equal or (self.repair.type == "replay" and self.found.is_foreign)


@dataclass(frozen=True)
class RepairOrder:
    """The repair that a plan asks for. With `is_dry_run` it only compares."""

    repair: Repair
    is_dry_run: bool = False
