"""Which histories are played, and in which lane."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

TURN_S = 10.0


def seeds() -> range:
    """Return the first seed, or those that DB2CDC_SOAK names: `40` for the first forty, or `41-80`."""
    first, _, last = os.environ.get("DB2CDC_SOAK", "1").rpartition("-")
    return range(int(first or 1), int(last) + 1)


def blocks(count: int, fast: int) -> list[Any]:
    """Return the numbers of blocks of seeds, as parameters. `make check` plays the first ones, and `make test` all."""
    return [block if block < fast else pytest.param(block, marks=pytest.mark.slow) for block in range(count)]


def play_all(seeds: Iterable[int], play: Callable[[int], None], capsys: pytest.CaptureFixture[str]) -> None:
    """Play a history for each seed. A failure names the seed."""
    with _undisturbed():
        for seed in seeds:
            try:
                play(seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}") from error
            capsys.readouterr()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Have threads take turns only where they wait, so that a seed repeats."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
