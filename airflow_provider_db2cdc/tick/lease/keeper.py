"""The threads of a holder: one renews the lease, one ends the run when the lease is lost or too old."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from airflow_provider_db2cdc.tick.lease.lease import Lease
from airflow_provider_db2cdc.tick.log import describe, log_progress

WATCH_S = 1.0


class SystemClock:
    """The clock of this machine. It goes on while the machine is suspended."""

    def now_s(self) -> float:
        """Return the seconds since the machine's start."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@contextmanager
def keep_lease(lease: Lease, end_run: Callable[[str], None], watch_s: float = WATCH_S) -> Iterator[None]:
    """Hold the lease within a block. `end_run` must end the process at once, and with it every write.

    :raises TargetLockedError: when another run holds the lease.
    :raises ConfigurationError: when the store cannot keep one.
    """
    lease.acquire(log_progress)
    is_over = Event()
    threads = [
        Thread(target=_renew, args=(lease, is_over, end_run), name="lease", daemon=True),
        Thread(target=_watch, args=(lease, is_over, end_run, watch_s), name="lease watch", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        lease.release()


def _renew(lease: Lease, is_over: Event, end_run: Callable[[str], None]) -> None:
    while not is_over.wait(lease.times.renew_s):
        try:
            is_held = lease.renew()
        except Exception as error:
            log_progress(f"the lease of the target was not renewed: {describe(error)}")
            continue
        if not is_held:
            end_run("another run has taken over the lease of the target")
            return


def _watch(lease: Lease, is_over: Event, end_run: Callable[[str], None], watch_s: float) -> None:
    # A renewal that waits for the store must not delay this.
    while not is_over.wait(watch_s):
        if lease.is_stale:
            end_run(f"the lease of the target could not be renewed for {lease.times.give_up_s:.0f} s")
            return
