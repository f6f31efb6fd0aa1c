"""Random histories of tables: what to execute, what capture writes of it, and what the tables hold after each commit.

    history = random_history(7, HistoryOptions(tables=2))
    history.steps              statements, commits and rollbacks of interleaved transactions, in their order
    history.changes["T0"]      the rows of T0's change table
    history.state("T0", at)    T0's rows after commit `at`: the oracle

The oracle folds the versions of each physical row, independently of its key at the time. It never looks at change rows.
Transactions that are open at the same time never touch the same keys. With `lanes=1` only one is open at a time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, cast

from airflow_provider_db2cdc.cdc.capture.registration import UpdateAs
from airflow_provider_db2cdc.cdc.event.change_event import RowChange
from airflow_provider_db2cdc.cdc.lsn import Lsn
from support.database import Database, Touch
from support.operation import (
    Delete,
    Insert,
    Key,
    Operation,
    Row,
    Shift,
    Swap,
    TableShape,
    Update,
    lies_in,
    moved,
    text_key,
)
from support.step import Commit, Rollback, Step

IMAGES: tuple[Row, ...] = ((0, None), (1, "x"), (1, "it's"))
"""Few, so that two rows are often alike but for their keys."""

WEIGHTS = {
    "insert": 4, "update": 3, "keep": 2, "delete": 2, "replace": 2, "flash": 2, "stand_beside": 1,
    "move": 2, "shift": 4, "swap": 2,
}  # fmt: skip
KEY_CHANGING = frozenset({"move", "shift", "swap"})
_WITH_NUMBERS = frozenset({"shift", "swap"})
_WITHOUT_GAP = frozenset({"update", "keep", "delete", "replace"})


@dataclass(frozen=True)
class Version:
    """What a commit left of one physical row: its columns, or None when it is deleted."""

    commit: Lsn
    table: str
    identity: int
    row: Row | None


@dataclass(frozen=True)
class HistoryOptions:
    """How a history is drawn. `lanes` limits the open transactions, and `width` the keys that one of them works on.

    At the rate `new_first_rate` capture writes an update's new row before its old one. `keys` may be texts. With `case`
    some of them differ only in case. With `blanks` a statement may also write a key with blanks at its end. SQL finds
    and compares the key without them, and capture logs it with them.
    """

    tables: int = 1
    transactions: int = 12
    lanes: int = 3
    width: int = 6
    composite: bool | None = None
    update_as: UpdateAs = "DI"
    keys: Literal["numbers", "case", "blanks"] = "numbers"
    rollback_rate: float = 0.15
    lsn_bytes: int = 16
    new_first_rate: float = 0
    weights: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))


@dataclass(frozen=True)
class History:
    """A drawn history. `start` is the position before its first commit. There tables hold their `initial` rows."""

    tables: tuple[TableShape, ...]
    initial: Mapping[str, tuple[Row, ...]]
    start: Lsn
    steps: tuple[Step, ...]
    changes: Mapping[str, tuple[RowChange, ...]]
    versions: tuple[Version, ...]

    @property
    def positions(self) -> tuple[Lsn, ...]:
        """The start and every commit, ascending."""
        commits = [step.action.lsn for step in self.steps if isinstance(step.action, Commit)]
        return (self.start, *commits)

    def shape(self, table: str) -> TableShape:
        """Return the table with a name."""
        return next(shape for shape in self.tables if shape.name == table)

    def state(self, table: str, at: Lsn) -> dict[Key, Row]:
        """Return the table's rows by key after the commit `at`."""
        rows = self.rows(table, at).values()
        by_key = {self.shape(table).key_of(row): row for row in rows}
        assert len(by_key) == len(rows), "the history itself broke a key"
        return by_key

    def rows(self, table: str, at: Lsn) -> dict[int, Row]:
        """Return the table's rows after the commit `at`, each by its identity, which does not depend on its key."""
        latest = {
            version.identity: version.row
            for version in self.versions
            if version.table == table and version.commit <= at
        }
        return {identity: row for identity, row in latest.items() if row is not None}


def random_history(seed: int, options: HistoryOptions | None = None) -> History:
    """Return the history of a seed. It is the same each time."""
    return _Generator(random.Random(seed), options or HistoryOptions()).run()


