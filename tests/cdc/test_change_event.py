import random
from collections import Counter
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.history import HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange, events_of


def rows(text: str, commit: int = 1) -> list[RowChange]:
    """Read `D1a I1b`: operation, key, image; INTENTSEQs ascend."""
    return [RowChange(commit, at, cast("Any", word[0]), word[1], word[2:]) for at, word in enumerate(text.split())]


def described(events: list[Event]) -> str:
    """Write events as `u1:a>b`: operation, key, before, after, with [key] for the header of a key change."""
    words = []
    for event in events:
        header = event.newkey or event.oldkey
        words.append(
            f"{event.op}{event.key}:{event.before or ''}>{event.after or ''}" + (f"[{header}]" if header else "")
        )
    return " ".join(words)


CASES = {
    "nothing": ("", ""),
    "an insert": ("I1a", "c1:>a"),
    "a delete": ("D1a", "d1:a>"),
    "D I is an update": ("D1a I1b", "u1:a>b"),
    "an update that changes nothing stays one": ("D1a I1a", "u1:a>a"),
    "D I D I are two updates": ("D1a I1b D2a I2b", "u1:a>b u2:a>b"),
    "D I D I of one key are two updates": ("D1a I1b D1b I1c", "u1:a>b u1:b>c"),
    "D D I are a delete and an update": ("D1a D2a I2b", "d1:a> u2:a>b"),
    "D I I are an update and an insert": ("D1a I1b I2c", "u1:a>b c2:>c"),
    "I D are an insert and a delete": ("I1a D1a", "c1:>a d1:a>"),
    "I D I are an insert and an update": ("I1x D1x I1y", "c1:>x u1:x>y"),
    "D D are two deletes": ("D1a D2a", "d1:a> d2:a>"),
    "a key change": ("D1a I2a", "d1:a>[2] c2:>a[1]"),
    "a delete next to an insert looks the same": ("D1a I2b", "d1:a>[2] c2:>b[1]"),
    "D D I of three keys pair the neighbours": ("D1a D2b I3c", "d1:a> d2:b>[3] c3:>c[2]"),
    "a key change, then an insert": ("D1a I2a I3c", "d1:a>[2] c2:>a[1] c3:>c"),
    "keys shift up, foremost first": ("D2b I3b D1a I2a", "d2:b>[3] c3:>b[2] d1:a>[2] c2:>a[1]"),
    "keys shift up, hindmost first": ("D1a I2a D2b I3b", "d1:a>[2] c2:>a[1] d2:b>[3] c3:>b[2]"),
    "two keys are swapped": ("D1a I2a D2b I1b", "d1:a>[2] c2:>a[1] d2:b>[1] c1:>b[2]"),
    "a U row has no before image": ("U1b", "u1:>b"),
    "a U row stands between and parts a pair": ("D1a U2b I1c", "d1:a> u2:>b c1:>c"),
    "an I after a U row is an insert": ("U1a I2b", "u1:>a c2:>b"),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES.keys())
def test_pairing(changes: str, expected: str) -> None:
    assert described(events_of(rows(changes))) == expected


def test_without_detection_a_key_change_has_no_headers_and_updates_pair() -> None:
    changes = rows("D1a I2a D3a I3b")
    assert described(events_of(changes, "none")) == "d1:a> c2:>a u3:a>b"


def test_rows_of_two_commits_never_pair() -> None:
    changes = [*rows("D1a", commit=1), *rows("I1b", commit=2)]
    assert described(events_of(changes)) == "d1:a> c1:>b"


def test_an_update_has_the_position_of_its_new_row() -> None:
    [event] = events_of(rows("D1a I1b", commit=7))
    assert (event.commit, event.intent) == (7, 1)


words = st.tuples(st.sampled_from("DIU"), st.sampled_from("12"), st.sampled_from("ab")).map("".join)
commits = st.lists(st.lists(words, max_size=8), max_size=3)


@given(commits, st.randoms(use_true_random=False))
def test_the_order_in_which_rows_arrive_does_not_matter(lists: list[list[str]], rng: random.Random) -> None:
    changes = [row for commit, listed in enumerate(lists) for row in rows(" ".join(listed), commit)]
    shuffled = rng.sample(changes, len(changes))
    assert events_of(shuffled) == events_of(changes)


@given(commits)
def test_pairing_keeps_every_image_and_its_key_and_invents_none(lists: list[list[str]]) -> None:
    changes = [row for commit, listed in enumerate(lists) for row in rows(" ".join(listed), commit)]
    events = events_of(changes)
    before = Counter((event.commit, event.key, event.before) for event in events if event.before)
    after = Counter((event.commit, event.key, event.after) for event in events if event.after)
    assert before == Counter((row.commit, row.key, row.image) for row in changes if row.op == "D")
    assert after == Counter((row.commit, row.key, row.image) for row in changes if row.op in "IU")


@given(commits)
def test_headers_point_at_each_other(lists: list[list[str]]) -> None:
    changes = [row for commit, listed in enumerate(lists) for row in rows(" ".join(listed), commit)]
    events = events_of(changes)
    for at, old in enumerate(events):
        if old.newkey is not None:
            new = events[at + 1]
            assert (old.op, new.op, old.newkey, new.oldkey) == ("d", "c", new.key, old.key)
            assert old.commit == new.commit
    assert sum(event.newkey is not None for event in events) == sum(event.oldkey is not None for event in events)


@pytest.mark.parametrize("seed", range(20))
def test_an_update_in_a_history_is_one_event_and_a_key_change_two(seed: int) -> None:
    history = random_history(seed, HistoryOptions(weights={"insert": 1, "update": 3, "keep": 1, "move": 2}))
    changes = history.changes["T0"]
    events = events_of(random.Random(seed).sample(changes, len(changes)))
    pairs = [
        (old.key, new.key)
        for old, new in pairwise(changes)
        if (old.op, new.op) == ("D", "I") and old.commit == new.commit
    ]
    assert sum(event.op == "u" for event in events) == sum(old == new for old, new in pairs)
    assert [(event.key, event.newkey) for event in events if event.op == "d"] == [
        (old, new) for old, new in pairs if old != new
    ]


def test_one_row_updates_pair_only_their_own_halves() -> None:
    halves = [RowChange(1, 5, "D", "1", "a"), RowChange(1, 5, "I", "1", "b")]
    assert described(events_of(halves, one_row=True)) == "u1:a>b"
    assert described(events_of(rows("D1a I1b"), one_row=True)) == "d1:a> c1:>b"
