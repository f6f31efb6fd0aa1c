"""A snapshot beside writers, a lagging capture, pulls and crashes: right in all histories, and no mistake hides."""

import pytest
from support.history import HistoryOptions, random_history
from support.snapshot_model import MISTAKES, SnapshotModel, Wrong

HISTORIES = 3000
UNTIL_NOTICED = 1500
OPTIONS = HistoryOptions(transactions=10, lanes=2, width=5)


def play(seed, mistake=""):
    SnapshotModel(random_history(seed, OPTIONS), seed, mistake).run()


def test_target_equals_source_in_every_history():
    for seed in range(HISTORIES):
        play(seed)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_known_mistake_is_noticed(mistake):
    for seed in range(UNTIL_NOTICED):
        try:
            play(seed, mistake)
        except Wrong:
            return
    pytest.fail(f"{UNTIL_NOTICED} histories do not notice: {mistake}")
