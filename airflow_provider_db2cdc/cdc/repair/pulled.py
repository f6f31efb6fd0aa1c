"""The commits that batches of a table have pulled since the table began, and which batch pulled which commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch, begins


@dataclass(frozen=True)
class Beginning:
    """The batch that began a table, and when it was planned. Commits at or before `after` belong to the snapshot."""

    after: Lsn
    batch: int
    at_ms: int


@dataclass(frozen=True)
class PulledRanges:
    """The ranges that applied batches pulled since a table began, with the number of each batch, in order."""

    beginning: Beginning
    ranges: Sequence[tuple[int, LsnRange]] = ()

    def covering(self, commit: Lsn) -> int | None:
        """Return the newest batch whose range holds a commit, None if none does."""
        return max((batch for batch, span in self.ranges if commit in span), default=None)


def pulled_ranges(applied: Sequence[PlannedBatch]) -> PulledRanges | None:
    """Return the ranges of a table's applied batches, which are in order. None without a batch.

    If the batch log no longer has the batch that began the table, the oldest one that it has stands for it.
    """
    pulled = [planned for planned in applied if planned.repair is None]
    if not pulled:
        return None
    first = next((planned for planned in reversed(pulled) if begins(planned)), pulled[0])
    ranges = [(each.batch, each.span) for each in pulled if each.batch >= first.batch and not each.span.empty]
    return PulledRanges(Beginning(first.after, first.batch, first.planned_at_ms), ranges)
