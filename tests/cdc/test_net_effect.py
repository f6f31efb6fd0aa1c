"""Net effects against the fold of row versions, over thousands of random histories."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import pytest
from support.history import WEIGHTS, History, HistoryOptions, random_history
from support.seeds import blocks

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import Effect, net_effects
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange

Rule = Callable[[Iterable[Event]], Mapping[Any, Any]]

SEEDS = 200


@lru_cache(256)
def history(seed: int, **options: Any) -> History:
    return random_history(seed, HistoryOptions(tables=1 + seed % 2, **options))


def effects_in(drawn: History, table: str, span: LsnRange, rule: Rule = net_effects) -> Mapping[Any, Any]:
    return rule(events_of(row for row in drawn.changes[table] if row.commit in span))


def applied(state: Mapping[Any, Any], effects: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the state after effects that were computed without knowing it."""
    after = dict(state)
    for key, effect in effects.items():
        after.pop(key, None)
        if effect.present:
            after[key] = effect.image
    return after


def spans(drawn: History, seed: int, count: int = 4) -> list[LsnRange]:
    """Return the whole range and some ranges within it."""
    rng, positions = random.Random(seed), drawn.positions
    cuts = [sorted(rng.choices(positions, k=2)) for _ in range(count)]
    return [LsnRange(positions[0], positions[-1]), *(LsnRange(*cut) for cut in cuts)]


def wrong_seeds(seeds: Iterable[int], rule: Rule = net_effects, **options: str | int) -> list[int]:
    """Return the seeds of those histories in which the rule and the oracle differ over some range."""
    wrong = []
    for seed in seeds:
        drawn = history(seed, **options)
        checks = (
            applied(drawn.state(shape.name, span.after), effects_in(drawn, shape.name, span, rule))
            == drawn.state(shape.name, span.upto)
            for shape in drawn.tables
            for span in spans(drawn, seed)
        )
        wrong += [] if all(checks) else [seed]
    return wrong


@pytest.mark.parametrize("block", blocks(10, fast=1))
def test_effects_of_any_range_turn_the_state_before_into_the_state_after(block: int) -> None:
    assert wrong_seeds(range(block * SEEDS, (block + 1) * SEEDS)) == []


def test_effects_of_any_range_are_right_if_an_update_is_one_u_row() -> None:
    assert wrong_seeds(range(SEEDS), update_as="U") == []


def test_effects_of_any_range_are_right_with_ten_byte_lsns() -> None:
    assert wrong_seeds(range(40), lsn_bytes=10) == []


@pytest.mark.parametrize("keys", ["case", "blanks"])
def test_effects_are_right_if_keys_differ_only_in_case_or_trailing_blanks(keys: str) -> None:
    assert wrong_seeds(range(SEEDS), keys=keys) == []


def test_effects_of_every_range_of_a_history_are_right() -> None:
    for seed in range(12):
        drawn = history(seed)
        for at, after in enumerate(drawn.positions):
            for upto in drawn.positions[at:]:
                effects = effects_in(drawn, "T0", LsnRange(after, upto))
                assert applied(drawn.state("T0", after), effects) == drawn.state("T0", upto), (seed, after, upto)


def test_effects_of_adjacent_ranges_add_up_to_those_of_both() -> None:
    for seed in range(100):
        drawn = history(seed)
        after, middle, upto = sorted(random.Random(seed).choices(drawn.positions, k=3))
        parts = {
            **effects_in(drawn, "T0", LsnRange(after, middle)),
            **effects_in(drawn, "T0", LsnRange(middle, upto)),
        }
        assert parts == effects_in(drawn, "T0", LsnRange(after, upto)), seed


def last_operation_wins(events: Iterable[Event]) -> dict[Any, Any]:
    """Return the mistake of reading each key's last event as its state."""
    return {event.key: Effect(event.commit, event.after) for event in events}


def keys_without_images(events: Iterable[Event]) -> dict[Any, Any]:
    """Return the mistake of cancelling inserts against deletes of a key without comparing their images."""
    counts, last = Counter[Any](), {}
    for event in events:
        counts[event.commit, event.key] += (event.after is not None) - (event.before is not None)
        if event.after is not None:
            last[event.key] = event.after
    left = {key: (commit, count) for (commit, key), count in sorted(counts.items(), key=lambda one: one[0][0]) if count}
    return {key: Effect(commit, last.get(key) if count > 0 else None) for key, (commit, count) in left.items()}


def first_commit_wins(events: Iterable[Event]) -> dict[Any, Any]:
    """Return the mistake of letting the first commit with a leftover decide."""
    by_commit = defaultdict(list)
    for event in events:
        by_commit[event.commit].append(event)
    effects: dict[Any, Any] = {}
    for commit in sorted(by_commit):
        effects = {**net_effects(by_commit[commit]), **effects}
    return effects


@pytest.mark.parametrize("mistake", [last_operation_wins, keys_without_images, first_commit_wins])
def test_the_oracle_catches(mistake: Rule) -> None:
    wrong = wrong_seeds(range(100), mistake)
    assert len(wrong) > 20
    assert wrong_seeds(wrong) == []


