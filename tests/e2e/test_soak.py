"""Everything at once, at random: snapshots of all kinds, stops, pauses, restarts, kills, old runs that are cleared.

A writer works during each seed. Every third seed has registrations that are inactive for a while. Every third one has
tables that are loaded without capture, and every other odd one has tables that get columns.

For each seed the log is linear while it grows, and has each event once. In the end target and source are equal.
`make soak` plays them.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pytest
from support.crash import Killed, dying
from support.history import HistoryOptions, random_history
from support.log import captured_events, check_log, logged_events
from support.pieces import some_groups
from support.pipeline import DERBY_FAULT, Pipeline, Replay, use_signal_table
from support.seeds import seeds
from support.writing import in_turn, writing

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, Watermarking
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, TickFailedError
from airflow_provider_db2cdc.failpoint import Failpoint, When
from airflow_provider_db2cdc.offsets.commit import record_reported
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.long]

STEPS, LAST_TICKS = 5, 12
BEFORE_KEYS = -100
"""Before all keys of the histories."""

INTERRUPTIONS = 400
EXPECTED = (DERBY_FAULT, "registered in state 'S'")
ALTERED, TICKS_BESIDE_COLUMNS = "while this tick was under way", 24
BEFORE_ALL = Lsn(bytes(16))
MARKS: tuple[Watermarking, ...] = ("read_only", "insert_insert", "insert_delete")
DEATHS: list[Failpoint] = [
    "stage_rows",
    "plan_batch",
    "append_changes",
    "fill_state",
    "merge_state",
    "commit_batch",
    "publish_manifest",
    "write_journal",
    "put_offsets",
    "put_summary",
]


class Soak:
    """One pipeline under way, and what chance makes of it."""

    def __init__(
        self, pipeline: Pipeline, keys: dict[TableId, tuple[str, ...]], rng: random.Random, gains: bool, loads: bool
    ) -> None:
        self.pipeline, self.tables, self.keys, self.rng = pipeline, [*keys], keys, rng
        self.expected = (*EXPECTED, ALTERED) if gains else EXPECTED
        self.loads, self.mends = loads, dict[TableId, str]()
        self.loaded: dict[str, tuple[TableId, int]] = {}
        self.ids = itertools.count(1)
        self.happened: list[str] = []
        self.starts: dict[TableId, Lsn] = {}
        self.runs: dict[str, tuple[JobSpec, JobResult]] = {}

    def step(self) -> None:
        """Do one tick, with what is asked and what goes wrong in it."""
        signals = [self.signal() for _ in range(self.rng.choice((0, 1, 1, 2)))]
        if self.rng.random() < 0.15:
            self.restart(self.rng.choice(self.tables))
        if self.loads and self.rng.random() < 0.5:
            signals.append(self.load(self.rng.choice(self.tables)))
        spec = self.pipeline.plan(signals=signals)
        if spec is None:
            return
        dies = self.rng.random() < 0.5
        with self.death() if dies else nullcontext(), suppress(Killed):
            self.do(spec)
        if dies and self.rng.random() < 0.5:
            self.happened.append("retry")
            self.do(spec)
        elif dies and self.rng.random() < 0.5:
            self.restart(self.rng.choice(self.tables))

    def load(self, table: TableId) -> Signal:
        """Change a table without capture, and return the request that repairs it.

        One row was captured right before with an A of 0, and is never changed again. It is the first row by its key.
        The rows after the first group are read when the changes captured by then are pulled.
        """
        at, key = next(self.ids), self.keys[table]
        first = BEFORE_KEYS - at
        insert = f"INSERT INTO {table} ({', '.join(key)}, A) VALUES"
        loaded, captured = (", ".join([str(value)] * len(key)) for value in (2000 + at, first))
        self.pipeline.execute(f"{insert} ({captured}, 0)")
        self.pipeline.writer.commit()
        self.pipeline.unseen(
            table,
            f"DELETE FROM {table} WHERE {key[-1]} BETWEEN {at} AND {at + 3}",
            f"UPDATE {table} SET A = {at} WHERE {key[-1]} > {self.rng.randint(0, 30)}",
            f"{insert} ({loaded}, {at})",
            f"UPDATE {table} SET A = {at} WHERE {key[-1]} = {first}",
        )
        self.happened.append(f"load {at} {table.name}")
        self.loaded[f"mend{at}"] = (table, first)
        return self.mend(table, f"mend{at}")

    def check_loaded(self) -> None:
        """Check that no row from before a load remains once its snapshot is done. Later snapshots would hide that."""
        for one in self.outcomes():
            if one.status == "done" and one.id in self.loaded:
                table, at = self.loaded.pop(one.id)
                stale = self.pipeline.state(table).where(f"A = 0 AND {self.keys[table][-1]} = {at}")
                assert stale.isEmpty(), (one.id, self.happened)

    def mend(self, table: TableId, id_: str) -> Signal:
        """Return a request for a whole table."""
        self.mends[table] = id_
        return Signal(id_, "execute-snapshot", json.dumps({"data-collections": [str(table)]}), "airflow")

    def clear(self) -> None:
        """Repeat an earlier run, from its job on or only its commit, as if its tasks were cleared in Airflow.

        A commit has the result of the newest try of its run's job.
        """
        if not self.runs or self.rng.random() < 0.5:
            return
        spec, result = self.rng.choice([*self.runs.values()])
        if self.rng.random() < 0.5:
            self.happened.append(f"commit of {spec.run_id} again")
            self.settle(result)
        else:
            self.happened.append(f"job of {spec.run_id} again")
            with suppress(ConcurrentRunError):
                self.do(spec)

    def suspend(self) -> None:
        """Have a plan find a table's inactive registration. Its job may succeed or not."""
        if self.rng.random() < 0.5:
            return
        table = self.rng.choice(self.tables)
        self.starts.pop(table, None)
        faults.set_state(self.pipeline.writer, table.schema, table.name, "S")
        time.sleep(self.rng.random())
        try:
            spec = self.pipeline.plan()
        except TickFailedError:
            spec = None
        self.happened.append(f"inactive {table.name} {spec and spec.run_id}")
        if spec is not None and self.rng.random() < 0.5:
            with self.death() if self.rng.random() < 0.5 else nullcontext(), suppress(Killed):
                self.do(spec)
        faults.set_state(self.pipeline.writer, table.schema, table.name, "A")

    def do(self, spec: JobSpec) -> None:
        """Do a planned tick, and commit it."""
        result = job.run(spec)
        self.runs[spec.run_id] = (spec, result)
        self.settle(result)

    def settle(self, result: JobResult) -> None:
        """Commit a tick; nothing fails but what the sandbox itself breaks, and tables that the plan refused."""
        failed = [line.error for line in result.failed if not any(text in line.error for text in self.expected)]
        assert not failed, (failed, self.happened)
        self.pipeline.commit(result)
        record_reported(result, self.pipeline.offsets, is_notified=True)
        self.check_loaded()

    def finish(self) -> None:
        """Let open snapshots end, and repair loaded tables if their snapshot was stopped or refused."""
        # Twice, because the first tick may still read pauses from the signal table.
        self.settle_all([Signal(f"resume{at}", "resume-snapshot", "{}", "airflow") for at in range(2)])
        done = {one.id for one in self.outcomes() if one.status == "done"}
        left = [table for table, id_ in self.mends.items() if id_ not in done]
        self.happened.append(f"not mended {left}")
        self.settle_all([self.mend(table, f"again {table}") for table in left])

    def settle_all(self, signals: list[Signal]) -> None:
        """Run ticks, each with one of the signals, until the pipeline is idle. Fail if it never is."""
        for at in range(LAST_TICKS):
            spec = self.pipeline.plan(signals=signals[at : at + 1])
            if spec is None:
                assert [one for one in self.outcomes() if one.status == "accepted"] == [], self.happened
                return
            self.do(spec)
        raise AssertionError(f"it does not come to an end: {self.pipeline.offsets.summary()} {self.happened}")

    def outcomes(self) -> list[SignalOutcome]:
        """Return what became of the newest signals."""
        return [*self.pipeline.offsets.summary().outcomes]

    def restart(self, table: TableId) -> None:
        """Restart a table."""
        self.happened.append(f"restart {table.name}")
        self.starts.pop(table, None)
        self.pipeline.restart(table)

    def signal(self) -> Signal:
        """Return a request of any kind, of some tables."""
        kind = self.rng.choice(["execute-snapshot"] * 4 + ["stop-snapshot", "pause-snapshot", "resume-snapshot"])
        chosen = self.rng.sample(self.tables, self.rng.randint(1, len(self.tables)))
        data: dict[str, Any] = {"data-collections": [str(table) for table in chosen]}
        if kind in ("pause-snapshot", "resume-snapshot"):
            data = {}
        if kind == "execute-snapshot":
            data["type"] = self.rng.choice(["incremental", "incremental", "blocking"])
            if self.rng.random() < 0.3:
                data["additional-conditions"] = [{"data-collection": str(chosen[0]), "filter": "A > 0"}]
            if self.rng.random() < 0.3:
                # Refused of the tables whose key has two columns, G and N.
                data["surrogate-key"] = "ID"
        self.happened.append(f"{kind} {data.get('type', '')} {[table.name for table in chosen]}")
        return Signal(f"ask{next(self.ids)}", kind, json.dumps(data), "airflow")

    def death(self) -> AbstractContextManager[Any]:
        """Return a block in which the process dies at a step if it reaches the step."""
        whens: tuple[When, ...] = ("before", "after")
        step, when, at = self.rng.choice(DEATHS), self.rng.choice(whens), self.rng.choice((1, 1, 2, 3))
        self.happened.append(f"death {when} {step} {at}")
        return dying(step, when, at)


