"""The generator of histories: they obey the invariants of capture, and their statements match the oracle."""

import sqlite3
from collections import Counter
from itertools import pairwise
from typing import Any, Literal, cast

import pytest
from support.history import History, HistoryOptions, random_history
from support.operation import Delete, Insert, Key, Shift, Swap, Update, compared, create_table, statement
from support.step import Commit, Rollback

SEEDS = range(60)


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return [random_history(seed, HistoryOptions(tables=2)) for seed in SEEDS]


def test_a_seed_always_draws_the_same_history() -> None:
    assert random_history(3) == random_history(3)
    assert random_history(3) != random_history(4)


def test_every_kind_of_step_is_drawn(histories: list[History]) -> None:
    kinds = Counter(type(step.action) for history in histories for step in history.steps)
    assert {*kinds} == {Insert, Update, Delete, Shift, Swap, Commit, Rollback}
    assert min(kinds.values()) > len(SEEDS)


def test_keys_shift_in_both_directions_over_runs_of_rows(histories: list[History]) -> None:
    directions = Counter(
        step.action.delta > 0 for history in histories for step in history.steps if isinstance(step.action, Shift)
    )
    assert min(directions[True], directions[False]) > 20
    onto_another = 0
    for history in histories:
        for rows in history.changes.values():
            vacated = {(row.commit, row.key) for row in rows if row.op == "D"}
            for row, new in pairwise(rows):
                is_key_change = (row.op, new.op) == ("D", "I") and row.key != new.key and row.commit == new.commit
                onto_another += is_key_change and (new.commit, new.key) in vacated
    assert onto_another > 100


def test_single_and_composite_keys_are_drawn(histories: list[History]) -> None:
    assert {shape.key for history in histories for shape in history.tables} == {("ID",), ("G", "N")}
    assert random_history(1, HistoryOptions(composite=True)).tables[0].key == ("G", "N")


def test_transactions_interleave_unless_there_is_one_lane(histories: list[History]) -> None:
    def switches(history: History) -> int:
        numbers = [step.transaction for step in history.steps]
        return sum(one != other for one, other in pairwise(numbers)) - len({*numbers}) + 1

    assert sum(switches(history) > 0 for history in histories) > len(SEEDS) // 2
    assert all(switches(random_history(seed, HistoryOptions(lanes=1))) == 0 for seed in SEEDS)


def test_open_transactions_touch_different_keys(histories: list[History]) -> None:
    for history in histories:
        owner: dict[int, int] = {}
        for step in history.steps:
            match step.action:
                case Commit() | Rollback():
                    owner = {lane: at for lane, at in owner.items() if at != step.transaction}
                case Insert(row=(number, *_)) | Update(key=(number, *_)) | Delete(key=(number, *_)):
                    composite = len(history.shape(step.action.table).key) == 2
                    assert isinstance(number, int)
                    lane = number // 2 if composite else (number + 2) // 100
                    assert owner.setdefault(lane, step.transaction) == step.transaction
                case Shift() | Swap():
                    name, low, _ = step.action.ranges[0]
                    lane = low // 2 if name == "G" else (low + 2) // 100
                    assert owner.setdefault(lane, step.transaction) == step.transaction


def test_change_rows_obey_the_invariants_of_capture(histories: list[History]) -> None:
    long_transactions = 0
    for history in histories:
        rows = [row for listed in history.changes.values() for row in listed]
        assert len({row.intent for row in rows}) == len(rows)
        commits = [step.action.lsn for step in history.steps if isinstance(step.action, Commit)]
        assert commits == sorted(set(commits))
        assert {row.commit for row in rows} <= {*commits}
        for listed in history.changes.values():
            in_order = sorted(listed, key=lambda row: (row.commit, row.intent))
            assert [*listed] == in_order
            long_transactions += listed != tuple(sorted(listed, key=lambda row: row.intent))
    assert long_transactions > 0


