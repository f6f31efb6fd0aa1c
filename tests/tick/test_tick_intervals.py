"""Ticks that end at their data intervals: in order, late, in parallel, and next to snapshots and deaths of runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from support.crash import Killed, killed, once
from support.memory_pipeline import SETTINGS, MemoryPipeline, filled
from support.memory_source import MemorySource, lsn, number
from support.memory_target import MemoryBatchLog
from support.request import execute
from support.seeds import play_all

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, failpoint_action

A, B, KEYLESS = (TableId("S", name) for name in "ABC")
TABLES = [A, B, KEYLESS]
KILLED_AT: list[Failpoint] = ["plan_batch", "append_changes", "merge_state", "commit_batch", "write_journal"]
QUICK, HISTORIES, STEPS = 100, 2000, 14
SLOW = [pytest.param(range(at, at + 100), marks=pytest.mark.slow) for at in range(QUICK, HISTORIES, 100)]


@pytest.fixture
def pipeline() -> MemoryPipeline:
    """Two filled tables, and six commits since then: of A, of B, of A and so on."""
    pipeline = filled(A, B, rows=1, end_at="interval")
    pipeline.passed()
    for value in range(6):
        pipeline.change((A, B)[value % 2], 0, value)
    return pipeline


def pulled(pipeline: MemoryPipeline) -> list[int]:
    """Return the commits of all pulled changes, in the order of their batches."""
    logged = [(batch, number(event.commit)) for log in pipeline.target.log.values() for batch, _, event in log]
    first = min(number(planned.upto) for planned in pipeline.target.planned)
    return sorted({commit for _, commit in sorted(logged) if commit > first})


def stands_at(pipeline: MemoryPipeline) -> list[int]:
    offsets = [pipeline.offsets.get(table) for table in (A, B)]
    return [0 if offset is None else number(offset.lsn) for offset in offsets]


def test_run_carries_the_commits_of_its_interval(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    result = pipeline.passed(end=begin + 3)
    assert (pulled(pipeline), stands_at(pipeline)) == ([begin + 1, begin + 2, begin + 3], [begin + 3] * 2)
    assert result.interval is not None
    assert [number(lsn) for lsn in pipeline.target.manifest][-1] == begin + 3, "all tables are at one commit"
    pipeline.passed(end=begin + 6)
    assert pulled(pipeline) == [*range(begin + 1, begin + 7)]


def test_late_run_finds_its_commits_applied(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    pipeline.passed(end=begin + 5)
    result = pipeline.passed(end=begin + 2)
    assert {line.status for line in result.tables} == {"unchanged"}
    assert (pulled(pipeline), stands_at(pipeline)) == ([*range(begin + 1, begin + 6)], [begin + 5] * 2)


def test_run_without_an_interval_pulls_nothing(pipeline: MemoryPipeline) -> None:
    before = stands_at(pipeline)
    pipeline.passed()
    assert (pulled(pipeline), stands_at(pipeline)) == ([], before)


def test_run_without_an_interval_pulls_what_a_snapshot_needs(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    with once("stage_chunks", "after", lambda: pipeline.change(B, 0, 7)):
        pipeline.passed(execute("ask", A))
    assert [*map(number, {event.commit for _, step, event in pipeline.target.log[B] if step == "changes"})] == []
    assert stands_at(pipeline) == [begin + 7, begin], "the other table is not moved to the snapshot's mark"
    pipeline.passed(end=begin + 4)
    assert stands_at(pipeline) == [begin + 7, begin + 4]


def test_table_at_the_capture_position_is_not_moved_to_a_high_mark(pipeline: MemoryPipeline) -> None:
    """The interval ends at the capture position. What is committed during the snapshot is of the next interval."""
    end = pipeline.source.commits
    with once("stage_chunks", "after", lambda: pipeline.change(B, 0, 7)):
        pipeline.tick(execute("ask", A), end=end)
    assert stands_at(pipeline) == [end + 1, end]


def test_lost_offset_is_recovered_without_later_commits(pipeline: MemoryPipeline) -> None:
    """The plan takes the table for a new one. Only the target knows its position."""
    begin = pipeline.source.commits - 6
    pipeline.mode = MODES["recovery"]
    del pipeline.offsets.offsets[A]
    pipeline.passed(end=begin + 2)
    assert stands_at(pipeline) == [begin + 2, begin + 2]


def test_gap_is_reported_by_a_run_without_an_interval(pipeline: MemoryPipeline) -> None:
    pipeline.source.prune()
    assert "pruned" in pipeline.tick().failed[0].error


@pytest.mark.parametrize("is_committed", [True, False])
def test_overtaken_run_has_nothing_to_do(
    pipeline: MemoryPipeline, is_committed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = pipeline.source.commits - 6
    early, late = pipeline.plan(end=begin + 2), pipeline.plan(end=begin + 5)
    applied = pipeline.run(late)
    if is_committed:
        pipeline.commit(applied)
    result = pipeline.run(early)
    assert "Run run-3 was planned after this one" in capsys.readouterr().out
    pipeline.commit(result)
    assert {(line.status, line.creates + line.deletes) for line in result.tables} == {("unchanged", 0)}
    if not is_committed:
        pipeline.commit(applied)
    assert (pulled(pipeline), stands_at(pipeline)) == ([*range(begin + 1, begin + 6)], [begin + 5] * 2)


@pytest.mark.parametrize("kind", ["partly applied", "restarted", "signal"])
def test_overtaken_run_with_work_is_refused(pipeline: MemoryPipeline, kind: str) -> None:
    begin = pipeline.source.commits - 6
    if kind == "restarted":
        pipeline.restart(A)
    early = pipeline.plan([execute("ask", A)] if kind == "signal" else [], end=begin + 4)
    pipeline.tick(end=begin + 2 if kind == "partly applied" else begin + 5)
    with pytest.raises(ConcurrentRunError, match="clear all of its tasks"):
        pipeline.run(early)


class World:
    """A pipeline whose runs end at intervals, and to which things happen by chance.

    `due` are the ends of the intervals whose runs are still to come.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        budget_s = self.rng.choice((0.0, 900.0))
        source = MemorySource(TABLES, keyless={KEYLESS})
        self.pipeline = MemoryPipeline(source, replace(SETTINGS, snapshot_budget_s=budget_s, end_at="interval"))
        self.due: list[int] = []
        self.asked = 0
        self.owned = 0

    def step(self) -> None:
        """Let one thing happen."""
        runs = (self.run_next, self.run_next, self.run_late, self.run_parallel, self.run_without_interval, self.die)
        self.rng.choice((self.write, self.write, self.write, self.end_interval, *runs, self.restart))()

    def write(self) -> None:
        """Commit changes of some keys."""
        keys = [(self.rng.choice(TABLES), self.rng.randrange(9)) for _ in range(self.rng.randrange(1, 4))]
        self.pipeline.source.commit({key: self.rng.choice((None, self.rng.randrange(50))) for key in keys})

    def end_interval(self) -> None:
        """End an interval after some commit since the last one, and let capture pass it."""
        source = self.pipeline.source
        source.capture()
        self.due.append(self.rng.randint(max([1, *self.due]), source.captured))

    def run_next(self) -> None:
        """Run the first interval that is due."""
        if self.due:
            self.tick(self.due.pop(0))

    def run_late(self) -> None:
        """Run any interval that is due. The ones before it come later."""
        if self.due:
            self.tick(self.due.pop(self.rng.randrange(len(self.due))))

    def run_without_interval(self) -> None:
        """Do a tick that only carries snapshots, often with a signal."""
        self.tick(None, *self.signals())

    def run_parallel(self) -> None:
        """Plan two intervals, then apply and commit them in any order. A refused run is cleared later."""
        if len(self.due) < 2:
            return
        ends = [self.due.pop(0) for _ in range(2)]
        specs = [self.pipeline.plan(self.signals(), end) for end in self.rng.sample(ends, 2)]
        results = []
        for spec in self.rng.sample(specs, 2):
            before = self.pulls()
            with suppress(ConcurrentRunError):
                results.append(self.pipeline.run(spec))
            self.check_pulls(spec, before)
        for result in self.rng.sample(results, len(results)):
            self.pipeline.commit(result)

    def die(self) -> None:
        """Let a run die somewhere, and perhaps its retry do the rest."""
        if not self.due:
            return
        spec, calls = self.pipeline.plan(self.signals(), self.due.pop(0)), self.rng.randrange(1, 4)

        def die(reached: object) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                raise Killed

        with (
            suppress(Killed),
            failpoint_action(self.rng.choice(KILLED_AT), **{self.rng.choice(("before", "after")): die}),
        ):
            self.pipeline.commit(self.pipeline.run(spec))
        if self.rng.random() < 0.5:
            with suppress(ConcurrentRunError):
                self.pipeline.commit(self.pipeline.run(spec))

    def restart(self) -> None:
        """Ask for a restart, seldom."""
        if self.rng.random() < 0.3:
            self.pipeline.restart(self.rng.choice(TABLES))

    def signals(self) -> list[Signal]:
        """Return a request for a snapshot, or none."""
        self.asked += 1
        return [execute(str(self.asked), self.rng.choice(TABLES))] if self.rng.random() < 0.3 else []

    def tick(self, end: int | None, *signals: Signal) -> None:
        """Do one tick while the source continues to change, and check what it has carried."""
        spec, before = self.pipeline.plan(signals, end), self.pulls()
        with failpoint_action("stage_chunks", before=lambda _: self.write(), after=lambda _: self.write()):
            result = self.pipeline.run(spec)
        assert not result.failed, result.failed
        self.check_pulls(spec, before)
        self.pipeline.commit(result)
        self.check_states(result)

    def pulls(self) -> int:
        return len(self.pipeline.target.planned)

    def check_pulls(self, spec: JobSpec, before: int) -> None:
        """Check that a run has pulled nothing beyond its interval, except for the tables that it snapshotted."""
        own = [planned for planned in self.pipeline.target.planned[before:] if planned.run_id == spec.run_id]
        published = {planned.table for planned in own if planned.chunk_range is not None}
        new = {task.table for task in spec.tables if task.stored_lsn is None or task.action != "pull"}
        asked = {TableId("S", name) for name in "ABC" for signal in spec.signals if f"S.{name}" in signal.data}
        last = spec.interval_end
        for planned in own:
            if planned.table not in published | new | asked:
                assert last is not None, "it has no interval"
                assert planned.upto <= last, (planned, last)

    def check_states(self, result: JobResult) -> None:
        """Check that each complete table is as the source was at the table's offset."""
        open_tables = {table for snapshot in result.snapshots for table in snapshot.open_table_ids}
        for table in {line.table for line in result.tables} - open_tables:
            offset = self.pipeline.offsets.get(table)
            if offset is not None and not offset.restart:
                at = number(offset.lsn)
                assert self.pipeline.images(table) == self.pipeline.source.images(table, at), f"{table} at commit {at}"


