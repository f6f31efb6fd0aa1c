"""A pipeline in memory to which things happen by chance, with the checks after each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from random import Random

from support.crash import Killed
from support.memory_maintenance import maintain
from support.memory_pipeline import SETTINGS, MemoryPipeline
from support.memory_source import MemorySource, number
from support.request import execute

from airflow_provider_db2cdc.cdc.event.change_event import RowChange
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import begins
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.offsets.signal import act_on_offset_signals
from histories.airflow import Airflow
from histories.consumer import Consumer
from histories.copies import AirflowCopy, TargetCopy
from histories.damage import Damage, part_of
from histories.failures import check_failures
from histories.oracle import Oracle, event_id

TABLES = [TableId("S", name) for name in "ABC"]
KEYLESS = TABLES[2]
KEYS, LAST_TICKS = 10, 40
POINTS: tuple[Failpoint, ...] = (
    "read_history", "check_newest_plan", "read_journal", "check_readable", "prepare_table", "refill_state",
    "plan_batch", "append_changes", "merge_state", "commit_batch", "publish_manifest", "write_journal",
    "read_signals", "catch_up", "find_chunk_bounds", "stage_chunks", "await_high_mark", "plan_chunks",
    "check_counts", "publish_group", "settle_table_snapshot", "after_group", "commit_offsets",
    "put_summary", "put_offsets",
)  # fmt: skip
WRITES: tuple[Failpoint, ...] = ("append_changes", "merge_state", "commit_batch", "plan_batch", "put_offsets")


class World:
    """A pipeline, its source, and what a history has done to them.

    `waiting` are plans that are carried out later, `uncommitted` results that are committed later. `gapped` are tables
    whose changes were lost before they were read. Registrations of `interrupted` tables were inactive for a while, and
    `interruptions` has how often.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.source = MemorySource(TABLES, keyless={KEYLESS})
        settings = replace(
            SETTINGS,
            # Without a budget each tick publishes one group of a snapshot.
            snapshot_budget_s=self.rng.choice((0.0, 900.0)),
            snapshot_group_chunks=self.rng.choice((1, 2, 9)),
            end_at=self.rng.choice(("fence", "interval")),
            gap_repair=self.rng.choice(("heal", "snapshot")),
        )
        self.mends = self.rng.random() < 0.25
        self.pipeline = MemoryPipeline(self.source, settings, MODES["when_needed" if self.mends else "initial"])
        # As much as possible is trimmed after each step, or something now and then.
        self.trims = self.rng.random() < 0.2
        self.consumer = Consumer()
        self.airflow = Airflow(self.pipeline.offsets, lambda *event: self.consumer.read(self.pipeline.target, *event))
        self.happened: dict[TableId, list[RowChange]] = {table: [] for table in TABLES}
        self.damages = {table: Damage() for table in TABLES}
        self.oracle = Oracle(self.pipeline, self.happened, self.damages)
        self.waiting: list[JobSpec] = []
        self.uncommitted: list[JobResult] = []
        self.gapped: set[TableId] = set()
        self.interruptions: Counter[TableId] = Counter()
        self.interrupted: set[TableId] = set()
        self.target_copies: list[TargetCopy] = []
        self.airflow_copies: list[AirflowCopy] = []
        self.asked = 0
        self.begun = dict.fromkeys(TABLES, 0)

    @property
    def chosen(self) -> set[TableId]:
        """The tables that the pipeline replicates now."""
        return {*(self.pipeline.tables or TABLES)}

    def chance(self, probability: float) -> bool:
        """Return True by chance."""
        return self.rng.random() < probability

    def id_(self) -> str:
        """Return the id of a new signal."""
        self.asked += 1
        return f"ask-{self.asked}"

    def write(self) -> None:
        """Commit changes of some keys."""
        keys = [(self.rng.choice(TABLES), self.rng.randrange(KEYS)) for _ in range(self.rng.randrange(1, 5))]
        self._commit({key: self.rng.choice((None, self.rng.randrange(100))) for key in keys})

    def write_to(self, table: TableId) -> None:
        """Commit a row of one table."""
        self._commit({(table, KEYS): self.rng.randrange(100)})

    def load(self, table: TableId) -> None:
        """Change a row without a change row, as LOAD does. The state is wrong until a snapshot of the table."""
        key = self.rng.randrange(KEYS)
        before = self.source.images(table)
        self.source.load(table, key, self.rng.choice((None, self.rng.randrange(100))))
        after = self.source.images(table)
        self.damages[table].parts |= {part_of(row) for row in ((after - before) + (before - after))}

    def _commit(self, values: Mapping[tuple[TableId, int], int | None]) -> None:
        with self.source.lock:
            self.source.commit(values)
            for table, changes in self.happened.items():
                rows = reversed(self.source.changes[table])
                changes += [row for row in rows if number(row.commit) == self.source.commits]

    def signals(self) -> list[Signal]:
        """Return a request of a snapshot, or none."""
        if self.chance(0.6):
            return []
        table = self.rng.choice(TABLES)
        kind = self.rng.choice(("execute", "execute", "execute", "stop", "pause", "resume"))
        if kind == "execute":
            return [execute(self.id_(), table, type=self.rng.choice(("incremental", "blocking", "heal")))]
        data = f'{{"data-collections": ["{table}"]}}' if kind == "stop" else "{}"
        return [Signal(self.id_(), f"{kind}-snapshot", data, "airflow")]

    def heals(self, tables: Collection[TableId]) -> list[Signal]:
        """Return a request for a heal of each of these tables."""
        return [execute(self.id_(), table, type="heal") for table in sorted(tables)]

    def request(self, action: str, table: TableId) -> None:
        """Have an operator request something of an offset. A retry of the request changes nothing."""
        if table in self.pipeline.offsets.summary().tables:
            signal = Signal(self.id_(), action, f'{{"data-collections": ["{table}"]}}', "airflow")
            for _ in range(self.rng.choice((1, 2))):
                assert act_on_offset_signals([signal], self.pipeline.offsets) == []

    def restart(self, table: TableId) -> None:
        """Restart a table. Lost events of its log could not be found after that."""
        if not self.damages[table].lost:
            self.request("restart-table", table)

    def end(self) -> int | None:
        """Return the end of a data interval: mostly the newest captured commit, sometimes an earlier one, or none."""
        if self.pipeline.settings.end_at == "fence" or self.chance(0.2):
            return None
        return self.rng.choice((self.source.captured, self.source.captured, self.rng.randint(1, self.source.captured)))

    def plan(self) -> JobSpec:
        """Plan a tick, often with a signal."""
        return self.pipeline.plan(self.signals(), self.end())

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which the source may change while chunks are read."""
        if self.chance(0.5):
            return nullcontext()
        return failpoint_action("stage_chunks", before=lambda _: self.write(), after=lambda _: self.write())

    def run(self, spec: JobSpec, also: Collection[str] = ()) -> JobResult:
        """Carry out a plan. Tables may only fail for a reason that this history has given, or for `also`."""
        result = self.pipeline.run(spec)
        check_failures(self, spec, result, also)
        return result

    def is_given_up(self, table: TableId) -> bool:
        """Return whether a restart died after it gave up a batch, and an older run's late commit took its request."""
        fence = self.pipeline.target.fences.get(table, 0)
        return any(planned.table == table and planned.batch <= fence for planned in self.oracle.history().pending)

    def commit(self, result: JobResult) -> None:
        """Commit a result now or later. The task may be marked failed."""
        if self.chance(0.1):
            self.uncommitted.append(result)
        else:
            self.airflow.commit(result, is_failed=self.chance(0.1))

    def tick(self, *signals: Signal, end: int | None = None) -> JobResult:
        """Plan, do and commit a tick which nothing disturbs."""
        result = self.run(self.pipeline.plan(signals, end))
        self.airflow.commit(result)
        return result

    def repaired_interruptions(self) -> Counter[TableId]:
        """Return how many interruptions of each table are followed by a new beginning of it."""
        return self.interruptions - Counter(self.interrupted)

    def trim(self, newest: int = 0) -> None:
        """Trim the logs up to a random age. It must not matter to any later run, not even to one under way."""
        newest = newest or next(self.pipeline.plans)
        summary = self.pipeline.offsets.summary()
        reported = min(summary.reported_seq, summary.notified_upto)
        cutoff = newest if self.trims or self.chance(0.5) else self.rng.randrange(1, newest + 1)
        self.note_beginnings()
        before = self.oracle.history()
        maintain(self.pipeline.target, self.pipeline.journal, reported, cutoff)
        for table, horizon in self.pipeline.target.horizons.items():
            self.consumer.note_trim(table, horizon)
            self.oracle.note_trim(table, horizon, before)
            damage = self.damages[table]
            damage.lost = [logged for logged in damage.lost if logged[0] >= horizon.batch]
            damage.doubled = [logged for logged in damage.doubled if logged[0] >= horizon.batch]

    def check(self) -> None:
        """Check what holds after each step."""
        self.note_beginnings()
        for table, damage in self.damages.items():
            held = {(batch, event_id(event)) for batch, _, event in self.pipeline.target.log.get(table, ())}
            damage.lost = [logged for logged in damage.lost if (logged[0], event_id(logged[2])) not in held]
        self.oracle.check()

    def note_beginnings(self) -> None:
        """Note which tables have begun again. They have no damage any more."""
        history = self.oracle.history()
        for table, pairs in history.applied.items():
            begun = max((planned.batch for planned, _ in pairs if begins(planned)), default=0)
            if begun > self.begun[table]:
                stale = self.damages[table].parts
                self.begun[table], self.damages[table] = begun, Damage(parts={*stale}, stale=stale)
                self.gapped.discard(table)
                self.interrupted.discard(table)
                self.consumer.note_beginning(table)
                self.oracle.note_beginning(table)

    def settle(self) -> None:
        """Carry out and commit what waits. Then do ticks until everything is captured, applied and healed."""
        self.pipeline.tables = ()
        for table in self.source.gained:
            self.write_to(table)
        self.rng.shuffle(self.uncommitted)
        while self.uncommitted:
            self.airflow.commit(self.uncommitted.pop())
        self.settle_by({table for table, damage in self.damages.items() if damage.is_foreign})

    def settle_by(self, healed: Collection[TableId]) -> None:
        """Do ticks until everything is captured and applied, and these tables are healed."""
        signals = [Signal(self.id_(), "resume-snapshot", "{}", "airflow"), *self.heals(healed)]
        for _ in range(LAST_TICKS):
            self.source.capture()
            result = self.tick(*signals, end=self.source.captured)
            signals = []
            for line in result.failed:
                if line.table in self.gapped | self.interrupted or self.is_given_up(line.table):
                    self.restart(line.table)
            if not any(snapshot.status == "running" for snapshot in result.snapshots) and not result.failed:
                break
        for table in healed:
            self.damages[table].note_state_mended()
        self.check()
        assert not self.interrupted
        self.gapped.clear()
        for _ in range(2):
            self.source.capture()
            assert not self.tick(end=self.source.captured).failed
        self.check()
        self.check_settled()

    def check_settled(self) -> None:
        """Check that every table is complete, and that offsets and asset events are where its batches are."""
        complete, target = self.oracle.complete(), self.pipeline.target
        assert complete.keys() == {*TABLES}
        for table, last in complete.items():
            offset = self.pipeline.offsets.get(table)
            assert offset is not None
            assert (number(last.upto), offset.lsn) == (self.source.commits, last.upto), table
        applied = {(each.table, each.batch) for each in target.applied}
        logged = {table: [batch for batch, *_ in target.log[table] if (table, batch) in applied] for table in TABLES}
        # A table that is empty at its first commit is announced with its next events.
        known = {table for table in TABLES if self.airflow.events[table] or self.source.rows[table]}
        self.airflow.check({table: max(batches) for table, batches in logged.items() if batches and table in known})
        self.consumer.check(self.source, {table: self.damages[table] for table in TABLES if self.airflow.events[table]})
        self.consumer.put_back.clear()

    @contextmanager
    def acting(self, act: Callable[[], object], points: Sequence[Failpoint] = POINTS) -> Iterator[None]:
        """Act once within the block: before or after a random failpoint is reached for the first times."""
        calls = self.rng.randrange(1, 4)

        def act_once(_: ReachedFailpoint) -> None:
            nonlocal calls
            calls -= 1
            if not calls:
                act()

        when, point = self.rng.choice(("before", "after")), self.rng.choice(points)
        with failpoint_action(point, **{when: act_once}):
            yield


def die() -> None:
    """Kill the process."""
    raise Killed
