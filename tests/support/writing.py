"""A writer that goes on while a tick runs: a random history, played by a thread of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.pipeline import Replay


@contextmanager
def writing(replay: Replay, seed: int, pause_s: float = 0.15) -> Iterator[None]:
    """Play the history's steps until the block ends; an error of the writer is raised there."""
    over = threading.Event()
    errors: list[BaseException] = []

    def write() -> None:
        rng = random.Random(seed)
        try:
            while not over.is_set() and not replay.ended:
                replay.play(rng.choice((1, 1, 2)))
                time.sleep(rng.random() * 2 * pause_s)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    if errors:
        raise errors[0]
