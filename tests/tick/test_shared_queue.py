"""The snapshot queue that two threads share: a snapshot that one ends is not opened again by the other."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import MAX_FAILURES, TableSnapshot, with_chunks, with_stop
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.snapshot.shared_queue import LockedSnapshotQueue

ONE, OTHER = TableId("S", "A"), TableId("S", "B")


def book(kind: SnapshotKind = "incremental") -> LockedSnapshotQueue:
    return LockedSnapshotQueue(SnapshotQueue((Snapshot("ad-hoc", kind, (TableSnapshot(ONE), TableSnapshot(OTHER))),)))


def test_a_stopped_table_snapshot_is_not_reopened_by_its_reader() -> None:
    shared = book()
    shared.update_table("ad-hoc", ONE, lambda part: with_stop(part, "by hand"))
    shared.update_table("ad-hoc", ONE, lambda part: with_chunks(part, [("4",)], "columns"))
    assert shared.table_snapshot("ad-hoc", ONE) == replace(TableSnapshot(ONE), status="stopped", reason="by hand")


def test_a_step_gets_the_current_table_snapshot() -> None:
    shared = book()
    shared.update_table("ad-hoc", ONE, lambda part: with_chunks(part, [("4",)], "columns"))
    shared.update_table("ad-hoc", ONE, lambda part: replace(part, published_chunks=1))
    assert shared.table_snapshot("ad-hoc", ONE) == TableSnapshot(
        ONE, status="reading", bounds=(("4",),), fingerprint="columns", published_chunks=1
    )


def test_a_failed_table_is_skipped_in_this_tick_and_finally_for_good() -> None:
    agenda = book().queue
    for tick in range(1, MAX_FAILURES + 1):
        shared = LockedSnapshotQueue(agenda)
        for _ in range(MAX_FAILURES):
            shared.fail("ad-hoc", ONE, "broken")
        agenda = shared.queue
        running = shared.running("ad-hoc", {ONE, OTHER})
        assert running is not None
        assert [part.table for part in running.tables] == [OTHER]
        assert shared.table_snapshot("ad-hoc", ONE).failures == tick, "two threads that meet it are one failure"
    assert shared.table_snapshot("ad-hoc", ONE).status == "failed"


def test_an_initially_loading_table_never_fails_for_good() -> None:
    agenda = book("initial").queue
    for _ in range(MAX_FAILURES + 1):
        shared = LockedSnapshotQueue(agenda)
        shared.fail("ad-hoc", ONE, "broken")
        agenda = shared.queue
    assert shared.table_snapshot("ad-hoc", ONE).is_open
