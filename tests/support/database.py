"""A small database whose rows have an identity: it shows what a statement touches, and can undo it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

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
    compared,
    lies_in,
    moved,
)


@dataclass(frozen=True)
class Touch:
    """One row touched by a statement: its images before and after, None where there is none, in log order."""

    table: str
    identity: int
    old: Row | None
    new: Row | None


class Database:
    """Executes operations. A row keeps its identity even if its key changes."""

    def __init__(self, shapes: Iterable[TableShape], rng: random.Random) -> None:
        self.shapes = {shape.name: shape for shape in shapes}
        self._rng = rng
        self._rows: dict[str, dict[int, Row]] = {name: {} for name in self.shapes}
        self._identities = 0

    def by_key(self, table: str) -> dict[Key, Row]:
        """Return a table's rows by their keys without blanks at the end, uncommitted ones included."""
        return {compared(self.shapes[table].key_of(row)): row for row in self._rows[table].values()}

    def execute(self, operation: Operation) -> list[Touch]:
        """Do an operation. Many rows are touched in random order, because only a real database knows the order."""
        table, shape, rows = operation.table, self.shapes[operation.table], self._rows[operation.table]
        match operation:
            case Insert(row=row):
                self._identities += 1
                return [self._touch(table, self._identities, row)]
            case Update(key=key, row=row):
                return [self._touch(table, at, row) for at in self._found(shape, key)]
            case Delete(key=key):
                return [self._touch(table, at, None) for at in self._found(shape, key)]
            case Shift(column=column, ranges=ranges) | Swap(column=column, ranges=ranges):
                place = shape.key.index(column)
                hit = sorted((shape.key_of(row), at) for at, row in rows.items() if lies_in(shape.key_of(row), ranges))
                hit = self._rng.choice((hit, hit[::-1], self._rng.sample(hit, len(hit))))
                new = {at: moved(key, place, operation) + rows[at][len(key) :] for key, at in hit}
                return [self._touch(table, at, row) for at, row in new.items()]

    def undo(self, touches: list[Touch]) -> None:
        """Roll back what these touches did."""
        for touch in reversed(touches):
            self._touch(touch.table, touch.identity, touch.old)

    def _found(self, shape: TableShape, key: Key) -> list[int]:
        rows = self._rows[shape.name].items()
        sought = compared(key)
        return [at for at, row in rows if compared(shape.key_of(row)) == sought]

    def _touch(self, table: str, identity: int, new: Row | None) -> Touch:
        old = self._rows[table].pop(identity, None)
        if new is not None:
            self._rows[table][identity] = new
        return Touch(table, identity, old, new)
