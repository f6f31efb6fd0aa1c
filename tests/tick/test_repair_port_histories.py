"""Random histories of changes, damage, repairs and deaths, played on Delta and in memory side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from support.crash import killed
from support.memory_source import Row
from support.memory_twin import MemoryTwin
from support.port_table import DELTA, NewTable, Table

from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Repair, Replay

KEYS, STEPS, LONG_STEPS = 6, 5, 10
PLAYED = [(0, STEPS), (1, STEPS), *((seed, LONG_STEPS) for seed in range(2, 14))]
POINTS = ("append_changes", "merge_state")


@dataclass
class Played:
    """A table of one implementation, and the positions that it was applied to, each with its time."""

    table: Table
    ends: list[Backfill] = field(default_factory=list)

    def applied(self) -> None:
        """Keep the position as a place where intervals begin and end."""
        at = self.table.at
        at_ms = self.table.twin.time_ms(at)
        self.ends.append(Backfill(at_ms, at_ms, at, at))

    def interval(self, first: int, last: int, by_time: bool) -> Backfill:
        """Return the interval between two positions."""
        begin, end = self.ends[first], self.ends[last]
        commits = (None, None) if by_time else (begin.after, end.upto)
        return Backfill(begin.begin_ms, end.end_ms, *commits)


class History:
    """One table in memory and one on Delta, to which the same happens."""

    def __init__(self, seed: int, memory: MemoryTwin, delta: Table) -> None:
        self.rng, self.memory = Random(seed), Table(memory)
        self.both = (Played(self.memory), Played(delta))
        self.source, self.is_keyed = memory.source, memory.is_keyed
        values = {key: self.rng.randrange(100) for key in range(KEYS)}
        for played in self.both:
            if self.is_keyed:
                played.table.begin_with_snapshot(values)
            else:
                played.table.begin(values)
            played.applied()

    def tables(self) -> Iterator[Table]:
        """Yield both tables."""
        yield from (played.table for played in self.both)

    def step(self) -> None:
        """Let one thing happen, and compare both tables."""
        self.rng.choice((self.change, self.damage, self.damage, self.repair, self.repair, self.die, self.foreign))()
        self.check()

    def change(self) -> None:
        """Apply a commit."""
        keys = self.rng.sample(range(KEYS), self.rng.randrange(1, 4))
        held = self.source.rows[self.source.tables[0]]
        values = {key: self.rng.choice((None, self.rng.randrange(100))) for key in keys}
        if not self.is_keyed:
            # Without a key Delta pairs a deletion and an insertion that follow each other.
            is_deletion = self.rng.random() < 0.5
            values = {key: None if is_deletion else 100 + key for key in keys if (key in held) == is_deletion}
        values = {key: value for key, value in values.items() if value is not None or key in held}
        for played in self.both:
            played.table.twin.commit(values)
            played.table.done(played.table.plan())
            if values:
                played.applied()

    def damage(self) -> None:
        """Change the state, and lose or double an event of the log."""
        self.change_state(is_own=True)
        pulled = [event for event in self.memory.twin.events() if event[1] != "r"]
        if pulled:
            _, op, row = self.rng.choice(pulled)
            is_lost = self.rng.random() < 0.5
            for table in self.tables():
                (table.twin.lose if is_lost else table.twin.double)(op, row)

    def change_state(self, is_own: bool) -> None:
        """Have the state lose a row, or hold a wrong one, or one that is nowhere else."""
        rows = sorted(self.memory.twin.rows(), key=str)
        lost = self.rng.choice(rows)[0] if rows else None
        wrong: Row = (lost, 999) if lost is not None and self.rng.random() < 0.5 else (77, 777)
        added = wrong if self.is_keyed else (77,)
        is_there = added in rows or (self.is_keyed and added[:1] in [row[:1] for row in rows if row[0] != lost])
        for table in self.tables():
            table.twin.change_state(None, lost, is_own)
            table.twin.change_state(None if is_there else added, is_own=is_own)

    def repair(self) -> None:
        """Repair an interval, or rarely everything."""
        self.done(self.work())

    def die(self) -> None:
        """Let a repair die where it writes, and do it again."""
        point, when, work = self.rng.choice(POINTS), self.rng.choice(("before", "after")), self.work()
        found = self.compare(work)
        if not (found.events_added and found.rows_corrected):
            return
        for played, one in zip(self.both, work, strict=True):
            table = played.table
            planned = table.plan_repair(one)
            with killed(point, when):  # type: ignore[arg-type]
                table.apply(planned)
            table.batch += 1
            table.done(planned, is_redone=True)

    def foreign(self) -> None:
        """Let another writer change the state. A backfill comes first, and a replay ends the refusal."""
        self.change_state(is_own=False)
        self.done(self.work())
        self.done((Replay(), Replay()))

    def work(self) -> Sequence[Repair]:
        """Return a repair for each table."""
        if self.rng.random() < 0.2:
            return (Replay(), Replay())
        first, last = sorted(self.rng.randrange(len(self.both[0].ends)) for _ in range(2))
        by_time = self.rng.random() < 0.3
        return [played.interval(first, last, by_time) for played in self.both]

    def compare(self, work: Sequence[Repair]) -> Findings:
        """Compare both tables. They must have the same findings."""
        return _same([table.compare(one) for table, one in zip(self.tables(), work, strict=True)])

    def done(self, work: Sequence[Repair]) -> Findings:
        """Repair both tables. They must have the same findings."""
        return _same([table.repair(one) for table, one in zip(self.tables(), work, strict=True)])

    def check(self) -> None:
        """Compare both tables."""
        memory, delta = self.tables()
        assert delta.twin.rows() == memory.twin.rows()
        assert delta.twin.events() == memory.twin.events()
        assert memory.last is not None
        assert delta.last is not None
        # A tick counts from the rows that the last batch left, which damage has changed. A repair counts the state.
        if memory.last.repair is not None:
            assert delta.last.rows == memory.last.rows

    def finish(self) -> None:
        """Have a backfill and a replay mend everything."""
        self.done([replace(played.ends[-1], begin_ms=0, after=None) for played in self.both])
        self.done((Replay(), Replay()))
        self.check()
        for table in self.tables():
            assert table.twin.rows() == table.twin.at_source()
            assert table.compare(Replay()).is_equal


def _same(found: Sequence[Findings]) -> Findings:
    memory, delta = (replace(each, comparable_since_ms=None) for each in found)
    assert delta == memory
    return memory


@pytest.mark.parametrize("kind", [DELTA])
@pytest.mark.long
@pytest.mark.parametrize(("seed", "steps"), PLAYED)
def test_repairs_on_delta_do_what_they_do_in_memory(new_table: NewTable, seed: int, steps: int) -> None:
    is_keyed = seed % 3 != 1
    history = History(seed, MemoryTwin(is_keyed), new_table(is_keyed))
    for _ in range(steps):
        history.step()
    history.finish()