def test_the_last_operation_decides_if_statements_change_single_keys() -> None:
    single = {kind: weight for kind, weight in WEIGHTS.items() if kind not in ("shift", "swap")}
    histories = [random_history(seed, HistoryOptions(weights=single)) for seed in range(60)]
    for drawn in histories:
        whole = LsnRange(drawn.positions[0], drawn.positions[-1])
        effects = effects_in(drawn, "T0", whole, last_operation_wins)
        assert applied(drawn.state("T0", whole.after), effects) == drawn.state("T0", whole.upto)


def net_effect_overrides(drawn: History, span: LsnRange) -> set[Any]:
    return {*effects_in(drawn, "T0", span)}


def any_event_overrides(drawn: History, span: LsnRange) -> set[Any]:
    return {row.key for row in drawn.changes["T0"] if row.commit in span}


def published(drawn: History, rng: random.Random, overrides: Callable[[History, LsnRange], set[Any]]) -> bool:
    """Read each key somewhere in a window into an empty target, publish it, and say whether the target is right."""
    low, high = sorted(rng.choices(drawn.positions, k=2))
    reads = {position: drawn.state("T0", position) for position in drawn.positions if low <= position <= high}
    staged: dict[Any, Any] = {}
    for key in {key for state in reads.values() for key in state}:
        state = reads[rng.choice([*reads])]
        staged |= {key: state[key]} if key in state else {}
    span = LsnRange(low, high)
    survivors = {key: row for key, row in staged.items() if key not in overrides(drawn, span)}
    return applied(survivors, effects_in(drawn, "T0", span)) == drawn.state("T0", high)


@pytest.mark.parametrize("block", blocks(3, fast=1))
def test_a_row_read_in_a_window_is_dropped_only_for_a_net_effect(block: int) -> None:
    of_block = range(block * SEEDS, (block + 1) * SEEDS)
    wrong = [seed for seed in of_block if not published(history(seed), random.Random(seed), net_effect_overrides)]
    assert wrong == []


def test_dropping_a_row_for_any_event_would_lose_rows() -> None:
    wrong = [seed for seed in range(SEEDS) if not published(history(seed), random.Random(seed), any_event_overrides)]
    assert len(wrong) > 5


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def effects_of(*commits: str) -> dict[Any, Any]:
    """Read commits like `D1a I1b` and return key -> image, '' for absent."""
    rows = [
        RowChange(lsn(commit), lsn(at), cast("Any", word[0]), word[1], word[2:])
        for commit, text in enumerate(commits)
        for at, word in enumerate(text.split())
    ]
    return {key: effect.image or "" for key, effect in net_effects(events_of(rows)).items()}


CASES = {
    "nothing": ([], {}),
    "insert": (["I1a"], {"1": "a"}),
    "delete": (["D1a"], {"1": ""}),
    "update": (["D1a I1b"], {"1": "b"}),
    "an update that changes nothing": (["D1a I1a"], {"1": "a"}),
    "there and back in one commit": (["D1a I1b D1b I1a"], {"1": "a"}),
    "there and back, and one on its way": (["D1a I1a I1a D1a"], {"1": "a"}),
    "there and back in two commits has the second's": (["D1a I1b", "D1b I1a"], {"1": "a"}),
    "insert and delete in one commit tell nothing": (["I1a D1a"], {}),
    "insert and delete in one commit hide nothing": (["D1a I1a", "I1b D1b"], {"1": "a"}),
    "insert, delete, and an update that changes nothing": (["I1a D1a D1b I1b"], {"1": "b"}),
    "insert and delete in two commits": (["I1a", "D1a"], {"1": ""}),
    "the last commit with a leftover decides": (["D1a I1b", "D1b I1b"], {"1": "b"}),
    "keys shift up over unlike rows": (["D1a I2a D2b I3b"], {"1": "", "2": "a", "3": "b"}),
    "keys shift up over equal rows": (["D1a I2a D2a I3a"], {"1": "", "3": "a"}),
    "keys shift down": (["D1a I0a D2b I1b"], {"0": "a", "1": "b", "2": ""}),
    "swap": (["D1a I2a D2b I1b"], {"1": "b", "2": "a"}),
    "keys shift down over equal rows": (["D1a I0a D2a I1a"], {"0": "a", "1": "a", "2": ""}),
    "swap of equal rows": (["D1a I2a D2a I1a"], {"1": "a"}),
    "the last U row wins": (["U1a U1b", "U1c"], {"1": "c"}),
    "a delete after a U row": (["U1a D1a"], {"1": ""}),
    "an insert before a U row": (["I1a U1b"], {"1": "b"}),
    "a U row after delete and insert": (["D1a I1b U1c"], {"1": "c"}),
}


@pytest.mark.parametrize(("commits", "expected"), CASES.values(), ids=CASES.keys())
def test_effect(commits: list[str], expected: dict[str, str]) -> None:
    assert effects_of(*commits) == expected


def test_an_effect_names_the_commit_that_decided_it() -> None:
    rows = [RowChange(lsn(1), lsn(1), "I", 1, "a")]
    rows += [RowChange(lsn(2), lsn(2), "I", 1, "a"), RowChange(lsn(2), lsn(3), "D", 1, "a")]
    assert net_effects(events_of(rows)) == {1: Effect(lsn(1), "a")}


def test_events_may_come_in_any_order() -> None:
    for seed in range(60):
        events = events_of(history(seed, update_as=("DI", "U")[seed % 2]).changes["T0"])
        assert net_effects(random.Random(seed).sample(events, len(events))) == net_effects(events)
