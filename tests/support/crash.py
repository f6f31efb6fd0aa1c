"""A process that dies at a failpoint, as a kill would: nothing catches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, When, failpoint_action


class Killed(BaseException):
    """The death of the process. It is not an Exception, because handlers of table errors must not catch it."""


@contextmanager
def killed(point: Failpoint, when: When, at: int = 1) -> Iterator[None]:
    """Let the block die when it reaches the failpoint for the `at`-th time, and catch the death. It must reach it."""
    with dying(point, when, at) as reached, pytest.raises(Killed):
        yield
    assert len(reached) >= at, f"the block never reached {point} {at} times"


@contextmanager
def dying(point: Failpoint, when: When, at: int = 1) -> Iterator[list[ReachedFailpoint]]:
    """Let the block die when it reaches the failpoint for the `at`-th time. Yield the list of times that it did."""
    times: list[ReachedFailpoint] = []

    def die(reached: ReachedFailpoint) -> None:
        times.append(reached)
        if len(times) == at:
            raise Killed(f"{when} {point}")

    with failpoint_action(point, **{when: die}):
        yield times


@contextmanager
def once(point: Failpoint, when: When, act: Callable[[], object], at: int = 1) -> Iterator[None]:
    """Act once within the block, when it reaches the failpoint for the `at`-th time. It must reach it."""
    times: list[ReachedFailpoint] = []

    def act_once(reached: ReachedFailpoint) -> None:
        times.append(reached)
        if len(times) == at:
            act()

    with failpoint_action(point, **{when: act_once}):
        yield
    assert len(times) >= at, f"the block never reached {point} {at} times"
