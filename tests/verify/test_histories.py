"""Verifications in memory while writers and ticks run: damage is always found, and nothing else is ever reported."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from support.crash import Killed, dying
from support.memory_pipeline import SETTINGS, MemoryPipeline
from support.memory_source import MemorySource, Row, number
from support.memory_verify import MemoryReport
from support.seeds import blocks
from support.verification import verify

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint

TABLES = [TableId("S", name) for name in "AB"]
KEYS = 14
BUSY, QUIET = range(KEYS), range(KEYS, KEYS + 6)
"""Keys that writers change, and keys that they leave alone: only damage of these must be found."""
KILLED_AT: list[Failpoint] = ["append_changes", "merge_state", "commit_batch"]
FAST, HISTORIES, BLOCK = 75, 2100, 75
BLOCKS = [range(at, at + BLOCK) for at in range(0, HISTORIES, BLOCK)]


class World:
    """A filled pipeline to which things happen by chance while it is verified."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.source = MemorySource(TABLES)
        self.pipeline = MemoryPipeline(self.source, replace(SETTINGS, snapshot_group_chunks=self.rng.choice((1, 2, 9))))
        self.source.commit({(table, key): 0 for table in TABLES for key in (*BUSY, *QUIET) if self.rng.random() < 0.8})
        self.pipeline.finish()
        self.haste = self.rng.choice((0.0, 0.02, 0.1))
        self.quick = self.rng.random() < 0.2
        self.report = MemoryReport()
        self.planted: dict[TableId, tuple[int, int, int]] = {}

    def meanwhile(self) -> None:
        """Let something happen, or nothing."""
        if self.rng.random() < self.haste:
            self.rng.choice((self.write, self.write, self.source.capture, self.tick, self.die, self.prune))()

    def write(self) -> None:
        """Commit changes of some busy keys, also ones that move a row to another key."""
        keys = [(self.rng.choice(TABLES), self.rng.choice(BUSY)) for _ in range(self.rng.randrange(1, 5))]
        self.source.commit({key: self.rng.choice((None, self.rng.randrange(100))) for key in keys})

    def tick(self) -> None:
        """Do a tick, sometimes with an incremental snapshot of what is not damaged."""
        signals = []
        undamaged = [table for table in TABLES if table not in self.planted]
        if undamaged and self.rng.random() < 0.3:
            named = f'{{"data-collections": ["{undamaged[0]}"]}}'
            signals = [Signal(f"s{self.rng.random()}", "execute-snapshot", named, "airflow")]
        with suppress(ConcurrentRunError):
            self.pipeline.tick(*signals)

    def die(self) -> None:
        """Let a tick die somewhere."""
        with suppress(Killed), dying(self.rng.choice(KILLED_AT), self.rng.choice(("before", "after"))):
            self.tick()

    def prune(self) -> None:
        """Prune what the tables have applied."""
        offsets = [self.pipeline.offsets.get(table) for table in TABLES]
        self.source.prune(min(number(offset.lsn) for offset in offsets if offset is not None))

    def damage(self, table: TableId) -> None:
        """Let the state lose, gain and change rows of quiet keys, as an error of ours would."""
        rows: dict[Hashable, tuple[Row, int] | None] = {}
        missing = surplus = different = 0
        state = self.pipeline.target.state[table]
        for key in self.rng.sample(QUIET, self.rng.randrange(1, 4)):
            if (key,) not in state:
                rows[key,], surplus = ((key, 5), 0), surplus + 1
            elif self.rng.random() < 0.5:
                rows[key,], missing = None, missing + 1
            else:
                rows[key,], different = ((key, 77), 0), different + 1
        self.pipeline.target.put_rows(table, rows)
        self.planted[table] = missing, surplus, different

    def verify(self) -> Iterable[TableVerdict]:
        """Verify while things happen."""
        return verify(self.pipeline, TABLES, self.meanwhile, self.quick, self.report).values()

    def check(self, verdict: TableVerdict) -> None:
        """Check a verdict against what was planted. Changes that were pruned make a table unverifiable, never wrong."""
        planted = self.planted.get(verdict.table, (0, 0, 0))
        found = (verdict.missing, verdict.surplus, verdict.different)
        if verdict.error:
            assert "cannot be verified now" in verdict.error
            assert all(one <= other for one, other in zip(found, planted, strict=True))
        elif self.quick:
            assert all(one <= other for one, other in zip(found, planted, strict=True))
            if not self.haste:
                assert found[0] - found[1] == planted[0] - planted[1]
        else:
            assert found == planted
            assert verdict.status == ("different" if any(planted) else "equal")


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.slow] if block[0] >= FAST else [], id=f"{block[0]}") for block in BLOCKS],
)
def test_a_verification_finds_planted_damage_and_nothing_else(block: range) -> None:
    statuses = set()
    for seed in block:
        world = World(seed)
        for table in TABLES:
            if world.rng.random() < 0.5:
                world.damage(table)
        for verdict in world.verify():
            world.check(verdict)
            statuses.add(verdict.status)
    assert statuses >= {"equal", "different"}


@pytest.mark.parametrize("seed", blocks(60, fast=20))
def test_a_killed_verification_continues(seed: int) -> None:
    world = World(seed)
    world.damage(TABLES[0])
    for at in range(1, world.rng.randrange(2, 4)):
        with suppress(Killed), dying("append_verified", world.rng.choice(("before", "after")), at):
            world.verify()
    for verdict in world.verify():
        world.check(verdict)
