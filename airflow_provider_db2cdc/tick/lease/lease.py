"""A lease: at most one run at a time may commit to the Delta tables of a target.

The lease is one small object of the store. Every change of it is a compare-and-swap. The holder renews it. A run that
finds it unchanged for `expiry_s` takes it over: its holder is dead. Only the waiting run's own clock counts.

If a machine is suspended, a holder on it ends once it is resumed. So the suspension counts for a holder, and does not
count for a waiting run, which may be on the same machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from airflow_provider_db2cdc.errors import ConfigurationError, TargetLockedError

UNKNOWN = "an unknown run"


@dataclass(frozen=True)
class RegisterContent:
    """The content of the register, and the tag of this version of it."""

    tag: str
    text: str


class Register(Protocol):
    """One object of a store, with an atomic compare-and-swap."""

    def read(self) -> RegisterContent | None:
        """Return what it holds, or None if it does not exist."""

    def swap(self, tag: str | None, text: str) -> str | None:
        """Write `text` if the object still has this tag, and return the new tag.

        The tag None stands for an object that does not exist. Return None if the object has changed, without a write.
        Texts must differ from each other: by its text a write whose answer was lost is recognised.
        """


class Clock(Protocol):
    """The time of this process."""

    def now_s(self) -> float:
        """Return seconds that only grow, also while the machine is suspended."""

    def awake_s(self) -> float:
        """Return seconds that only grow, and stand still while the machine is suspended."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclass(frozen=True)
class LeaseTimes:
    """When a holder renews its lease, when it must end without a renewal, and how long others wait.

    `give_up_s` is less than `expiry_s`, so a holder that cannot reach the store ends before another run takes over.
    """

    renew_s: float = 10.0
    give_up_s: float = 40.0
    expiry_s: float = 60.0
    poll_s: float = 2.0
    wait_s: float = 600.0


class Lease:
    """The lease of one run. `renewed_at_s` is a time at which the run surely held it."""

    def __init__(self, register: Register, holder: str, clock: Clock, times: LeaseTimes) -> None:
        self.register = register
        self.holder = holder
        self.clock = clock
        self.times = times
        self.renewed_at_s = clock.now_s()
        self._id = uuid4().hex
        self._tag: str | None = None

    def acquire(self, report: Callable[[str], None]) -> None:
        """Take the lease. Wait for another holder to release it, or until its lease has expired.

        :raises TargetLockedError: when another run still holds it after `wait_s`.
        :raises ConfigurationError: when the store does not check the conditions of a write.
        """
        begun_s, seen, since_s = self.clock.awake_s(), "", 0.0
        while True:
            found, now_s = self.register.read(), self.clock.awake_s()
            is_expired = found is not None and found.tag == seen and now_s - since_s >= self.times.expiry_s
            if (found is None or is_expired or _is_released(found.text)) and self._take(found):
                return
            if found is not None and found.tag != seen:
                if not seen:
                    report(f"waits: {_holder(found.text)} holds the lease of the target")
                seen, since_s = found.tag, now_s
            if now_s - begun_s > self.times.wait_s:
                raise TargetLockedError(
                    f"{_holder(found.text) if found else UNKNOWN} writes this target, and its store allows one driver",
                    "Run this again when that run has ended.",
                )
            self.clock.sleep(self.times.poll_s)

    def renew(self) -> bool:
        """Prolong the lease. Return False if another run has taken it over."""
        now_s = self.clock.now_s()
        tag = self.register.swap(self._tag, self._text())
        if tag is None:
            # An earlier renewal may have arrived although its answer did not.
            found = self.register.read()
            if found is None or _content(found.text).get("lease") != self._id:
                return False
            tag = self.register.swap(found.tag, self._text())
        if tag is None:
            return False
        self._tag, self.renewed_at_s = tag, now_s
        return True

    def release(self) -> None:
        """Give the lease back, unless another run has taken it over."""
        self.register.swap(self._tag, self._text(is_released=True))

    @property
    def remaining_s(self) -> float:
        """The seconds until the last renewal is so old that another run may soon take over."""
        return self.renewed_at_s + self.times.give_up_s - self.clock.now_s()

    def _take(self, found: RegisterContent | None) -> bool:
        before = found.tag if found else None
        now_s = self.clock.now_s()
        tag = self.register.swap(before, self._text())
        if tag is None:
            return False
        # Some stores ignore the condition of a write. One that must fail shows it.
        if self.register.swap(before, self._text()) is not None:
            raise ConfigurationError(
                "the store of the target ignores conditional writes (If-Match, If-None-Match)",
                "Use a store that supports them, or a LogStore of Delta for several drivers.",
            )
        self._tag, self.renewed_at_s = tag, now_s
        return True

    def _text(self, is_released: bool = False) -> str:
        return json.dumps({"holder": self.holder, "lease": self._id, "released": is_released, "write": uuid4().hex})


def _is_released(text: str) -> bool:
    return bool(_content(text).get("released"))


def _holder(text: str) -> str:
    return str(_content(text).get("holder") or UNKNOWN)


def _content(text: str) -> dict[str, object]:
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
