"""A process that dies before or after one step of the way, as a kill would: nothing catches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """Not an Exception: what handles errors of tables must not handle the death of the process."""


@contextmanager
def killed(owner: Any, step: str, when: str, at: int = 1) -> Iterator[None]:
    """Let the block die at call number `at` of `owner.step`, which it must come to, and catch the death."""
    with dying(owner, step, when, at) as calls, pytest.raises(Killed):
        yield
    assert len(calls) >= at, f"the way never came to {step} for the {at}. time"


@contextmanager
def dying(owner: Any, step: str, when: str, at: int = 1) -> Iterator[list[str]]:
    """Let the block die at call number `at` of `owner.step`, `before` it or `after` it is done; yields the calls."""
    real = getattr(owner, step)
    calls: list[str] = []

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(step)
        if len(calls) != at:
            return real(*arguments, **named)
        if when == "after":
            real(*arguments, **named)
        raise Killed(f"{when} {step}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, step, call)
        yield calls
