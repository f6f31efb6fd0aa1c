"""A writer that goes on while a tick runs: a random history, played by a process of its own.

Of its own, because ibm_db keeps the interpreter while it waits for a lock, and the job's driver, which may hold that
lock, is the same interpreter in tests.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ibm_db_dbi

from support.history import HistoryOptions, random_history
from support.pipeline import Pipeline, Replay

TESTS = Path(__file__).parents[1]


@dataclass
class Writer:
    """As much of a pipeline as a replay needs."""

    writer: Any
    schema: str

    def execute(self, text: str, *values: Any) -> None:
        """Run a statement without a commit."""
        cursor = self.writer.cursor()
        cursor.execute(text, values or None)
        cursor.close()


@contextmanager
def writing(pipeline: Pipeline, seed: int, options: HistoryOptions, pause_s: float = 0.2) -> Iterator[None]:
    """Play the history's steps until the block ends; the writer's error is raised there."""
    order = {"dsn": pipeline.sandbox.dsn(), "schema": pipeline.schema, "seed": seed, "pause_s": pause_s}
    command = [sys.executable, "-m", "support.writing", json.dumps({**order, "options": asdict(options)})]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n", child.stderr and child.stderr.read()
        yield
    finally:
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors


def main(order: dict[str, Any]) -> None:
    """Play until standard input is closed, then end the transaction that is open."""
    options = HistoryOptions(**order["options"])
    writer = Writer(ibm_db_dbi.connect(order["dsn"], "", ""), order["schema"])
    replay = Replay(writer, random_history(order["seed"], options))  # type: ignore[arg-type]
    rng = random.Random(order["seed"])
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        if not replay.ended:
            replay.play(rng.choice((1, 1, 2)))
        time.sleep(rng.random() * 2 * order["pause_s"])
    sys.stdout.write(f"{len(replay.commits)} commits\n")
    writer.writer.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
