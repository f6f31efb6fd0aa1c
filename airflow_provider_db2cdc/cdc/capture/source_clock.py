"""The source's clock: how its local time becomes UTC.

IBMSNAP_LOGMARKER is the time of a commit by the local clock of the source. When summer time ends that clock is set
back, and shows one hour twice. Within that hour only the order of commits separates the two passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_db2cdc.cdc.lsn import Lsn

Minute = tuple[int, Lsn]
"""A minute of the repeated hour (0 to 59), and the first commit in it."""


@dataclass(frozen=True)
class ClockChange:
    """A change of the clock's distance to UTC, as summer time begins or ends.

    `begin` and `end` are local times in ISO format. Commits before `begin` were before the change, and commits from
    `end` on were after it. A clock that is set back shows the times between them twice. Of the commits there, those
    from `first_commit` on were after the change. If `first_commit` is None, all of them were before it. A clock that is
    set forward shows no time between the two.

    `offset_s` is what local time is ahead of UTC after the change, in seconds.
    """

    begin: str
    end: str
    offset_s: int
    first_commit: Lsn | None = None

    @property
    def is_set_back(self) -> bool:
        """Whether the clock shows times twice."""
        return self.begin < self.end

    def is_before(self, local: str, commit: Lsn) -> bool:
        """Return whether the change was before a commit, whose local time is `local` in ISO format."""
        is_repeated = self.begin <= local < self.end
        return local >= self.end or (is_repeated and self.first_commit is not None and commit >= self.first_commit)


@dataclass(frozen=True)
class SourceClock:
    """A clock of the source. Until the first of the `changes`, local time is `offset_s` seconds ahead of UTC.

    The first commits after a change are known of hours up to `searched_upto`, a local time in ISO format. `offsets_s`
    are all offsets that plans have used so far.
    """

    offset_s: int = 0
    changes: tuple[ClockChange, ...] = ()
    searched_upto: str = ""
    offsets_s: tuple[int, ...] = ()

    @property
    def newest_offset_s(self) -> int:
        """The offset after the last change."""
        return self.changes[-1].offset_s if self.changes else self.offset_s

    def offset_at(self, local: str, commit: Lsn) -> int:
        """Return by how many seconds the clock was ahead of UTC at a commit."""
        before = [change for change in self.changes if change.is_before(local, commit)]
        return before[-1].offset_s if before else self.offset_s

    def utc(self, local: datetime, commit: Lsn) -> datetime:
        """Return the time of a commit in UTC, without a zone, from its local time."""
        return local - timedelta(seconds=self.offset_at(local.isoformat(timespec="microseconds"), commit))

    def local_times(self, utc: datetime) -> list[datetime]:
        """Return the local times that a moment may have had, by every offset that plans have used."""
        return [utc + timedelta(seconds=offset_s) for offset_s in self.offsets_s]


def second_pass_limits(minutes: Sequence[Minute]) -> dict[int, Lsn]:
    """Return for each minute of a repeated hour the commit after which its commits are of the second pass.

    A commit that comes after one of two minutes later shows that the clock was set back in between. A minute without
    such a commit is not in the result. Within a minute commits may swap places, because their times are approximate.
    """
    limits = {}
    for minute, _ in minutes:
        if later := [first for other, first in minutes if other > minute + 1]:
            limits[minute] = min(later)
    return limits
