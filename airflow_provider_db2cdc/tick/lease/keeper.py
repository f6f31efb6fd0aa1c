"""The threads of a holder: one renews the lease, one ends the run when the lease is lost or too old."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from airflow_provider_db2cdc.tick.lease.lease import Lease
from airflow_provider_db2cdc.tick.log import describe, log_progress

WATCH_S = 1.0


class SystemClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Return the seconds since the machine's start."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def awake_s(self) -> float:
        """Return the seconds since then in which the machine was not suspended."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Driver(Protocol):
    """The process that writes the target while this one holds the lease."""

    def end_after(self, seconds: float | None) -> None:
        """Let it end itself after so many seconds, unless this is called again before. None stands for never.

        It must do so even if this process hangs or is gone.
        """

    def end(self, reason: str) -> None:
        """End it at once, and with it every write. The reason is for the log."""


@contextmanager
def keep_lease(lease: Lease, driver: Driver, watch_s: float = WATCH_S) -> Iterator[None]:
    """Hold the lease within a block.

    :raises TargetLockedError: when another run holds the lease.
    :raises ConfigurationError: when the store cannot keep one.
    """
    lease.acquire(log_progress)
    driver.end_after(lease.remaining_s)
    is_over = Event()
    threads = [
        Thread(target=_renew, args=(lease, is_over, driver), name="lease", daemon=True),
        Thread(target=_watch, args=(lease, is_over, driver, watch_s), name="lease watch", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        driver.end_after(None)
        _release(lease)


def _renew(lease: Lease, is_over: Event, driver: Driver) -> None:
    while not is_over.wait(lease.times.renew_s):
        try:
            is_held = lease.renew()
            driver.end_after(lease.remaining_s)
        except Exception as error:
            log_progress(f"the lease of the target was not renewed: {describe(error)}")
            continue
        if not is_held:
            driver.end("another run has taken over the lease of the target")
            return


def _watch(lease: Lease, is_over: Event, driver: Driver, watch_s: float) -> None:
    # A renewal that waits for the store must not delay this.
    while not is_over.wait(watch_s):
        if lease.remaining_s < 0:
            driver.end(f"the lease of the target could not be renewed for {lease.times.give_up_s:.0f} s")
            return


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except Exception as error:
        # What was written is written. The next run waits until the lease has expired.
        log_progress(f"the lease of the target was not released: {describe(error)}")