def test_rolled_back_changes_have_no_change_row() -> None:
    rolled_back = 0
    for seed in SEEDS:
        history = random_history(seed, HistoryOptions(weights={"insert": 2, "delete": 1}, rollback_rate=0.4))
        committed = {step.transaction for step in history.steps if isinstance(step.action, Commit)}
        single_rows = [step for step in history.steps if isinstance(step.action, Insert | Delete)]
        written = [step for step in single_rows if step.transaction in committed]
        assert len(history.changes["T0"]) == len(written)
        rolled_back += len(single_rows) - len(written)
    assert rolled_back > 10


def test_u_mode_writes_an_update_as_one_row_and_changes_no_key() -> None:
    for seed in SEEDS:
        history = random_history(seed, HistoryOptions(update_as="U"))
        updates = [step.action for step in history.steps if isinstance(step.action, Update)]
        assert all(history.tables[0].key_of(update.row) == update.key for update in updates)
        assert not any(isinstance(step.action, Shift | Swap) for step in history.steps)
    assert {row.op for seed in SEEDS for row in random_history(seed, HistoryOptions(update_as="U")).changes["T0"]} == {
        *"DIU"
    }


def test_lsns_have_the_requested_width() -> None:
    history = random_history(1, HistoryOptions(lsn_bytes=10))
    assert {len(position.raw) for position in history.positions} == {10}
    assert {len(row.intent.raw) for row in history.changes["T0"]} == {10}


def test_keys_differ_only_in_case_and_change_only_in_blanks() -> None:
    alike = respelled = 0
    for seed in SEEDS:
        history = random_history(seed, HistoryOptions(keys="blanks"))
        for rows in history.changes.values():
            alike += len({row.key for row in rows}) - len(
                {tuple(map(str.lower, cast("tuple[str, ...]", row.key))) for row in rows}
            )
            pairs = [(old, new) for old, new in pairwise(rows) if (old.op, new.op) == ("D", "I")]
            respelled += sum(
                old.key != new.key and compared(cast("Key", old.key)) == compared(cast("Key", new.key))
                for old, new in pairs
            )
        for position in history.positions:
            keys = [compared(key) for key in history.state("T0", position)]
            assert len(keys) == len({*keys}), "to SQL these would be one key"
    assert min(alike, respelled) > len(SEEDS)


@pytest.mark.parametrize("keys", ["numbers", "case", "blanks"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_the_statements_give_a_database_the_oracles_states(
    lanes: int, keys: Literal["numbers", "case", "blanks"]
) -> None:
    """SQLite checks keys row by row, so its tables have none; interleaved transactions run at their commit.

    Its texts are compared as Db2 compares them, without blanks at the end.
    """
    for seed in SEEDS:
        history = random_history(seed, HistoryOptions(tables=2, lanes=lanes, keys=keys))
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute("ATTACH ':memory:' AS \"S\"")
        waiting: dict[Any, Any] = {}
        for shape in history.tables:
            connection.execute(create_table(shape, "S", keyed=False).replace("NOT NULL", "COLLATE RTRIM"))
            for row in history.initial[shape.name]:
                connection.execute(*statement(shape, Insert(shape.name, row), "S"))
        for step in history.steps:
            match step.action:
                case Rollback():
                    waiting.pop(step.transaction, None)
                case Commit(lsn=lsn):
                    for operation in waiting.pop(step.transaction, []):
                        connection.execute(*statement(history.shape(operation.table), operation, "S"))
                    for shape in history.tables:
                        rows = connection.execute(f'SELECT * FROM "S"."{shape.name}"').fetchall()
                        assert sorted(rows, key=shape.key_of) == sorted(
                            history.state(shape.name, lsn).values(), key=shape.key_of
                        )
                case operation:
                    waiting.setdefault(step.transaction, []).append(operation)


def test_the_ddl_names_the_primary_key() -> None:
    shape = random_history(1, HistoryOptions(composite=True)).tables[0]
    assert create_table(shape, "S") == (
        'CREATE TABLE "S"."T0" ("G" INTEGER NOT NULL, "N" INTEGER NOT NULL, "A" INTEGER, "B" VARCHAR(10), '
        'PRIMARY KEY ("N", "G"))'
    )