def play(seed: int) -> None:
    """Play one history, run the intervals that are due and one more, and compare the target with the source."""
    world = World(seed)
    pipeline, source = world.pipeline, world.pipeline.source
    for _ in range(STEPS):
        world.step()
    while world.due:
        world.run_late()
    for _ in range(40):
        source.capture()
        if not any(snapshot.open_table_ids for snapshot in pipeline.passed().snapshots):
            break
    source.capture()
    world.tick(source.captured)
    world.tick(source.captured)
    pipeline.check_target()
    assert MemoryBatchLog(pipeline.target).history({}).pending == ()


@pytest.mark.parametrize("seeds", [range(QUICK), *SLOW], ids=str)
def test_every_event_is_in_one_run_after_any_history(seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    play_all(seeds, play, capsys)


def test_killed_run_is_finished_by_the_run_of_the_next_interval(pipeline: MemoryPipeline) -> None:
    begin = pipeline.source.commits - 6
    with killed("merge_state", "before"):
        pipeline.run(pipeline.plan(end=begin + 2))
    pipeline.passed(end=begin + 4)
    assert pulled(pipeline) == [*range(begin + 1, begin + 5)]
    assert lsn(begin + 2) in {planned.upto for planned in pipeline.target.planned}, "its own batch is redone"
