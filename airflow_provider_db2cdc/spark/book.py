"""The agenda of one tick, shared by the thread that reads and the one that publishes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from airflow_provider_db2cdc.cdc.agenda import Agenda
from airflow_provider_db2cdc.cdc.part import MAX_FAILURES, Part, failed
from airflow_provider_db2cdc.cdc.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.table import TableId

T = TypeVar("T")


class Book:
    """An agenda that is replaced whole, by one thread at a time; `out` are the tables that failed in this tick."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.out: set[TableId] = set()
        self._lock = threading.Lock()

    def change(self, step: Callable[[Agenda], tuple[Agenda, T]]) -> T:
        """Replace the agenda by the step's, and return what else the step returns."""
        with self._lock:
            self.agenda, found = step(self.agenda)
            return found

    def turn(self, id_: str, table: TableId, step: Callable[[Part], Part]) -> None:
        """Replace a snapshot's part by what the step makes of it, unless it has come to its end meanwhile."""

        def turned(agenda: Agenda) -> tuple[Agenda, None]:
            snapshot = _find(agenda, id_)
            part = snapshot.part(table)
            if part is None or not part.open:
                return agenda, None
            return agenda.with_snapshot(snapshot.with_part(step(part))), None

        self.change(turned)

    def fail(self, id_: str, table: TableId, reason: str) -> None:
        """Leave a table out for the rest of the tick; its part is tried again by the next, but not for ever.

        Both threads may meet the same failure: it counts once a tick.
        """
        with self._lock:
            is_known = table in self.out
            self.out.add(table)
        if is_known:
            return
        # A table that was begun and given up would be half filled for good.
        tries = None if self.snapshot(id_).kind == "initial" else MAX_FAILURES
        self.turn(id_, table, lambda part: failed(part, reason, tries))

    def snapshot(self, id_: str) -> Snapshot:
        """Return the snapshot of that id."""
        return _find(self.agenda, id_)

    def part(self, id_: str, table: TableId) -> Part:
        """Return a snapshot's part."""
        part = self.snapshot(id_).part(table)
        assert part is not None
        return part

    def running(self, id_: str, usable: Collection[TableId]) -> Snapshot | None:
        """Return a running snapshot with the tables alone that this tick can work on, None when it is not running."""
        snapshot = self.snapshot(id_)
        if snapshot.status != "running":
            return None
        return replace(
            snapshot, parts=tuple(p for p in snapshot.parts if p.table in usable and p.table not in self.out)
        )


def _find(agenda: Agenda, id_: str) -> Snapshot:
    return next(snapshot for snapshot in agenda.snapshots if snapshot.id == id_)
