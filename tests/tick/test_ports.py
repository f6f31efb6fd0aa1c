"""The contract of a tick's ports, held by what is in memory and by what is on Delta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.memory_journal import JournalRows, MemoryJournal
from support.memory_source import lsn
from support.memory_target import MemoryBatchLog, MemoryTarget

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.tick.ports import BatchLog, Journal

A, B = TableId("S", "A"), TableId("S", "B")
IDENTITY = CaptureIdentity("ASN.CD", "2026-01-01", "2025-01-01", "0")
MADE_BY = pytest.mark.parametrize("kind", ["memory", pytest.param("delta", marks=[pytest.mark.spark])])

OpenLog = Callable[[], BatchLog]
OpenJournal = Callable[[], Journal]


@pytest.fixture
def open_log(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> OpenLog:
    """Open the batch log of one pipeline, as each run does."""
    if kind == "memory":
        target = MemoryTarget()
        return lambda: MemoryBatchLog(target)
    return lambda: delta_log(request.getfixturevalue("spark"), tmp_path)


@pytest.fixture
def open_journal(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> OpenJournal:
    """Open the journal of one pipeline, as each run does."""
    if kind == "memory":
        kept = JournalRows()
        return lambda: MemoryJournal(kept)
    return lambda: delta_journal(request.getfixturevalue("spark"), tmp_path)


def delta_log(spark: object, folder: Path) -> BatchLog:
    """Return a run's batch log on Delta."""
    from airflow_provider_db2cdc.spark.ledger import batch_log

    log = batch_log.BatchLog(spark, Layout(str(folder)), "p")  # type: ignore[arg-type]
    log.prepare()
    return log


def delta_journal(spark: object, folder: Path) -> Journal:
    """Return a run's journal on Delta."""
    from airflow_provider_db2cdc.spark.delta.ownership import Owner
    from airflow_provider_db2cdc.spark.ledger import journal

    return journal.Journal(spark, Layout(str(folder)), Owner("p", "ledger"), "run")  # type: ignore[arg-type]


def planned(batch: int, table: TableId = A, run_id: str = "run") -> PlannedBatch:
    """Return a planned batch of one table."""
    span = (lsn(batch), lsn(batch + 1))
    return PlannedBatch(batch, run_id, f"plan-{batch}", table, *span, 1_000 * batch, IDENTITY, has_offset=True)


def applied(batch: int, table: TableId = A) -> AppliedBatch:
    """Return an applied batch of one table."""
    return AppliedBatch(batch, table, lsn(batch + 1), IDENTITY, 1, 2, 3, 0, None, 10 * batch, batch, 5)


@MADE_BY
class TestBatchLog:
    def test_a_planned_batch_is_pending_until_it_is_committed(self, open_log: OpenLog) -> None:
        log = open_log()
        log.plan([planned(1), planned(1, B)])
        log.commit([applied(1, B)], 9)
        history = open_log().history({A: 0, B: 0})
        assert [one.table for one in history.pending] == [A]
        assert {*history.last} == {B}
        assert history.newest_batch == 1

    def test_a_batch_that_is_committed_twice_counts_once(self, open_log: OpenLog) -> None:
        log = open_log()
        log.plan([planned(1)])
        log.commit([applied(1)], 9)
        log.commit([applied(1)], 10)
        history = open_log().history({A: 0})
        assert [batch.batch for _, batch in history.applied[A]] == [1]
        assert history.last[A].upto == lsn(2)

    def test_the_first_run_to_plan_a_number_wins(self, open_log: OpenLog) -> None:
        log, other = open_log(), open_log()
        log.plan([planned(1)])
        with pytest.raises(ConcurrentRunError):
            other.plan([planned(1, run_id="other")])
        assert [one.run_id for one in open_log().history({A: 0}).pending] == ["run"]

    def test_the_time_of_the_first_planned_batch_is_known(self, open_log: OpenLog) -> None:
        assert open_log().first_planned_at_ms() == 0
        log = open_log()
        log.plan([planned(2)])
        log.plan([planned(3)])
        assert open_log().first_planned_at_ms() == 2_000

    def test_a_plan_that_found_an_offset_is_remembered(self, open_log: OpenLog) -> None:
        log = open_log()
        log.plan([planned(1), replace(planned(1, B), has_offset=False)])
        assert open_log().history({A: 0, B: 0}).tables_with_offset == {A}


RUNNING = Snapshot("one", "incremental", (TableSnapshot(A),), "file", started_at_ms=5)
OUTCOME = SignalOutcome("one", "file", "accepted", "", "digest")
STARTED = Notification("n1", "Incremental Snapshot", "STARTED", {"a": "b"}, 7)


@MADE_BY
class TestJournal:
    def test_entries_of_one_run_are_read_by_the_next_run(self, open_journal: OpenJournal) -> None:
        journal = open_journal()
        assert journal.read(0, 0).snapshots == ()
        journal.write([RUNNING], [OUTCOME], [STARTED], [B], 9)
        other = open_journal()
        queue = other.read(0, 0)
        assert queue.snapshots == (RUNNING,)
        assert queue.outcomes == {("file", "one"): OUTCOME}
        assert (other.unreported.outcomes, other.unreported.notifications) == ((OUTCOME,), (STARTED,))
        assert (other.skipped, other.seq > 0) == ({B}, True)

    def test_reported_entries_are_not_reported_again(self, open_journal: OpenJournal) -> None:
        journal = open_journal()
        journal.read(0, 0)
        journal.write([RUNNING], [OUTCOME], [STARTED], [], 9)
        other = open_journal()
        queue = other.read(journal.seq, journal.seq)
        assert queue.snapshots == (RUNNING,), "it is open"
        assert (other.unreported.outcomes, other.unreported.notifications) == ((), ())

    def test_the_id_of_a_closed_and_reported_snapshot_is_known(self, open_journal: OpenJournal) -> None:
        journal = open_journal()
        journal.read(0, 0)
        journal.write([replace(RUNNING, status="stopped")], [], [], [], 9)
        assert open_journal().read(0, 0).snapshots == (replace(RUNNING, status="stopped"),)
        queue = open_journal().read(journal.seq, journal.seq)
        assert (queue.snapshots, queue.closed_ids) == ((), frozenset({"one"}))

    def test_a_table_that_began_with_a_snapshot_is_known_for_ever(self, open_journal: OpenJournal) -> None:
        journal = open_journal()
        journal.read(0, 0)
        journal.write([replace(RUNNING, kind="initial", status="stopped")], [], [], [], 9)
        queue = open_journal().read(journal.seq, journal.seq)
        assert [queue.has_begun(table) for table in (A, B)] == [True, False]

    def test_an_overtaken_run_writes_nothing(self, open_journal: OpenJournal) -> None:
        journal, other = open_journal(), open_journal()
        journal.read(0, 0)
        other.read(0, 0)
        other.write([RUNNING], [], [], [], 9)
        with pytest.raises(ConcurrentRunError):
            journal.write([replace(RUNNING, id="two")], [], [], [], 9)
        assert [one.id for one in open_journal().read(0, 0).snapshots] == ["one"]