@dataclass
class _Transaction:
    number: int
    lanes: list[int]
    left: int
    rolls_back: bool
    touches: list[tuple[Touch, Lsn, Lsn]] = field(default_factory=list)


class _Generator:
    """Draws a history: statements for the database, and a log of what they touched."""

    def __init__(self, rng: random.Random, options: HistoryOptions) -> None:
        self.rng, self.options = rng, options
        self.shapes = tuple(self._shape(at) for at in range(options.tables))
        self.database = Database(self.shapes, rng)
        self.steps: list[Step] = []
        self.changes: dict[str, list[RowChange]] = {shape.name: [] for shape in self.shapes}
        self.versions: list[Version] = []
        self.intent, self.commit = 0x48C, 0x150F_0000_0000

    def run(self) -> History:
        start = self._next_commit()
        initial = {shape.name: tuple(self._fill(shape, start)) for shape in self.shapes}
        open_now: list[_Transaction] = []
        started = 0
        while open_now or started < self.options.transactions:
            busy = {lane for transaction in open_now for lane in transaction.lanes}
            free = [lane for lane in range(self.options.lanes) if lane not in busy]
            if started < self.options.transactions and free and (not open_now or self.rng.random() < 0.3):
                open_now.append(self._begin(started, free))
                started += 1
            elif not self._advance(transaction := self.rng.choice(open_now)):
                open_now.remove(transaction)
        changes = {table: tuple(rows) for table, rows in self.changes.items()}
        return History(self.shapes, initial, start, tuple(self.steps), changes, tuple(self.versions))

    def _shape(self, at: int) -> TableShape:
        composite = self.rng.random() < 0.4 if self.options.composite is None else self.options.composite
        key, text = ("G", "N") if composite else ("ID",), self.options.keys != "numbers"
        return TableShape(f"T{at}", key, self.options.update_as, text=text)

    def _fill(self, shape: TableShape, start: Lsn) -> Iterator[Row]:
        for key in [key for lane in range(self.options.lanes) for key in self._keys(shape, lane)]:
            if self.rng.random() < 0.5:
                [touch] = self.database.execute(Insert(shape.name, row := self._row(key)))
                self.versions.append(Version(start, shape.name, touch.identity, row))
                yield row

    def _begin(self, number: int, free: list[int]) -> _Transaction:
        lanes = self.rng.sample(free, min(len(free), self.rng.choice((1, 1, 2))))
        rolls_back = self.rng.random() < self.options.rollback_rate
        return _Transaction(number, lanes, self.rng.choice((1, 1, 2, 3, 8)), rolls_back)

    def _advance(self, transaction: _Transaction) -> bool:
        """Do the transaction's next statement, or end it. Return False once it has ended."""
        if transaction.left:
            transaction.left -= 1
            for operation in self._draw(transaction):
                self.steps.append(Step(transaction.number, operation))
                transaction.touches += [(touch, *self._intents()) for touch in self.database.execute(operation)]
            return True
        if transaction.rolls_back:
            self.database.undo([touch for touch, _, _ in transaction.touches])
            self.steps.append(Step(transaction.number, Rollback()))
        else:
            self._commit(transaction)
        return False

    def _commit(self, transaction: _Transaction) -> None:
        commit = self._next_commit()
        self.steps.append(Step(transaction.number, Commit(commit)))
        for touch, first, second in transaction.touches:
            self.changes[touch.table] += self._captured(commit, touch, first, second)
        last = {(touch.table, touch.identity): touch.new for touch, _, _ in transaction.touches}
        self.versions += [Version(commit, table, identity, row) for (table, identity), row in last.items()]

    def _captured(self, commit: Lsn, touch: Touch, first: Lsn, second: Lsn) -> Iterator[RowChange]:
        shape = self.database.shapes[touch.table]
        if shape.update_as == "U" and touch.old is not None and touch.new is not None:
            yield RowChange(commit, first, "U", shape.key_of(touch.new), touch.new)
            return
        old: list[tuple[Literal["D", "I"], Row]] = [] if touch.old is None else [("D", touch.old)]
        new: list[tuple[Literal["D", "I"], Row]] = [] if touch.new is None else [("I", touch.new)]
        rate = self.options.new_first_rate
        halves = [*new, *old] if rate and self.rng.random() < rate else [*old, *new]
        places = (first, second) if len(halves) > 1 else (first if old else second,)
        for place, (op, row) in zip(places, halves, strict=True):
            yield RowChange(commit, place, op, shape.key_of(row), row)

    def _draw(self, transaction: _Transaction) -> list[Operation]:
        shape, lane = self.rng.choice(self.shapes), self.rng.choice(transaction.lanes)
        weights = {
            kind: weight
            for kind, weight in self.options.weights.items()
            if (self.options.update_as == "DI" or kind not in KEY_CHANGING)
            and not (shape.text and kind in _WITH_NUMBERS)
        }
        kind = self.rng.choices([*weights], [*weights.values()])[0]
        keys, taken = self._keys(shape, lane), self.database.by_key(shape.name)
        full, free = [key for key in keys if key in taken], [key for key in keys if key not in taken]
        if kind in ("shift", "swap"):
            return self._key_run(kind, shape, full, taken, keys)
        return self._operations(kind, shape, full, free, taken)

    def _operations(
        self, kind: str, shape: TableShape, full: list[Key], free: list[Key], taken: Mapping[Key, Row]
    ) -> list[Operation]:
        """Return a kind's statements on random keys, none if it lacks a row or a free key."""
        if (kind not in ("insert", "flash") and not full) or (kind not in _WITHOUT_GAP and not free):
            return []
        name, key, gap = shape.name, self.rng.choice(full or free), self.rng.choice(free or full)
        row = self._row(gap)
        operations: dict[str, list[Operation]] = {
            "insert": [Insert(name, row)],
            "flash": [Insert(name, row), Delete(name, gap)],
            "update": [Update(name, key, self._row(key))],
            "keep": [Update(name, key, taken.get(key, row))],
            "delete": [Delete(name, key)],
            "replace": [Delete(name, key), Insert(name, self.rng.choice((taken.get(key, row), self._row(key))))],
            "move": [Update(name, key, self.rng.choice((row, gap + taken.get(key, row)[len(key) :])))],
            "stand_beside": [Delete(name, key), Insert(name, row)],
        }
        return operations[kind]

    def _key_run(
        self, kind: str, shape: TableShape, full: list[Key], taken: Mapping[Key, Row], keys: list[Key]
    ) -> list[Operation]:
        """Return a shift or swap that leaves keys unique and in their lane. It tries a few times."""
        for _ in range(6 if full else 0):
            numbers = cast("list[tuple[int, ...]]", full)
            ends = [sorted(pair) for pair in zip(self.rng.choice(numbers), self.rng.choice(numbers), strict=True)]
            ranges = tuple((name, low, high) for name, (low, high) in zip(shape.key, ends, strict=True))
            at = self.rng.randrange(len(shape.key))
            column, low, high = ranges[at]
            operation: Shift | Swap = Swap(shape.name, column, low + high, ranges)
            if kind == "shift":
                operation = Shift(shape.name, column, self.rng.choice((-2, -1, 1, 1)), ranges)
            hit = [key for key in full if lies_in(key, ranges)]
            new = {moved(key, at, operation) for key in hit}
            if hit and new <= {*keys} and not new & (taken.keys() - {*hit}):
                return [operation]
        return []

    def _keys(self, shape: TableShape, lane: int) -> list[Key]:
        numbers = range(lane * 100 - 2, lane * 100 - 2 + self.options.width)
        keys: list[Key] = [(number,) for number in numbers]
        if len(shape.key) > 1:
            keys = list(product((2 * lane, 2 * lane + 1), range(-1, self.options.width // 2)))
        return [tuple(text_key(int(value)) for value in key) for key in keys] if shape.text else keys

    def _row(self, key: Key) -> Row:
        if self.options.keys == "blanks":
            key = tuple(f"{value}{' ' * self.rng.choice((0, 0, 1, 2))}" for value in key)
        return key + self.rng.choice(IMAGES)

    def _intents(self) -> tuple[Lsn, Lsn]:
        first = self.intent + self.rng.randint(1, 40)
        self.intent = first + self.rng.randint(1, 40)
        return self._lsn(first), self._lsn(self.intent)

    def _next_commit(self) -> Lsn:
        self.commit += self.rng.randint(1, 1000)
        return self._lsn(self.commit)

    def _lsn(self, number: int) -> Lsn:
        return Lsn(number.to_bytes(self.options.lsn_bytes, "big"))
