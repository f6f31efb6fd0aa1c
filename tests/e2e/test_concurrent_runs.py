"""Concurrent runs of one pipeline, at random: they hang at any step and resume, die, are cleared, commit late.

Meanwhile change rows are pruned, tables are restarted and get columns, and snapshots are requested. For each seed, each
manifest's versions equal the source as of its commit. The log is linear, and has each event once. It misses no event
unless its table was restarted. In the end target and source are equal.
`make soak` plays more seeds than the suite does.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.gained import change_gained, gain_with_row
from support.history import HistoryOptions, random_history
from support.log import change_rows, check_log, events_behind, logged_events
from support.operation import Row, TableShape
from support.pieces import some_groups
from support.pipeline import DERBY_FAULT, Pipeline, Replay, use_signal_table
from support.rivals import Run, stepping
from support.seeds import seeds

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, Watermarking
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.failpoint import Failpoint
from airflow_provider_db2cdc.offsets.commit import record_reported
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.long]

ACTS, MOST_HELD, LAST_TICKS = 14, 3, 14
ALTERED = "while this tick was under way"
BEFORE_ALL = Lsn(bytes(16))
MARKS: tuple[Watermarking, ...] = ("read_only", "insert_insert", "insert_delete")
USUAL: list[Failpoint] = [
    "read_history", "plan_batch", "prepare_table", "append_changes", "check_all_read", "find_state_change",
    "merge_state", "commit_batch", "publish_manifest", "read_journal", "commit_offsets",
]  # fmt: skip
"""Steps of each run that has something to do; the other ones are those of snapshots, and of what went wrong."""

STEPS: list[Failpoint] = [
    *USUAL, "read_capture", "count_planned_changes", "prepare_batch_log", "check_newest_plan", "write_journal",
    "check_readable", "fence_writers", "count_ranges", "read_group", "stage_rows", "await_high_mark", "check_counts",
    "fill_state", "append_found_deletes", "merge_abandoned",
]  # fmt: skip


class Rivals:
    """One pipeline, the runs of it that are under way, and what its source has ever captured."""

    def __init__(self, pipeline: Pipeline, replay: Replay, rng: random.Random) -> None:
        self.pipeline, self.replay, self.rng = pipeline, replay, rng
        self.shapes = {TableId(pipeline.schema, shape.name): shape for shape in replay.history.tables}
        self.tables = [*self.shapes]
        self.happened: list[str] = []
        self.runs: list[Run] = []
        self.specs: list[JobSpec] = []
        self.starts: dict[TableId, Lsn] = {}
        self.changes: dict[TableId, set[tuple[Any, ...]]] = {table: set() for table in self.tables}
        self.commits: list[Lsn] = []
        self.gained: dict[TableId, list[str]] = {table: [] for table in self.tables}
        self.is_pruned = False
        self.numbers = itertools.count(1)

    def start(self) -> None:
        """Begin with every table; from there on each change must be in the log."""
        self.look()
        self.starts = self.pipeline.begun(self.tables)

    def act(self) -> None:
        """Choose the next step at random."""
        held = [run for run in self.runs if run.state == "held"]
        acts: list[Callable[[], None]] = [self.write, self.restart, self.prune, self.gain, *[self.clear] * 2]
        acts += [lambda: self.go_on(self.rng.choice(held))] * 2 * len(held)
        self.rng.choice([*acts, *[self.begin] * (4 if len(held) < MOST_HELD else 1)])()

    def write(self) -> None:
        """Commit a few transactions at the source."""
        self.replay.play(self.rng.choice((1, 1, 2, 4)))
        for table, column in ((table, column) for table, columns in self.gained.items() for column in columns):
            if self.rng.random() < 0.5:
                change_gained(self.pipeline, table, column, self.rng)
        self.look()
        self.happened.append(f"write up to {self.commits[-1]}")

    def gain(self) -> None:
        """Have a table get a column; what was captured of it before holds null there."""
        table = self.rng.choice(self.tables)
        at = len(self.gained[table])
        self.look()
        self.changes[table] = {(*row, None) for row in self.changes[table]}
        gain_with_row(self.pipeline, self.shapes[table], f"N{at}", at)
        self.gained[table].append(f"N{at}")
        self.look()
        self.happened.append(f"gain {table.name} N{at} up to {self.commits[-1]}")

    def look(self) -> None:
        """Wait for capture, and keep its change rows: they may be pruned."""
        self.commits.append(self.pipeline.captured())
        for table in self.tables:
            self.changes[table] |= {*map(_plain, change_rows(self.pipeline, table))}

    def begin(self) -> None:
        """Begin a run of its own; now and then one that is asked for a snapshot."""
        if self.rng.random() < 0.7:
            self.write()
        name, signals = f"R{next(self.numbers)}", [self.signal()] if self.rng.random() < 0.3 else []
        self.happened.append(f"begin {name} {[signal.data for signal in signals]}")

        def do() -> None:
            if (spec := self.pipeline.plan(name, signals)) is not None:
                self.specs.append(spec)
                self.do(spec)

        self.runs.append(Run(name, do))
        self.go_on(self.runs[-1])

    def clear(self) -> None:
        """Do one of the runs again, from its job on; it may be under way still."""
        if self.specs:
            spec = self.rng.choice(self.specs[-2:])
            self.happened.append(f"clear {spec.run_id}")
            self.runs.append(Run(f"{spec.run_id} again {next(self.numbers)}", lambda: self.do(spec)))
            self.go_on(self.runs[-1])

    def go_on(self, run: Run) -> None:
        """Let a run reach one of its next steps, to hang or to die there, or reach its end."""
        step = self.rng.choice(self.rng.choice((USUAL, STEPS)))
        when = self.rng.choice(("before", "after"))
        stop, times = "" if self.rng.random() < 0.15 else f"{when} {step}", self.rng.choice((1, 1, 2))
        run.go_on(stop, times, dies := self.rng.random() < 0.35)
        self.happened.append(f"{run.name} {'dies' if dies else 'held'} {stop} {times}: {run.state} {run.error or ''}")

    def do(self, spec: JobSpec) -> None:
        """Do a planned tick, and commit it."""
        self.settle(job.run(spec))

    def settle(self, result: JobResult) -> None:
        """Commit a tick."""
        self.happened += [f"  {line.table.name} fails: {line.error}" for line in result.failed]
        self.pipeline.commit(result)
        record_reported(result, self.pipeline.offsets, is_notified=True)

    def prune(self) -> None:
        """Prune change rows up to one of the last commits. Tables that had not read them are restarted."""
        upto = self.rng.choice(self.commits[-6:])
        offsets = self.pipeline.offsets.all()
        for table in self.tables:
            if offsets[table].lsn < upto:
                self.starts.pop(table, None)
        faults.prune(self.pipeline.writer, upto=upto.raw)
        self.is_pruned = True
        self.happened.append(f"prune up to {upto}")

    def restart(self) -> None:
        """Restart a random table."""
        self.restart_of(self.rng.choice(self.tables))

    def restart_of(self, table: TableId) -> None:
        """Restart this table."""
        self.starts.pop(table, None)
        self.pipeline.restart(table)
        self.happened.append(f"restart {table.name}")

    def signal(self) -> Signal:
        """Return a request for a snapshot of some tables."""
        chosen = self.rng.sample(self.tables, self.rng.randint(1, len(self.tables)))
        data = {"data-collections": [*map(str, chosen)], "type": self.rng.choice(["incremental", "blocking"])}
        return Signal(f"ask{next(self.numbers)}", "execute-snapshot", json.dumps(data), "airflow")

    def finish(self) -> None:
        """Resume hung runs, and run ticks until the pipeline is idle. Restart tables that cannot continue."""
        while held := [run for run in self.runs if run.state == "held"]:
            self.rng.choice(held).go_on()
        for at in range(LAST_TICKS):
            spec = self.pipeline.plan()
            if spec is None:
                return
            result = job.run(spec)
            self.settle(result)
            for line in result.failed if at % 4 == 3 else ():
                is_altered = ALTERED in line.error and self.gained[line.table]
                assert self.is_pruned or is_altered or DERBY_FAULT in line.error, (line.error, self.happened)
                self.restart_of(line.table)
        raise AssertionError(f"it does not come to an end: {self.pipeline.offsets.summary()} {self.happened}")

    def expected(self, table: TableId, at: Lsn) -> set[Row]:
        """Return what the source held at a commit, by its change rows: its first rows are captured, too."""
        rows: Counter[Row] = Counter()
        for commit, _, operation, *image in self.changes[table]:
            if Lsn(commit) <= at:
                rows[tuple(image)] += 1 if operation == "I" else -1
        assert {*rows.values()} <= {0, 1}
        return {image for image, count in rows.items() if count}

    def check_manifests(self) -> None:
        """Each manifest names versions that are the source as of its commit."""
        for row in load(self.pipeline.spark, Layout(self.pipeline.target).internal("manifest")).collect():
            at = Lsn.parse(row["frontier"])
            for table in self.tables:
                state = load(self.pipeline.spark, Layout(self.pipeline.target).state(table), row["tables"][str(table)])
                kept = [name for name in state.columns if not name.startswith("__")]
                later = (None,) * (len(self.shapes[table].columns) + len(self.gained[table]) - len(kept))
                rows = {(*found, *later) for found in state.select(*(f"`{name}`" for name in kept)).collect()}
                assert rows == self.expected(table, at), (f"manifest of {at}", table, self.happened)

    def check_events(self, table: TableId, shape: TableShape) -> None:
        """The log holds no event twice, and each one since the table began."""
        logged, rows = logged_events(self.pipeline, table), self.changes[table]
        assert logged <= events_behind(rows, len(shape.key), BEFORE_ALL), self.happened
        if table in self.starts:
            assert logged == events_behind(rows, len(shape.key), self.starts[table]), self.happened


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else value for value in row)


@pytest.mark.parametrize("seed", seeds())
def test_target_equals_source_in_the_end_after_hung_and_cleared_runs(
    new_pipeline: Callable[..., Pipeline], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    if seed % 2:
        monkeypatch.setattr("airflow_provider_db2cdc.cdc.types.SORTED_ALIKE", set())
    rng = random.Random(f"rivals {seed}")
    pipeline = new_pipeline(
        **{
            "incremental.snapshot.chunk.size": rng.choice((8, 15, 40)),
            **some_groups(rng, monkeypatch),
            "snapshot.budget.s": rng.choice((0, 900)),
            "snapshot.mode": rng.choice(("initial", "when_needed", "when_needed", "when_needed")),
            "incremental.snapshot.watermarking.strategy": rng.choice(MARKS),
        }
    )
    use_signal_table(pipeline)
    history = random_history(seed, HistoryOptions(tables=2, transactions=300, lanes=1, width=30))
    replay = Replay(pipeline, history)
    replay.prepare()
    rivals = Rivals(pipeline, replay, rng)
    rivals.start()
    with stepping(STEPS):
        for _ in range(ACTS):
            rivals.act()
        rivals.finish()
    for run in rivals.runs:
        assert run.error is None or isinstance(run.error, Db2CdcError), (run.error, rivals.happened)
    for table, shape in rivals.shapes.items():
        assert pipeline.rows(table) == pipeline.source_rows(table), rivals.happened
        assert pipeline.rows(table) == rivals.expected(table, rivals.commits[-1])
        check_log(pipeline, table)
        rivals.check_events(table, shape)
    rivals.check_manifests()
