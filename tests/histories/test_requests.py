"""Random histories of requests: each is acted on once, whatever plans, commits and findings come between."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

import pytest
from support.memory_offsets import MemoryOffsets
from support.offset_steps import commit, during, line, result
from support.seeds import play_all

from airflow_provider_db2cdc.cdc.job import TableResult
from airflow_provider_db2cdc.cdc.offset.request import Restart
from airflow_provider_db2cdc.cdc.offset.request_change import capture_interrupted, source_restored
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint
from airflow_provider_db2cdc.offsets.commit import record_reported

TABLES = [TableId("S", name) for name in "AB"]
STEPS, BLOCK = 40, 100


@dataclass
class Planned:
    """A plan, and the requests that it has seen."""

    at: int
    lines: list[TableResult]
    restarts: dict[TableId, str]


@dataclass
class World:
    """A store, the plans that wait for their commit, and what is still to be done.

    `open` is each table's request that no commit has acted on, and `done` are the requests that one has. `lost` are the
    tables whose changes are missing.
    """

    rng: Random
    store: MemoryOffsets = field(default_factory=MemoryOffsets)
    waiting: list[Planned] = field(default_factory=list)
    open: dict[TableId, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    lost: set[TableId] = field(default_factory=set)
    numbers: count[int] = field(default_factory=lambda: count(1))
    newest: int = 0

    def name(self) -> str:
        """Return a new revision."""
        return f"r{next(self.numbers)}"

    def plan(self) -> None:
        """Plan a tick of all tables. It restarts those for which it is requested, and maybe those that miss changes."""
        at, seen = next(self.numbers), self.store.put_requests(lambda seen: seen.requests)
        self.waiting.append(Planned(at, [self.tick(table, at, seen) for table in TABLES], self.restarts(seen)))

    def tick(self, table: TableId, at: int, seen: PipelineOffsets) -> TableResult:
        """Return what a tick does with a table."""
        offset = seen.get(table)
        if offset is None:
            return line(table, at)
        begins = offset.restart or (self.rng.random() < 0.2 and offset.capture_interrupted)
        return line(table, at, offset.revision, restart=offset.restart, reinitialized=begins)

    def restarts(self, seen: PipelineOffsets) -> dict[TableId, str]:
        """Return the requests of restarts that a plan sees."""
        found: dict[TableId, str] = {}
        for table in TABLES:
            request = seen.pending(table).request
            found |= {} if request is None else {table: request.revision}
        assert not self.done & {*found.values()}, "a plan sees a request that a commit has acted on before"
        return found

    def commit(self, asks: bool = True) -> None:
        """Commit a plan, mostly the newest. Something may be asked while it is written, and its task may run twice."""
        if not self.waiting:
            return
        at = -1 if self.rng.random() < 0.7 else self.rng.randrange(len(self.waiting))
        planned = self.waiting.pop(at)
        points: list[Failpoint] = ["put_summary", "put_offsets"]
        before = self.store.read()
        for _ in range(self.rng.choice((1, 1, 2))):
            meanwhile = during(self.rng.choice(points), self.ask) if asks and self.rng.random() < 0.5 else nullcontext()
            with meanwhile:
                commit(self.store, *planned.lines, at_ms=planned.at)
        record_reported(replace(result(*planned.lines, at_ms=planned.at), reported_seq=planned.at), self.store, True)
        for each in planned.lines:
            self.note(each, planned, before)

    def note(self, carried: TableResult, planned: Planned, before: PipelineOffsets) -> None:
        """Note what a commit has done with a table."""
        stored, old = self.store.read().stored.get(carried.table), before.stored.get(carried.table)
        assert stored is None or old is None or old.planned_at_ms <= stored.planned_at_ms, "an older plan has moved it"
        if stored is None or stored.planned_at_ms != planned.at:
            return
        if (revision := planned.restarts.get(carried.table)) is not None:
            self.done.add(revision)
            if self.open.get(carried.table) == revision:
                del self.open[carried.table]
        if carried.reinitialized and not self.store.read().pending(carried.table).capture_interrupted:
            self.lost.discard(carried.table)

    def ask(self) -> None:
        """Request a restart, or find something out."""
        table = self.rng.choice(TABLES)
        kind = self.rng.choice(("restart", "restart", "inactive", "restored"))
        if kind == "restart":
            self.open[table] = self.name()
            self.store.request(table, Restart(self.open[table]))
        elif kind == "inactive":
            self.store.put_requests(capture_interrupted([table], self.name()))
            self.lost.add(table)
        else:
            self.store.put_requests(source_restored([table], self.name()))

    def ask_while_a_commit_runs(self) -> None:
        """Let a commit run while a request is written. Two requests at once may overwrite each other."""
        with during("put_requests", lambda: self.commit(asks=False)):
            self.ask()

    def check(self) -> None:
        """Check that what is open is requested, and nothing else. What is lost is known."""
        seen = self.store.read()
        for table in TABLES:
            request, offset = seen.pending(table).request, seen.get(table)
            assert (request.revision if request else None) == self.open.get(table), table
            assert table not in self.lost or (offset is not None and offset.capture_interrupted), table


def play(seed: int) -> None:
    """Play one history. At its end two ticks leave nothing to do."""
    world = World(Random(seed))
    steps = [world.plan, world.plan, world.commit, world.commit, world.ask, world.ask_while_a_commit_runs]
    for _ in range(STEPS):
        world.rng.choice(steps)()
        world.check()
    world.waiting.clear()
    world.plan()
    world.commit()
    world.check()


@pytest.mark.parametrize(
    "seeds", [range(BLOCK), pytest.param(range(BLOCK, 5 * BLOCK), marks=pytest.mark.slow)], ids=str
)
def test_each_request_is_acted_on_once(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    play_all(seeds, play, capsys)