def interruptions(signals: str, rng: random.Random) -> list[list[str]]:
    """Return transactions that pause, and mostly resume soon: while a group is being read, published, or in between."""
    kinds = (["pause-snapshot", "resume-snapshot"], ["resume-snapshot"], [""], [""])
    told = [kind for _ in range(INTERRUPTIONS) for kind in rng.choice(kinds)]
    insert = "INSERT INTO {} VALUES ('mid{}', '{}', '{{}}')"
    return [[insert.format(signals, at, kind)] if kind else [] for at, kind in enumerate(told)]


@pytest.mark.parametrize("seed", seeds())
def test_target_equals_source_in_the_end_whatever_happens(
    new_pipeline: Callable[..., Pipeline], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    if seed % 2:
        # As if Spark sorted keys unlike the source: then missing rows are searched at a table's end.
        monkeypatch.setattr("airflow_provider_db2cdc.cdc.types.SORTED_ALIKE", set())
    rng = random.Random(seed)
    pipeline = new_pipeline(
        **{
            "incremental.snapshot.chunk.size": rng.choice((8, 15, 40)),
            **some_groups(rng, monkeypatch),
            "snapshot.budget.s": rng.choice((0, 0, 5, 900)),
            "incremental.snapshot.watermarking.strategy": rng.choice(MARKS),
        }
    )
    is_suspended = seed % 3 == 0
    if is_suspended:
        pipeline.properties = {**pipeline.properties, "snapshot.mode": "when_needed"}
    signals = use_signal_table(pipeline)
    options = HistoryOptions(tables=2, transactions=3000, lanes=1, width=30)
    history = random_history(seed, options)
    # Each fifth seed's updates come as one row with a before image.
    images = seed % 5 == 0
    registration = {"update_as": "U", "before_img_prefix": "X"} if images else {}
    Replay(pipeline, history, registration=registration).prepare()
    pipeline.captured()
    keys = {TableId(pipeline.schema, shape.name): shape.key for shape in history.tables}
    tables = [*keys]
    gains, loads = seed % 4 == 1, seed % 3 == 1
    soak = Soak(pipeline, keys, rng, gains, loads)
    whole = pipeline.properties
    if loads:
        # So that captured changes of before a load are still to be pulled when its snapshot is asked for.
        pipeline.properties = {**whole, "max.rows.per.batch": rng.choice((5, 20))}
    with writing(pipeline, seed, options, gains=gains):
        soak.starts = pipeline.begun(tables, TICKS_BESIDE_COLUMNS) if gains else pipeline.begun(tables)
        with in_turn(pipeline, interruptions(signals, rng), pause_s=1.5):
            for _ in range(STEPS):
                soak.step()
                soak.clear()
                if is_suspended:
                    soak.suspend()
    pipeline.captured()
    pipeline.properties = whole
    soak.finish()
    for table in tables:
        assert pipeline.rows(table) == pipeline.source_rows(table), soak.happened
        check_log(pipeline, table)
        logged = logged_events(pipeline, table)
        assert logged <= captured_events(pipeline, table, keys[table], BEFORE_ALL, images), soak.happened
        if table in soak.starts:
            assert logged == captured_events(pipeline, table, keys[table], soak.starts[table], images), soak.happened
