"""Types of the fixtures that run DAGs and define connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")

Connect = Callable[..., str]
RunDag = Callable[..., tuple[str, dict[str, str]]]


class Inside(Protocol):
    """Calls a function within a task."""

    def __call__(self, function: Callable[[], Result]) -> Result:
        """Return the function's result, or raise its error."""
