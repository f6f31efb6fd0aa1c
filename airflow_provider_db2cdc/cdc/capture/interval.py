"""The data interval of a run: where the run's changes end if `end.at` is `interval`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError

EndAt = Literal["fence", "interval"]
PROPERTY = "end.at"


class CaptureBehindError(SourceError):
    """Raised when capture has not passed the end of a run's data interval."""


@dataclass(frozen=True)
class DataInterval:
    """The data interval of a run. Both times are ISO texts in UTC. `start` is empty where only the end is known."""

    end: str
    start: str = ""

    @classmethod
    def of(cls, start: datetime | None, end: datetime) -> DataInterval:
        """Return the interval between two times that have a zone."""
        return cls(_iso(end), "" if start is None else _iso(start))

    @property
    def end_utc(self) -> datetime:
        """Its end in UTC, without a zone."""
        return datetime.fromisoformat(self.end).astimezone(UTC).replace(tzinfo=None)


@dataclass(frozen=True)
class CapturedTime:
    """The time up to which capture has written every commit: its position, and the clock of the position's times."""

    position: CapturePosition
    clock: SourceClock

    @property
    def utc(self) -> datetime:
        """The time in UTC, without a zone."""
        return self.clock.utc(datetime.fromisoformat(self.position.synchtime), self.position.lsn)

    def has_passed(self, moment: datetime) -> bool:
        """Return whether every commit up to a moment in UTC is captured.

        Db2 may record the times of commits in whole seconds. So more commits of the very moment may follow.
        """
        return self.utc > moment

    def check_passed(self, interval: DataInterval) -> None:
        """Check that capture has passed the end of an interval.

        :raises CaptureBehindError: it has not.
        """
        if not self.has_passed(interval.end_utc):
            raise CaptureBehindError(
                f"capture has not passed the end of the data interval, {interval.end}: it stands at "
                f"{_iso(self.utc.replace(tzinfo=UTC))}",
                "Run this again later.",
            )


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()


def check_repetition(repeat_s: float, end_at: EndAt) -> None:
    """Refuse several ticks of one run where a run ends at its data interval.

    :raises ConfigurationError: when both are asked for.
    """
    if repeat_s and end_at == "interval":
        raise ConfigurationError(
            f"tick.repeat.s is given, and {PROPERTY} is interval", "Remove one of them: an interval has one tick."
        )
