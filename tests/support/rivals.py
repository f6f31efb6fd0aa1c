"""Runs of one pipeline that take turns, each in its own thread. A run can be held at any step, continue, or die there.

    with stepping(STEPS):
        first = Run("A", lambda: tick(spec))
        first.go_on("before merge_state")
        second = Run("B", ...)
        second.go_on()                                 to its end
        first.go_on("after merge_state", dies=True)

While a run is held, each of its threads stops at its next step, whichever thread came to the first one. Once the run
has died, no thread of it does another step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import pytest

from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action
from support.crash import Killed

RUN = "db2cdc_run"


class Run:
    """What one run does, step by step. `error` is what ended it, None if it completed or died."""

    def __init__(self, name: str, does: Callable[[], None]) -> None:
        self.name = name
        self.state: Literal["moving", "held", "dead", "ended"] = "held"
        self.steps: list[str] = []
        self._stop, self._times, self._dies, self._turn = "", 0, False, threading.Condition()
        self._does, self._thread = does, threading.Thread(target=self._run, name=name, daemon=True)
        setattr(self._thread, RUN, self)
        self.error: BaseException | None = None

    def go_on(self, stop: str = "", times: int = 1, dies: bool = False, timeout_s: float = 240) -> None:
        """Let it run to its end, or to the step `stop` for the `times`-th time. There it is held, or dies."""
        assert self.state == "held", (self.name, self.state)
        with self._turn:
            self._stop, self._times, self._dies = stop, times, dies
            self.state = "moving"
            self._turn.notify_all()
        if not self._thread.ident:
            self._thread.start()
        with self._turn:
            stands = self._turn.wait_for(lambda: self.state in ("held", "ended"), timeout_s)
        assert stands, f"run {self.name} does not come to a step behind {self.steps[-3:]}"

    def step(self, name: str) -> None:
        """Reach a step, and wait there while the run is held.

        :raises Killed: the run is dead.
        """
        with self._turn:
            self.steps.append(name)
            self._times -= name == self._stop
            if name == self._stop and not self._times and self.state == "moving":
                self.state = "dead" if self._dies else "held"
                self._turn.notify_all()
            self._turn.wait_for(lambda: self.state != "held")
            if self.state == "dead":
                raise Killed(name)

    def _run(self) -> None:
        try:
            self._does()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        with self._turn:
            self.state = "ended"
            self._turn.notify_all()


@contextmanager
def stepping(points: Sequence[Failpoint]) -> Iterator[None]:
    """Have the threads of runs, and those that they start, stop before and after these failpoints."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as active:
        real = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if not hasattr(thread, RUN):
                setattr(thread, RUN, _current())
            real(thread)

        patch.setattr(threading.Thread, "start", start)
        for point in points:
            active.enter_context(failpoint_action(point, before=_step, after=_step))
        yield


def _current() -> Run | None:
    return getattr(threading.current_thread(), RUN, None)


def _step(reached: ReachedFailpoint) -> None:
    if (run := _current()) is not None:
        run.step(f"{reached.when} {reached.point}")
