"""A snapshot beside writers, a lagging capture, pulls and crashes: right in all histories, and no mistake hides."""

from dataclasses import replace

import pytest
from support.history import WEIGHTS, HistoryOptions, random_history
from support.mistakes import MISTAKES, Wrong
from support.snapshot_model import SnapshotModel

HISTORIES = 3000
OPTIONS = HistoryOptions(transactions=10, lanes=2, width=5)
STILL = replace(OPTIONS, weights={kind: WEIGHTS[kind] for kind in WEIGHTS if kind not in ("shift", "swap")})
"""No statement moves rows onto each other's keys, so that a scan may go by the rows' places."""


def play(seed, mistake=""):
    SnapshotModel(random_history(seed, STILL if seed % 3 == 0 else OPTIONS), seed, mistake).run()


def test_target_equals_source_in_every_history():
    for seed in range(HISTORIES):
        play(seed)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_known_mistake_is_noticed(mistake):
    for seed in range(HISTORIES):
        try:
            play(seed, mistake)
        except Wrong:
            return
    pytest.fail(f"{HISTORIES} histories do not notice: {mistake}")
