"""The log's order against the fold of row versions, at every commit of thousands of random histories."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, cast

import pytest
from support.history import History, HistoryOptions, random_history
from support.seeds import blocks

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.fold import MOVED, Placed, folded, placed
from airflow_provider_db2cdc.cdc.lsn import LsnRange

SEEDS = 150
Rule = Callable[[Iterable[Event], set[Any]], list[Placed]]


def as_captured(events: Iterable[Event], held: set[Any]) -> list[Placed]:
    """Return the mistake of the source's own order."""
    return [Placed(event, event.intent) for event in events]


def without_state(events: Iterable[Event], held: set[Any]) -> list[Placed]:
    """Return the mistake of taking a key for absent where its events leave it unknown."""
    return placed(events, set())


def logs_of(drawn: History, seed: int, rule: Rule) -> list[tuple[str, list[Placed]]]:
    """Return each table's log, written in batches of random ranges from the state that each batch finds."""
    rng, logs = random.Random(seed), []
    for shape in drawn.tables:
        cuts = sorted({drawn.start, drawn.positions[-1], *rng.choices(drawn.positions, k=3)})
        log = [
            Placed(Event(drawn.start, 0, "r", key, None, row), 0)
            for key, row in drawn.state(shape.name, drawn.start).items()
        ]
        for after, upto in pairwise(cuts):
            rows = [row for row in drawn.changes[shape.name] if row.commit in LsnRange(after, upto)]
            log += rule(events_of(rows), set(drawn.state(shape.name, after)))
        logs.append((shape.name, log))
    return logs


def wrong_seeds(seeds: Iterable[int], rule: Rule = placed, **options: Any) -> list[int]:
    """Return the seeds of those histories in which a reader of the log and the oracle differ at some commit."""
    wrong = []
    for seed in seeds:
        drawn = random_history(seed, HistoryOptions(tables=1 + seed % 2, **options))
        checks = (
            folded(one for one in log if one.event.commit <= at) == drawn.state(table, at)
            for table, log in logs_of(drawn, seed, rule)
            for at in drawn.positions
        )
        wrong += [] if all(checks) else [seed]
    return wrong


@pytest.mark.parametrize("block", blocks(10, fast=2))
def test_the_last_event_of_each_key_is_the_state_at_every_commit(block: int) -> None:
    assert wrong_seeds(range(block * SEEDS, (block + 1) * SEEDS), new_first_rate=(0, 0.5)[block % 2]) == []


def test_the_last_event_is_the_state_if_an_update_is_one_u_row() -> None:
    assert wrong_seeds(range(SEEDS), update_as="U") == []


@pytest.mark.parametrize("keys", ["case", "blanks"])
def test_the_last_event_is_the_state_if_keys_are_texts(keys: str) -> None:
    assert wrong_seeds(range(SEEDS), keys=keys, new_first_rate=0.3) == []


@pytest.mark.parametrize("mistake", [as_captured, without_state])
@pytest.mark.parametrize("rate", [0, 0.5])
def test_the_oracle_catches(mistake: Rule, rate: float) -> None:
    assert len(wrong_seeds(range(100), mistake, new_first_rate=rate)) > 20


def test_each_event_is_there_once_and_few_have_moved() -> None:
    moved = total = 0
    for seed in range(60):
        drawn = random_history(seed, HistoryOptions(new_first_rate=0.2))
        events = events_of(drawn.changes["T0"])
        log = placed(events, set(drawn.state("T0", drawn.start)))
        assert Counter(one.event for one in log) == Counter(events)
        assert len({(one.event.commit, one.intent, one.ordinal) for one in log}) == len(log)
        kept = [one for one in log if one.ordinal != MOVED]
        assert all(one.intent == one.event.intent for one in kept)
        moved, total = moved + len(log) - len(kept), total + len(log)
    assert 0 < moved < total / 4


def described(text: str, held: str = "") -> str:
    """Read a commit like `D1a I1b`, and write its log; an event that moved has a star."""
    rows = [RowChange(1, at, cast("Any", word[0]), word[1], word[2:]) for at, word in enumerate(text.split())]
    words = []
    for one in placed(events_of(rows), set(held)):
        image = one.event.after or one.event.before
        words.append(f"{one.event.op}{one.event.key}{image}{'*' if one.ordinal == MOVED else ''}")
    return " ".join(words)


CASES = {
    "an update": ("D1a I1b", "1", "u1b"),
    "a deletion and an insertion apart": ("D1a D2a I1b", "12", "d1a d2a c1b"),
    "the new row before the old one": ("I1b D1a", "1", "d1a c1b*"),
    "an update of nothing, the new row first": ("I1a D1a", "1", "d1a c1a*"),
    "a row that comes and goes": ("I1a D1a", "", "c1a d1a"),
    "keys shift up, unlike rows": ("D1a I2a D2b I3b", "12", "d1a d2b c2a* c3b"),
    "keys shift up, equal rows": ("D1a I2a D2a I3a", "12", "d1a d2a c2a* c3a"),
    "two moves of one row look the same": ("D1a I2a D2a I3a", "1", "d1a c2a d2a c3a"),
    "keys are mirrored, equal rows": ("D1a I2a D2a I1a", "12", "d1a d2a c2a* c1a"),
    "two updates, each with its new row first": ("I1b D1a I1c D1b", "1", "c1b d1b u1c*"),
    "a deletion before its insertion": ("D1a D1b I1b", "1", "u1b d1a*"),
    "a bare update is the last word": ("U1b U1c", "1", "u1b u1c"),
}


@pytest.mark.parametrize(("commit", "held", "log"), CASES.values(), ids=CASES.keys())
def test_order(commit: str, held: str, log: str) -> None:
    assert described(commit, held) == log


def test_an_earlier_commit_of_the_batch_shows_the_row_of_a_key() -> None:
    came = [RowChange(1, 1, "I", "1", "a")]
    shift = [RowChange(2, 2, "I", "1", "a"), RowChange(2, 3, "D", "1", "a")]
    went = [RowChange(1, 1, "D", "1", "a")]
    assert folded(placed(events_of([*came, *shift]), set())) == {"1": "a"}
    assert folded(placed(events_of([*went, *shift]), {"1"})) == {}
