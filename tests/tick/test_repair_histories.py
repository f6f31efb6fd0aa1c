"""Random histories in memory of ticks, repairs, deaths of both, and planted damage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from support.crash import Killed
from support.memory_pipeline import SETTINGS, MemoryPipeline
from support.memory_source import MemorySource, lsn, number
from support.memory_target import MemoryBatchLog

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.repair.pulled import pulled_ranges
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Replay
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, failpoint_action

TABLES = [TableId("S", name) for name in "ABC"]
KEYLESS = TABLES[2]
KILLED_AT: list[Failpoint] = [
    "read_history", "plan_batch", "append_changes", "merge_state", "commit_batch", "read_journal", "prepare_table",
]  # fmt: skip
QUICK, HISTORIES, STEPS, KEYS = 60, 600, 16, 8
SLOW = [pytest.param(range(at, at + 60), marks=pytest.mark.slow) for at in range(QUICK, HISTORIES, 60)]


class World:
    """A pipeline that is damaged and repaired by chance. Plans of repairs wait, and are done in any order."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.source = MemorySource(TABLES, keyless={KEYLESS})
        self.pipeline = MemoryPipeline(self.source, replace(SETTINGS, snapshot_budget_s=self.rng.choice((0.0, 900.0))))
        self.waiting: list[JobSpec] = []
        self.signals = 0

    def step(self) -> None:
        """Let one thing happen."""
        happens = (
            self.write,
            self.write,
            self.source.capture,
            self.tick,
            self.tick,
            self.plan,
            self.repair,
            self.repair,
        )
        self.rng.choice((*happens, self.restart, self.damage, self.damage, self.die, self.snapshot, self.overtake))()

    def write(self) -> None:
        """Commit changes of some keys."""
        keys = [(self.rng.choice(TABLES), self.rng.randrange(KEYS)) for _ in range(self.rng.randrange(1, 5))]
        self.source.commit({key: self.rng.choice((None, self.rng.randrange(100))) for key in keys})

    def tick(self) -> None:
        """Do a tick."""
        self.pipeline.tick()

    def restart(self) -> None:
        """Ask for a restart."""
        self.pipeline.restart(self.rng.choice(TABLES))

    def snapshot(self) -> None:
        """Do a tick with a snapshot."""
        self.signals += 1
        data = f'{{"data-collections": ["{self.rng.choice(TABLES)}"], "type": "incremental"}}'
        self.pipeline.tick(Signal(str(self.signals), "execute-snapshot", data, "airflow"))

    def plan(self) -> None:
        """Plan a repair, which is done later."""
        ends = sorted(self.rng.randrange(self.source.commits + 3) for _ in range(2))
        known = [lsn(end) if self.rng.random() < 0.7 else None for end in ends]
        repair = Replay() if self.rng.random() < 0.2 else Backfill(ends[0], ends[1], known[0], known[1])
        tables = self.rng.sample(TABLES, self.rng.randrange(1, 4))
        self.waiting.append(self.pipeline.plan_repair(repair, *tables))

    def repair(self) -> None:
        """Do one of the planned repairs."""
        if self.waiting:
            self.run(self.waiting.pop(self.rng.randrange(len(self.waiting))))

    def run(self, spec: JobSpec) -> JobResult:
        """Do a repair. It must move no offset, and no table may fail unless a later batch is not finished."""
        before = dict(self.pipeline.offsets.offsets)
        positions = self.positions()
        pending = {planned.table for planned in self.pending()}
        result = self.pipeline.run(spec)
        assert self.pipeline.offsets.offsets == before
        assert all(upto >= positions[table] for table, upto in self.positions().items() if table in positions)
        assert {line.table for line in result.failed} <= pending, result.failed
        return result

    def positions(self) -> dict[TableId, Lsn]:
        """Return how far each table is applied."""
        return {applied.table: applied.upto for applied in self.pipeline.target.applied}

    def pending(self) -> list[PlannedBatch]:
        """Return the batches that are planned and not applied."""
        return list(MemoryBatchLog(self.pipeline.target).history({}).pending)

    def damage(self) -> None:
        """Change a state, or the change log, as a fault of the pipeline would."""
        target, table = self.pipeline.target, self.rng.choice(TABLES)
        if not target.state.get(table) or not self.rng.randrange(3):
            return
        key = self.rng.choice([*target.state[table]])
        (image, batch), wrong = target.state[table][key], None
        if table != KEYLESS and self.rng.random() < 0.5:
            wrong = ((image[0], 999), batch)
        target.put_rows(table, {key: wrong})

    def lose(self, table: TableId) -> bool:
        """Remove an event from the change log, and return whether there was one.

        It is one that batches have pulled since the table began. An older one could not be found again.
        """
        log, begun = self.pipeline.target.log[table], self.begun(table)
        if not (lost := [logged for logged in log if logged[1] == "changes" and number(logged[2].commit) > begun]):
            return False
        log.remove(self.rng.choice(lost))
        return True

    def die(self) -> None:
        """Kill a repair or a tick at one of its failpoints."""
        if not self.waiting:
            self.plan()
        is_repair = self.rng.random() < 0.7
        spec = self.waiting.pop() if is_repair else self.pipeline.plan()
        point, calls = self.rng.choice(KILLED_AT), self.rng.randrange(1, 3)

        def die(_: object) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                raise Killed

        action = {self.rng.choice(("before", "after")): die}
        with suppress(Killed, ConcurrentRunError), failpoint_action(point, **action):
            self.pipeline.run(spec)
        if is_repair and self.rng.random() < 0.5:
            self.waiting.append(spec)

    def overtake(self) -> None:
        """Let a tick run while a repair hangs, or a repair while a tick hangs. The one that hung may be refused."""
        self.plan()
        inner, outer = self.waiting.pop(), self.pipeline.plan()
        if self.rng.random() < 0.5:
            inner, outer = outer, inner
        point, calls = self.rng.choice(KILLED_AT), self.rng.randrange(1, 3)

        def overtake(_: object) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                with suppress(ConcurrentRunError):
                    self.pipeline.run(inner)

        with suppress(ConcurrentRunError), failpoint_action(point, before=overtake):
            self.pipeline.run(outer)

    def finish(self) -> None:
        """Do what is planned, capture everything, and tick until nothing is open. Then repair everything."""
        while self.waiting:
            self.run(self.waiting.pop())
        for _ in range(20):
            self.source.capture()
            if not any(one.status == "running" for one in self.pipeline.tick().snapshots):
                break
        self.source.capture()
        self.pipeline.tick()

    def check(self) -> None:
        """Lose events, damage states, and have backfills of everything mend it. A second one finds nothing."""
        lost = {table for table in TABLES if self.lose(table)}
        self.damage()
        first = self.pipeline.repair(Backfill(0, self.source.commits, lsn(1), lsn(self.source.commits)))
        assert {table: found.events_added for table, found in first.items()} == {t: int(t in lost) for t in TABLES}
        replayed = self.pipeline.repair(Replay())
        for again in (Replay(), Backfill(0, self.source.commits)):
            assert all(found.is_equal for found in self.pipeline.repair(again).values())
        assert not any(found.events_doubled or found.events_only_in_log for found in replayed.values())

    def begun(self, table: TableId) -> int:
        """Return the commit after which the table's newest beginning pulled."""
        target = self.pipeline.target
        applied = {each.batch for each in target.applied if each.table == table}
        planned = [each for each in target.planned if each.table == table and each.batch in applied]
        ranges = pulled_ranges(planned)
        assert ranges is not None
        return number(ranges.beginning.after)


def play(seed: int) -> None:
    """Play one history, and compare the target with the source at its end."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.finish()
    world.check()
    target = world.pipeline.target
    for table in TABLES:
        assert world.pipeline.images(table) == world.source.images(table), f"state of {table}"
        pulled = [(event.commit, event.intent) for _, step, event in target.log[table] if step == "changes"]
        assert len({*pulled}) == len(pulled), f"a change of {table} is in the log twice"
        places = [(batch, event.commit, event.intent) for batch, step, event in target.log[table] if step == "changes"]
        assert places == sorted(places), f"the log of {table} is not linear"


@pytest.mark.parametrize("seeds", [range(QUICK), *SLOW], ids=str)
def test_repairs_mend_any_history(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in seeds:
        try:
            play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        capsys.readouterr()
