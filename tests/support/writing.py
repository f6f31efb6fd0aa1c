"""A writer that writes while a tick runs: a random history, played by a separate process.

The process is separate because ibm_db blocks the interpreter while it waits for a lock. In tests the job's driver is in
the same interpreter, and may hold that lock.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.source.driver import connect
from support.filled import changed
from support.gained import change_gained, gain_with_row
from support.history import HistoryOptions, random_history
from support.operation import TableShape
from support.pipeline import Pipeline, Play

TESTS = Path(__file__).parents[1]
GAIN_RATE, MOST_GAINED = 0.03, 4


@dataclass
class Writer:
    """A connection that histories and statements are played on."""

    writer: Any
    schema: str

    def execute(self, text: str, *values: Any) -> None:
        """Run a statement without a commit."""
        cursor = self.writer.cursor()
        cursor.execute(text, values or None)
        cursor.close()


@contextmanager
def writing(
    pipeline: Pipeline, seed: int, options: HistoryOptions, pause_s: float = 0.2, gains: bool = False
) -> Iterator[None]:
    """Play the history's steps until the block ends. The writer's error is raised there.

    With `gains` its tables gain columns now and then. Their values change in addition to the history's own.
    """
    order = {"schema": pipeline.schema, "seed": seed, "pause_s": pause_s, "options": asdict(options), "gains": gains}
    with _child(pipeline, order):
        yield


@contextmanager
def in_turn(pipeline: Pipeline, transactions: Sequence[Sequence[str]], pause_s: float = 0.2) -> Iterator[None]:
    """Run the transactions' statements one after the other, each once, until the block ends. So no key comes twice."""
    with _child(pipeline, {"transactions": transactions, "pause_s": pause_s}):
        yield


def after_each(point: Failpoint, write: Callable[[int], object]) -> AbstractContextManager[None]:
    """Call `write` with each call's number after a failpoint. So fast and slow machines do the same writes."""
    numbers = itertools.count(1)
    return failpoint_action(point, after=lambda _: write(next(numbers)))


def in_window(pipeline: Pipeline, *statements: str) -> AbstractContextManager[None]:
    """Have statements captured in a block's first window of a snapshot: after its low mark, before its read."""
    return after_each("catch_up", lambda number: changed(pipeline, *statements) if number == 1 else None)


def once_before(point: Failpoint, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Call `act` once, before a failpoint is first reached. It is what another run does while this one hangs there."""
    acts = [act]

    def act_once(_: ReachedFailpoint) -> None:
        while acts:
            acts.pop()()

    return failpoint_action(point, before=act_once)


@contextmanager
def _child(pipeline: Pipeline, order: dict[str, Any]) -> Iterator[None]:
    command = [sys.executable, "-m", "support.writing", json.dumps({**order, "dsn": pipeline.sandbox.dsn()})]
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
    """Write until standard input is closed, then end the open transaction."""
    writer = Writer(connect(order["dsn"]), order.get("schema", ""))
    rng = random.Random(order.get("seed", 0))
    write = _in_turn(writer, order["transactions"]) if "transactions" in order else _played(writer, order, rng)
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        write()
        time.sleep(rng.random() * 2 * order["pause_s"])
    writer.writer.close()


def _in_turn(writer: Writer, transactions: Sequence[Sequence[str]]) -> Callable[[], None]:
    upcoming = iter(transactions)

    def write() -> None:
        for text in next(upcoming, ()):
            writer.execute(text)
        writer.writer.commit()

    return write


def _played(writer: Writer, order: dict[str, Any], rng: random.Random) -> Callable[[], None]:
    history = random_history(order["seed"], HistoryOptions(**order["options"]))
    played = Play(writer, history)

    alter = _gaining(writer, history.tables, rng) if order["gains"] else lambda: None

    def write() -> None:
        if not played.ended:
            played.play(rng.choice((1, 1, 2)))
        alter()

    return write


def _gaining(writer: Writer, shapes: Sequence[TableShape], rng: random.Random) -> Callable[[], None]:
    to_come = [(shape, at) for at in range(MOST_GAINED) for shape in shapes]
    have: list[tuple[TableShape, int]] = []

    def alter() -> None:
        if to_come and rng.random() < GAIN_RATE:
            shape, at = to_come.pop(0)
            gain_with_row(writer, shape, f"N{at}", at)
            have.append((shape, at))
        if have and rng.random() < 0.5:
            shape, at = rng.choice(have)
            change_gained(writer, TableId(writer.schema, shape.name), f"N{at}", rng)

    return alter


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
