"""Ticks in memory: random histories of commits, snapshots, restarts and deaths of runs."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random

import pytest
from support.crash import Killed
from support.memory_pipeline import SETTINGS, MemoryPipeline
from support.memory_source import MemorySource, number

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, failpoint_action

TABLES = [TableId("S", name) for name in "AB"]
KILLED_AT: list[Failpoint] = [
    "read_history", "plan_batch", "append_changes", "merge_state", "commit_batch", "read_journal", "write_journal",
    "stage_chunks", "prepare_table", "publish_manifest",
]  # fmt: skip
WRITES: list[Failpoint] = ["append_changes", "merge_state", "commit_batch"]
QUICK, HISTORIES, STEPS, LAST_TICKS = 50, 400, 14, 40
SLOW = [pytest.param(range(at, at + 50), marks=pytest.mark.slow) for at in range(QUICK, HISTORIES, 50)]


class World:
    """A pipeline to which things happen by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.source = MemorySource(TABLES)
        # Without a budget each tick publishes one group of a snapshot.
        budget_s = self.rng.choice((0.0, 900.0))
        self.pipeline = MemoryPipeline(self.source, replace(SETTINGS, snapshot_budget_s=budget_s))
        self.asked = self.manifests = 0

    def step(self) -> None:
        """Let one thing happen."""
        happens = (self.write, self.write, self.source.capture, self.tick, self.tick, self.die, self.overtake)
        self.rng.choice((*happens, self.restart))()

    def write(self) -> None:
        """Commit changes of some keys."""
        keys = [(self.rng.choice(TABLES), self.rng.randrange(12)) for _ in range(self.rng.randrange(1, 5))]
        self.source.commit({key: self.rng.choice((None, self.rng.randrange(100))) for key in keys})

    def tick(self) -> None:
        """Do a tick, often with a signal, while the source continues to change."""
        with self.writing():
            self.pipeline.tick(*self.signals())
        self.check_manifest()

    def die(self) -> None:
        """Let a run die somewhere, and perhaps its retry do the rest."""
        self.interrupt()
        self.manifests = len(self.pipeline.target.manifest)

    def interrupt(self) -> None:
        """Kill a run at one of its failpoints."""
        spec = self.pipeline.plan(self.signals())
        when, point, calls = self.rng.choice(("before", "after")), self.rng.choice(KILLED_AT), self.rng.randrange(1, 4)

        def die(reached: object) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                raise Killed

        action = {when: die}
        try:
            with self.writing(), failpoint_action(point, **action):
                self.pipeline.commit(self.pipeline.run(spec))
        except Killed:
            if self.rng.random() < 0.5:
                self.pipeline.commit(self.pipeline.run(spec))

    def overtake(self) -> None:
        """Let another run do a whole tick while one hangs; the one that wakes may be refused."""
        spec = self.pipeline.plan(self.signals())
        point, calls = self.rng.choice((*KILLED_AT, *WRITES)), self.rng.randrange(1, 4)
        is_restart, table = self.rng.random() < 0.5, self.rng.choice(TABLES)

        def overtake(reached: object) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                if is_restart:
                    self.pipeline.restart(table)
                self.pipeline.tick()

        with suppress(ConcurrentRunError), failpoint_action(point, before=overtake):
            self.pipeline.commit(self.pipeline.run(spec))
        self.manifests = len(self.pipeline.target.manifest)

    def restart(self) -> None:
        """Ask for a restart."""
        self.pipeline.restart(self.rng.choice(TABLES))

    def signals(self) -> list[Signal]:
        """Return a request, or none."""
        if self.rng.random() < 0.6:
            return []
        self.asked += 1
        name = self.rng.choice(TABLES)
        kind = self.rng.choice(("execute", "execute", "execute", "stop", "pause", "resume"))
        type_ = self.rng.choice(("incremental", "blocking")) if kind == "execute" else "incremental"
        data = f'{{"data-collections": ["{name}"], "type": "{type_}"}}' if kind in ("execute", "stop") else "{}"
        return [Signal(str(self.asked), f"{kind}-snapshot", data, "airflow")]

    def check_manifest(self) -> None:
        """Check that the tables are as the source was at the commit of the newest manifest, if this tick wrote it."""
        manifest = self.pipeline.target.manifest
        if len(manifest) > self.manifests:
            rows = self.source.history[number(manifest[-1])]
            assert {table: self.pipeline.state(table) for table in TABLES} == rows, f"manifest of {manifest[-1]}"
        self.manifests = len(manifest)

    def writing(self) -> object:
        """Return a context in which the source changes while chunks are read."""
        if self.rng.random() < 0.4:
            return nullcontext()
        return failpoint_action("stage_chunks", before=lambda _: self.write(), after=lambda _: self.write())

    def finish(self) -> None:
        """Capture everything, resume what is paused, and tick until nothing is open."""
        self.source.capture()
        self.pipeline.tick(Signal("last", "resume-snapshot", "{}", "airflow"))
        for _ in range(LAST_TICKS):
            self.source.capture()
            result = self.pipeline.tick()
            if not any(one.status == "running" for one in result.snapshots):
                break
        self.source.capture()
        self.pipeline.tick()


@pytest.mark.parametrize("seeds", [range(QUICK), *SLOW], ids=str)
def test_target_equals_the_source_after_any_history(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in seeds:
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.finish()
        capsys.readouterr()
        for table in TABLES:
            assert world.pipeline.state(table) == world.source.rows[table], f"seed {seed}: state of {table}"
            pulled = [
                (event.commit, event.intent) for _, step, event in world.pipeline.target.log[table] if step == "changes"
            ]
            assert len({*pulled}) == len(pulled), f"seed {seed}: a change of {table} is in the log twice"
            assert world.pipeline.folded(table) == world.source.rows[table], f"seed {seed}: change log of {table}"
