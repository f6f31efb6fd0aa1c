"""Random histories in memory: commits, snapshots, restarts, restores, deaths, lost changes and other writers."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from random import Random

import pytest
from support.crash import Killed
from support.memory_journal import MemoryJournal
from support.memory_maintenance import maintain
from support.memory_pipeline import SETTINGS, MemoryPipeline
from support.memory_source import MemorySource, lsn, number
from support.memory_target import MemoryBatchLog
from support.request import execute
from support.seeds import play_all

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.heal import healed_tables
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, failpoint_action

TABLES = [TableId("S", name) for name in "ABC"]
KEYLESS = TABLES[2]
KILLED_AT: list[Failpoint] = [
    "read_history", "plan_batch", "append_changes", "merge_state", "commit_batch", "read_journal", "write_journal",
    "stage_chunks", "prepare_table", "publish_manifest",
]  # fmt: skip
WRITES: list[Failpoint] = ["append_changes", "merge_state", "commit_batch"]
Rows = dict[Hashable, tuple[tuple[int | None, ...], int] | None]
QUICK, HISTORIES, STEPS, LAST_TICKS = 50, 400, 14, 40
SLOW = [pytest.param(range(at, at + 50), marks=pytest.mark.slow) for at in range(QUICK, HISTORIES, 50)]


class World:
    """A pipeline to which things happen by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.source = MemorySource(TABLES, keyless={KEYLESS})
        # Without a budget each tick publishes one group of a snapshot.
        budget_s = self.rng.choice((0.0, 900.0))
        self.pipeline = MemoryPipeline(self.source, replace(SETTINGS, snapshot_budget_s=budget_s))
        self.mends = self.rng.random() < 0.3
        if self.mends:
            self.pipeline.mode = MODES["when_needed"]
            self.pipeline.set(gap_repair=self.rng.choice(("heal", "snapshot")))
        # As much as possible is trimmed after each step, or something now and then.
        self.trims = self.rng.random() < 0.3
        self.damaged: set[TableId] = set()
        self.asked = self.manifests = 0

    def step(self) -> None:
        """Let one thing happen."""
        happens = (self.write, self.write, self.source.capture, self.tick, self.tick, self.die, self.overtake)
        others = (self.restart, self.misplace, self.prune, self.lose_changes, self.change_state, self.maintain)
        self.rng.choice((*happens, *others))()
        if self.trims:
            self.maintain()

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
        """Let another run do a whole tick, or trim the logs, while one hangs. The one that wakes may be refused."""
        spec = self.pipeline.plan(self.signals())
        point, calls = self.rng.choice((*KILLED_AT, *WRITES)), self.rng.randrange(1, 4)
        is_restart, table = self.rng.random() < 0.5, self.rng.choice(TABLES)
        is_trimmed = not is_restart and self.rng.random() < 0.3

        def overtake(reached: object) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                if is_restart:
                    self.write()
                    self.source.capture()
                    self.pipeline.restart(table)
                if is_trimmed:
                    self.maintain(spec.planned_at_ms)
                else:
                    self.pipeline.tick()

        with suppress(ConcurrentRunError), failpoint_action(point, before=overtake):
            self.pipeline.commit(self.pipeline.run(spec))
        self.manifests = len(self.pipeline.target.manifest)

    def restart(self, table: TableId | None = None) -> None:
        """Ask for a restart."""
        chosen = table or self.rng.choice(TABLES)
        self.pipeline.restart(chosen)
        if self.is_restarted(chosen):
            self.damaged.discard(chosen)

    def heal(self, table: TableId) -> Signal:
        """Return a request for a heal of a table whose state another writer has changed."""
        self.damaged.add(table)
        self.asked += 1
        return execute(str(self.asked), table, type="heal")

    def prune(self) -> None:
        """Prune what every table has applied. It must not matter to any of them."""
        offsets = [self.pipeline.offsets.get(table) for table in TABLES]
        if all(offset is not None and not (offset.restart or offset.restore) for offset in offsets):
            self.source.prune(min(number(offset.lsn) for offset in offsets if offset is not None))
            assert not self.check_failed() - self.damaged

    def misplace(self) -> None:
        """Lose an offset or put it ahead, and have it restored. Before that its table fails."""
        table, offsets = self.rng.choice(TABLES), self.pipeline.offsets.offsets
        if not self.is_known(table):
            return
        if self.rng.random() < 0.5:
            del offsets[table]
        else:
            offsets[table] = replace(offsets[table], lsn=lsn(1_000_000))
        if self.rng.random() < 0.5:
            failed = self.check_failed()
            assert failed <= {table}
        self.pipeline.restore(table)

    def maintain(self, youngest: int = 0) -> None:
        """Trim the logs up to a random age. It must not matter to any later tick, not even to one under way."""
        newest = youngest or next(self.pipeline.plans)
        cutoff = newest if self.trims else self.rng.randrange(1, newest + 1)
        summary = self.pipeline.offsets.summary()
        reported = min(summary.reported_seq, summary.notified_upto)
        maintain(self.pipeline.target, self.pipeline.journal, reported, cutoff)

    def lose_changes(self) -> None:
        """Prune changes that some tables have not applied, before a tick or within it. Those fail until a restart.

        Under a mode that mends gaps they may fail once.
        """
        self.write()
        self.source.capture()
        missing = {table for table in TABLES if self.is_known(table) and self.is_unread(table)}
        missing = set() if self.mends else missing
        if self.rng.random() < 0.5:
            self.source.prune(self.source.captured)
            failed = self.check_failed(missing, "pruned")
        else:
            # Until then the tick can redo pending batches.
            missing -= {planned.table for planned in MemoryBatchLog(self.pipeline.target).history({}).pending}
            with failpoint_action("plan_batch", before=lambda _: self.source.prune(self.source.captured)):
                failed = self.check_failed(missing, "pruned")
        for table in set() if self.mends else failed:
            self.restart(table)

    def change_state(self) -> None:
        """Let another writer change a state, and restart or heal the table. Before that it fails at its next batch."""
        table = self.rng.choice(TABLES)
        if not self.is_known(table):
            return
        gone: Rows = dict.fromkeys([*self.pipeline.target.state[table]][:1])
        added: Rows = {((9,), 1): ((9,), 0)} if table == KEYLESS else {(99,): ((99, 9), 0)}
        self.pipeline.target.put_rows(table, self.rng.choice((gone or added, added, gone | added)), is_own=False)
        if self.rng.random() < 0.5:
            self.write()
            self.source.capture()
            is_healed = table in healed_tables(MemoryJournal(self.pipeline.journal).read(0, 0))
            self.check_failed(() if is_healed or self.mends else {table}, "somebody else")
        if self.rng.random() < 0.5:
            self.restart(table)
        else:
            with self.writing():
                self.pipeline.tick(self.heal(table))
            self.check_manifest()

    def is_restarted(self, table: TableId) -> bool:
        """Return whether the next tick begins a table again."""
        offset = self.pipeline.offsets.get(table)
        return offset is not None and offset.restart

    def is_known(self, table: TableId) -> bool:
        """Return whether the next tick continues with a table, without a snapshot of it from the beginning."""
        offset = self.pipeline.offsets.get(table)
        return offset is not None and not offset.restart

    def is_unread(self, table: TableId) -> bool:
        """Return whether changes of a table are neither applied nor in the change log."""
        target = self.pipeline.target
        upto = max((applied.batch, applied.upto) for applied in target.applied if applied.table == table)[1]
        logged = {event.commit for _, step, event in target.log[table] if step == "changes"}
        return any(change.commit > upto and change.commit not in logged for change in self.source.changes[table])

    def check_failed(self, wanted: Collection[TableId] = (), why: str = "") -> set[TableId]:
        """Do a tick, and return the failed tables. They must include the `wanted` ones, and fail for this reason."""
        errors = {line.table: line.error for line in self.pipeline.tick().failed}
        self.check_manifest()
        assert errors.keys() >= {*wanted}, (errors, wanted)
        wrong = {table: error for table, error in errors.items() if why not in error and table not in self.damaged}
        assert not wrong, wrong
        return {*errors}

    def signals(self) -> list[Signal]:
        """Return a request, or none."""
        if self.rng.random() < 0.6:
            return []
        self.asked += 1
        name = self.rng.choice(TABLES)
        kind = self.rng.choice(("execute", "execute", "execute", "stop", "pause", "resume"))
        type_ = self.rng.choice(("incremental", "blocking", "heal")) if kind == "execute" else "incremental"
        data = f'{{"data-collections": ["{name}"], "type": "{type_}"}}' if kind in ("execute", "stop") else "{}"
        return [Signal(str(self.asked), f"{kind}-snapshot", data, "airflow")]

    def check_manifest(self) -> None:
        """Check that the tables are as the source was at the commit of the newest manifest, if this tick wrote it."""
        manifest = self.pipeline.target.manifest
        if len(manifest) > self.manifests:
            at = number(manifest[-1])
            for table in (table for table in TABLES if not self.is_changed_later(table)):
                assert self.pipeline.images(table) == self.source.images(table, at), f"manifest of commit {at}: {table}"
        self.manifests = len(manifest)

    def is_changed_later(self, table: TableId) -> bool:
        """Return whether another writer has changed a state after the version that the newest manifest names."""
        versions = [applied.state_version for applied in self.pipeline.target.applied if applied.table == table]
        return not all(self.pipeline.target.commits[table][versions[-1] :])

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which the source changes while chunks are read."""
        if self.rng.random() < 0.4:
            return nullcontext()
        return failpoint_action("stage_chunks", before=lambda _: self.write(), after=lambda _: self.write())

    def finish(self) -> None:
        """Capture everything, resume what is paused, and tick until nothing is open."""
        self.source.capture()
        self.pipeline.tick(Signal("last", "resume-snapshot", "{}", "airflow"))
        self.pipeline.tick(*(self.heal(table) for table in sorted(self.damaged)))
        for _ in range(LAST_TICKS):
            self.source.capture()
            result = self.pipeline.tick()
            if not any(one.status == "running" for one in result.snapshots):
                break
        self.source.capture()
        self.pipeline.tick()


def play(seed: int) -> None:
    """Play one history, and compare the target with the source at its end."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.finish()
    world.pipeline.check_target()


@pytest.mark.parametrize("seeds", [range(QUICK), *SLOW], ids=str)
def test_target_equals_the_source_after_any_history(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    play_all(seeds, play, capsys)


def test_a_hung_run_writes_nothing_after_a_restart() -> None:
    """Its batch is abandoned: else its changes would follow the rows of the newer snapshot in the change log."""
    table = TABLES[0]
    pipeline = MemoryPipeline(MemorySource([table]))
    pipeline.tick()
    pipeline.source.commit({(table, 1): 10})
    pipeline.source.capture()
    times = [1]

    def restart(_: object) -> None:
        if times and times.pop():
            pipeline.source.commit({(table, 1): None})
            pipeline.source.capture()
            pipeline.restart(table)
            pipeline.tick()

    with failpoint_action("append_changes", before=restart):
        [failed] = pipeline.run(pipeline.plan()).failed
    assert "given up" in failed.error
    assert pipeline.target.log[table] == []
