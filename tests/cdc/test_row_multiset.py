"""A table without a key: its counts of equal rows, and its snapshots during writes, are right in every history."""

from collections import Counter
from collections.abc import Hashable
from typing import Any, cast

import pytest
from support.copies_model import MISTAKES, CopiesModel, Wrong
from support.seeds import blocks

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import count_images
from airflow_provider_db2cdc.cdc.event.row_multiset import renumbered, settled, surplus, touched

SEEDS = 1000


def events(*changes: str) -> list[Event]:
    return events_of(RowChange(1, at, cast("Any", change[0]), None, change[1]) for at, change in enumerate(changes))


def test_a_deletion_next_to_an_insertion_is_an_update_if_there_is_no_key() -> None:
    [event] = events("Da", "Ib")
    assert (event.op, event.key, event.before, event.after) == ("u", None, "a", "b")
    assert (event.newkey, event.oldkey) == (None, None)


def test_counts_change_by_insertions_minus_deletions() -> None:
    assert count_images(events("Ia", "Ia", "Db", "Ic", "Dc")) == {"a": 2, "b": -1}
    assert touched(events("Ia", "Ia", "Db", "Ic", "Dc")) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("held", "delta", "added", "removed"),
    [(0, 2, [1, 2], []), (2, 1, [3], []), (3, -2, [], [2, 3]), (1, -3, [], [1]), (0, -1, [], []), (2, 0, [], [])],
)
def test_copies_are_numbered_through(held: int, delta: int, added: list[int], removed: list[int]) -> None:
    assert [[*copies] for copies in renumbered(held, delta)] == [added, removed]


def test_a_read_settles_untouched_images() -> None:
    assert settled("aabc", {"b"}, None) == {"a": 2, "c": 1}
    assert settled("aabc", {"b"}, {"a", "b"}) == {"a": 2}
    held: dict[Hashable, int] = {"a": 3, "b": 9, "d": 1, "e": 1}
    assert surplus(held, Counter("aabc"), {"b"}, None) == {"a": 1, "d": 1, "e": 1}
    assert surplus(held, Counter("aabc"), {"b"}, {"a", "b", "c", "d"}) == {"a": 1, "d": 1}


@pytest.mark.parametrize("block", blocks(3, fast=1))
@pytest.mark.parametrize("newest", [2, 3, 10])
def test_the_target_becomes_the_source_in_every_history(newest: int, block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        CopiesModel(seed, newest=newest).run()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_known_mistake_is_noticed(mistake: str) -> None:
    for seed in range(SEEDS):
        try:
            CopiesModel(seed, mistake).run()
        except Wrong:
            return
    pytest.fail(f"{SEEDS} histories do not notice: {mistake}")
