"""Random histories in memory that mix every kind of run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.seeds import play_all

from histories import disasters, repairs, runs, wounds
from histories.world import TABLES, World

Step = Callable[[World], None]
ALWAYS: list[Step] = [runs.write, runs.write, runs.capture, runs.tick, runs.tick]
SOMETIMES: list[list[Step]] = [
    [runs.kill, runs.kill],
    [runs.overtake, runs.overtake],
    [runs.run_later, runs.run_waiting, runs.commit_later],
    [runs.restart, runs.misplace],
    [runs.prune],
    [runs.choose_tables, runs.choose_tables],
    [runs.lose_changes],
    [runs.interrupt],
    [runs.gain_column],
    [runs.trim],
    [repairs.backfill, repairs.backfill, repairs.repair_later, runs.run_waiting],
    [repairs.replay],
    [repairs.repair_after_death],
    [repairs.register_again],
    [repairs.overtaken_dry_run],
    [repairs.verification],
    [repairs.probe],
    [wounds.wrong_row],
    [wounds.foreign_row],
    [wounds.lose_event, wounds.double_event],
    [disasters.copy_target, disasters.put_target_back],
    [disasters.copy_airflow, disasters.put_airflow_back],
    [disasters.lose_airflow],
    [disasters.restore_source],
]
"""Kinds of steps. Each history has some of them: with all of them at once, few would do much."""

QUICK, USUAL, HISTORIES, BLOCK, STEPS = 25, 1200, 4000, 25, 18


def _lane(first: int) -> list[pytest.MarkDecorator]:
    """Return the marks of a block of seeds: `make check`, `make test` or `make soak` plays it."""
    if first < QUICK:
        return []
    return [pytest.mark.slow] if first < USUAL else [pytest.mark.slow, pytest.mark.long]


BLOCKS = [pytest.param(range(at, at + BLOCK), marks=_lane(at)) for at in range(0, HISTORIES, BLOCK)]


def play(seed: int) -> None:
    """Play one history, and compare the target with the source at its end."""
    world = World(seed)
    steps = [*ALWAYS, *(step for kind in SOMETIMES if world.chance(0.5) for step in kind)]
    for _ in range(STEPS):
        world.rng.choice(steps)(world)
        if world.trims:
            world.trim()
        world.check()
    repairs.probe(world)
    for table in TABLES:
        assert world.pipeline.images(table) == world.source.images(table), f"state of {table}"


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_target_is_right_after_any_history(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    play_all(seeds, play, capsys)
