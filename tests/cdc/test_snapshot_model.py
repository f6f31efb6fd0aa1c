"""A snapshot with concurrent writers, capture lag, pulls and crashes: right in all histories, each mistake is found."""

from dataclasses import replace

import pytest
from support.history import WEIGHTS, HistoryOptions, random_history
from support.mistakes import MISTAKES, Wrong
from support.seeds import blocks
from support.snapshot_model import SnapshotModel

SEEDS = 500
OPTIONS = HistoryOptions(transactions=10, lanes=2, width=5)
STILL = replace(OPTIONS, weights={kind: WEIGHTS[kind] for kind in WEIGHTS if kind not in ("shift", "swap")})
"""No statement moves rows onto each other's keys, so a scan may follow the rows' places."""


def play(seed: int, mistake: str = "") -> None:
    SnapshotModel(random_history(seed, STILL if seed % 3 == 0 else OPTIONS), seed, mistake).run()


@pytest.mark.parametrize("block", blocks(6, fast=1))
def test_target_equals_source_in_every_history(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        play(seed)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_known_mistake_is_noticed(mistake: str) -> None:
    for seed in range(SEEDS):
        try:
            play(seed, mistake)
        except Wrong:
            return
    pytest.fail(f"{SEEDS} histories do not notice: {mistake}")
