"""A register in memory, which several leases share, and a clock that tests move."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from threading import Lock

from airflow_provider_db2cdc.tick.lease.lease import RegisterContent


@dataclass
class MemoryRegister:
    """A register of this process. With `checks=False` it ignores the condition of a write, as some stores do."""

    found: RegisterContent | None = None
    checks: bool = True
    is_reachable: bool = True
    loses_answers: bool = False
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    turn: Lock = field(default_factory=Lock)

    def read(self) -> RegisterContent | None:
        """Return what it holds."""
        if not self.is_reachable:
            raise ConnectionError("unreachable")
        return self.found

    def swap(self, tag: str | None, text: str) -> str | None:
        """Write under the condition."""
        if not self.is_reachable:
            raise ConnectionError("unreachable")
        with self.turn:
            if self.checks and tag != (self.found.tag if self.found else None):
                return None
            self.found = RegisterContent(f"tag{next(self.numbers)}", text)
            if self.loses_answers:
                raise ConnectionError("no answer")
            return self.found.tag


@dataclass
class MemoryDriver:
    """A driver that records what is asked of it."""

    ended: list[str] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)

    def end_after(self, seconds: float | None) -> None:
        """Keep the deadline."""
        self.deadlines.append(seconds)

    def end(self, reason: str) -> None:
        """Keep the reason."""
        self.ended.append(reason)


@dataclass
class TestClock:
    """A clock that stands still unless a lease waits, or a test moves it."""

    __test__ = False
    seconds: float = 1000.0
    suspended_s: float = 0.0

    def now_s(self) -> float:
        """Return the clock's time."""
        return self.seconds + self.suspended_s

    def awake_s(self) -> float:
        """Return the time without that of a suspension."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.seconds += seconds
