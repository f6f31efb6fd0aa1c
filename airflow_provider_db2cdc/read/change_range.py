"""Ranges of a change log. Each begins after its `after` and ends with its `upto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.errors import ConfigurationError


@dataclass(frozen=True)
class BatchRange:
    """The batches after `after`, up to `upto`; None is the last applied one. No two such ranges share an event.

    `log_id` is the Delta id of the change log that the numbers belong to, empty if it does not matter.

    :raises ConfigurationError: when it ends before it begins.
    """

    after: int = 0
    upto: int | None = None
    log_id: str = ""

    def __post_init__(self) -> None:
        _check_order(self.after, self.upto)


@dataclass(frozen=True)
class LsnRange:
    """The commits after `after`, up to `upto`, as LSNs or their texts. None leaves an end open.

    An `r` event has the LSN up to which its batch goes. A restored source uses its LSNs again: a range then has the
    commits of all its histories whose LSNs have the same length.

    :raises OffsetError: when a text is not an LSN, or the LSNs have different widths.
    :raises ConfigurationError: when it ends before it begins.
    """

    after: Lsn | str | None = None
    upto: Lsn | str | None = None

    def __post_init__(self) -> None:
        _check_order(*self.ends)

    @property
    def ends(self) -> tuple[Lsn | None, Lsn | None]:
        """Both ends as LSNs."""
        return _lsn(self.after), _lsn(self.upto)


@dataclass(frozen=True)
class TimeRange:
    """The commits after the time `after`, up to `upto`, such as a data interval. None leaves an end open.

    An `r` event has the time of its tick's plan. Events without a commit time are in no such range.

    :raises ConfigurationError: when a time has no time zone, or the range ends before it begins.
    """

    after: datetime | None = None
    upto: datetime | None = None

    def __post_init__(self) -> None:
        for time in (self.after, self.upto):
            check_zone(time)
        _check_order(self.after, self.upto)


ChangeRange = BatchRange | LsnRange | TimeRange


def asset_event_range(*extras: Mapping[str, Any] | None) -> BatchRange:
    """Return the range of a table's asset events: the first one's begin to the last one's end, in any order.

    An event without a range, which another task or a person made, does not count.

    :raises ConfigurationError: when no event has a range, or they belong to different change logs.
    """
    found = [extra for extra in extras if extra and {"from_batch", "to_batch", "log_id"} <= extra.keys()]
    if not found:
        raise ConfigurationError(
            "no asset event has a range of batches",
            "Schedule the DAG on `table_asset(...)`, and give the extras of its triggering events.",
        )
    log_ids = {str(extra["log_id"]) for extra in found}
    if len(log_ids) > 1:
        raise ConfigurationError(
            "the asset events belong to different change logs",
            "The target was created again between them, or they are events of several tables. Read each one's range.",
        )
    first = min(int(extra["from_batch"]) for extra in found)
    return BatchRange(first, max(int(extra["to_batch"]) for extra in found), log_ids.pop())


def check_zone(time: datetime | None) -> None:
    """Check that a time has a time zone.

    :raises ConfigurationError: when it has none.
    """
    if time is not None and time.tzinfo is None:
        raise ConfigurationError(f"the time {time} has no time zone", "Give one, such as datetime.UTC.")


def _check_order(after: Any, upto: Any) -> None:
    if after is not None and upto is not None and upto < after:
        raise ConfigurationError(f"the range ({after}, {upto}] ends before it begins", "Exchange its ends.")


def _lsn(value: Lsn | str | None) -> Lsn | None:
    return Lsn.parse(value) if isinstance(value, str) else value
