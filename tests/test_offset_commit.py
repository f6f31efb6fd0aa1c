from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.crash import killed
from support.memory_offsets import FileOffsets

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, SourceSpec, Status, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import Restart
from airflow_provider_db2cdc.cdc.offset.request_change import capture_interrupted
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.repair.repair import Replay
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, SignalStatus
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError, SignalError, TickFailedError
from airflow_provider_db2cdc.offsets.commit import (
    commit_tick,
    raise_for_failures,
    raise_for_signals,
    record_reported,
    record_signals_in_flight,
)

A, B = TableId("S", "A"), TableId("S", "B")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def line(table: TableId, at: int | None, status: Status = "applied", **more: object) -> TableResult:
    return TableResult(table, status, lsn(at) if at is not None else None, 7 if at is not None else None, **more)  # type: ignore[arg-type]


def committed(table: TableId, at: int, *more: int, **marks: object) -> Offset:
    """Return the offset that a result's batch 7 leaves."""
    return Offset(table, lsn(at), 7, *more, **{"committed_lsn": lsn(at), **marks})  # type: ignore[arg-type]


def outcome(*lines: TableResult) -> JobResult:
    return JobResult("p", "run", lines)


def commit(result: JobResult, offsets: FileOffsets) -> list[Offset]:
    """Return the offsets that moved, which all do."""
    moved, unkept = commit_tick(result, offsets)
    assert unkept is None, unkept
    return moved


@pytest.fixture
def store(tmp_path: Path) -> FileOffsets:
    return FileOffsets(tmp_path / "offsets.json")


def test_offsets_move_to_the_position_committed_in_delta(store: FileOffsets) -> None:
    moved = commit(outcome(line(A, 5, commit_ts_ms=99), line(B, 5)), store)
    assert moved == [committed(A, 5, 99), committed(B, 5)]
    assert store.get(A) == moved[0]


def test_an_offset_has_the_time_of_its_plan(store: FileOffsets) -> None:
    for at, planned_at_ms in ((5, 11), (5, 12), (6, 13)):
        commit(replace(outcome(line(A, at)), planned_at_ms=planned_at_ms), store)
    kept = store.get(A)
    assert kept is not None
    assert (kept.lsn, kept.planned_at_ms) == (lsn(6), 13)


def test_a_repeated_commit_moves_nothing(store: FileOffsets) -> None:
    commit(outcome(line(A, 5)), store)
    assert commit(outcome(line(A, 5)), store) == []


def test_an_offset_has_the_newest_batch_though_no_commit_came(store: FileOffsets) -> None:
    """Without it the next result would count the published rows of a snapshot again."""
    store.put(committed(A, 5))
    assert commit(outcome(replace(line(A, 5, reads=3), batch=8)), store) == []
    assert store.get(A) == replace(committed(A, 5), batch=8)


def test_commit_time_stays_when_a_tick_had_no_commit(store: FileOffsets) -> None:
    commit(outcome(line(A, 5, commit_ts_ms=99)), store)
    assert commit(outcome(line(A, 6)), store) == [committed(A, 6, 99)]


def test_capture_identity_is_completed_if_the_offset_was_set_by_hand(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(5), 7))
    assert commit(outcome(line(A, 5, capture="abc")), store) == []
    assert store.get(A) == committed(A, 5, capture="abc")


def test_a_restart_is_over_once_it_has_begun_though_the_tick_failed(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(9), 6, restart=True, revision="r"))
    commit(outcome(line(A, 9, "failed", revision="r")), store)
    kept = store.get(A)
    assert kept is not None
    assert kept.restart
    commit(outcome(line(A, 5, "failed", after=lsn(4), restart=True, revision="r")), store)
    assert store.get(A) == committed(A, 5, revision="r")


@pytest.mark.parametrize("status", ["applied", "unchanged"])
def test_a_restart_requested_during_a_tick_belongs_to_the_next_tick(store: FileOffsets, status: Status) -> None:
    store.put(offset := Offset(A, lsn(4), 6))
    store.request(A, Restart("r"))
    commit(outcome(line(A, 5, status)), store)
    assert store.get(A) == replace(offset, restart=True, revision="r")


def test_an_inactive_registration_stays_recorded_until_a_restart(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(4), 6, capture_interrupted=True))
    commit(outcome(line(A, 5, "failed")), store)
    assert store.get(A) == committed(A, 5, capture_interrupted=True)
    commit(outcome(line(A, 6)), store)
    assert store.get(A) == committed(A, 6, capture_interrupted=True), "the pending batch of another plan was finished"
    commit(outcome(line(A, 7, "failed", reinitialized=True)), store)
    assert store.get(A) == committed(A, 7)


@pytest.mark.parametrize("reinitialized", [False, True])
def test_a_registration_found_inactive_by_a_tick_is_recorded_once(store: FileOffsets, reinitialized: bool) -> None:
    store.put(Offset(A, lsn(4), 6, planned_at_ms=1, capture_interrupted=reinitialized, revision="m"))
    result = replace(
        outcome(line(A, 5, "failed", capture_interrupted=True, reinitialized=reinitialized, revision="m")),
        planned_at_ms=10,
    )
    commit(result, store)
    kept = store.get(A)
    assert kept is not None
    assert (kept.lsn, kept.capture_interrupted) == (lsn(5), True)
    set_by_hand = replace(kept, capture_interrupted=False)
    store.put(set_by_hand)
    commit(result, store)
    assert store.get(A) == set_by_hand


def test_an_offset_has_its_last_commit_until_its_table_is_restarted(store: FileOffsets) -> None:
    def kept(*results: TableResult) -> Lsn | None:
        for result in results:
            commit(outcome(result), store)
        found = store.get(A)
        assert found is not None
        return found.commit_lsn

    assert kept(line(A, 5, reads=3)) is None
    assert kept(line(A, 6, creates=1, commit_lsn=lsn(6))) == lsn(6)
    assert kept(line(A, 8, commit_lsn=lsn(6))) == lsn(6), "a tick without a commit"
    store.put(replace(store.get(A) or committed(A, 8), source_restored=True))
    assert kept(line(A, 9, "failed", commit_lsn=lsn(6))) == lsn(6)
    assert (store.get(A) or committed(A, 9)).source_restored, "until it is restarted"
    assert kept(line(A, 10, reads=3, reinitialized=True)) is None
    assert not (store.get(A) or committed(A, 10)).source_restored


def test_an_offset_set_by_hand_has_no_commit_before_the_next_one(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(5), 7))
    commit(outcome(line(A, 8, commit_lsn=lsn(4))), store)
    assert store.get(A) == committed(A, 8)
    commit(outcome(line(A, 9, updates=1, commit_lsn=lsn(9))), store)
    assert store.get(A) == committed(A, 9, commit_lsn=lsn(9))


def test_an_older_plans_result_changes_no_offset(store: FileOffsets) -> None:
    """A later inactive registration, restored source or requested restart stays, by any clock."""
    old = replace(outcome(line(A, 9, after=lsn(4), restart=True, reinitialized=True, revision="m")), planned_at_ms=10)
    back = replace(outcome(line(A, 2, rewound=True, revision="m")), planned_at_ms=15)
    found = capture_interrupted([A], "new")
    for offset, is_found in (
        (Offset(A, lsn(5), 6, planned_at_ms=5), True),
        (Offset(A, lsn(5), 6, planned_at_ms=5, capture_interrupted=True, revision="m"), True),
        (Offset(A, lsn(5), 6, planned_at_ms=5, restart=True, revision="new"), False),
        (Offset(A, lsn(5), 6, planned_at_ms=20), False),
        (Offset(A, lsn(5), 6, planned_at_ms=20, restart=True, revision="m"), False),
    ):
        store.put(offset)
        kept = (store.put_requests(found) if is_found else store.read()).get(A)
        assert kept is not None
        assert (kept.capture_interrupted, kept.restart) == (is_found, offset.restart)
        for again in (old, back):
            assert commit(again, store) == []
            assert store.get(A) == kept


def test_a_table_restarted_at_its_offset_is_not_interrupted_any_more(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(5), 6, planned_at_ms=1, capture_interrupted=True, revision="m"))
    commit(replace(outcome(line(A, 5, reads=3, reinitialized=True, revision="m")), planned_at_ms=10), store)
    assert store.get(A) == committed(A, 5, planned_at_ms=10, revision="m")


def test_an_offset_that_gets_a_position_stays_interrupted(store: FileOffsets) -> None:
    store.put_requests(capture_interrupted([A], "m"))
    commit(replace(outcome(line(A, 5, "failed", revision="m")), planned_at_ms=20), store)
    assert store.get(A) == committed(A, 5, planned_at_ms=20, capture_interrupted=True, revision="m")


def test_a_restart_requested_after_a_tick_outlives_a_repeated_commit(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(4), 6, restart=True, revision="r"))
    begun = line(A, 9, restart=True, reinitialized=True, revision="r")
    older, result = (replace(outcome(replace(begun, lsn=lsn(at))), planned_at_ms=at) for at in (7, 9))
    commit(result, store)
    done = store.get(A)
    assert done is not None
    assert not done.restart
    store.put(wished := replace(done, restart=True, revision="r2"))
    for again in (result, older):
        commit(again, store)
        assert store.get(A) == wished


def test_open_snapshots_are_stored_before_the_offsets(store: FileOffsets) -> None:
    part = TableSnapshotProgress(A, "reading", 1, 4, 10)
    begun = replace(outcome(line(A, 5)), snapshots=(SnapshotProgress("initial-1", "initial", "running", (part,), 5),))
    with killed("put_offsets", "before"):
        commit(begun, store)
    assert store.summary().initially_loading == {A}


def test_an_offset_moves_back_with_its_source(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(9), 6))
    assert commit(outcome(line(A, 5, rewound=True)), store) == [committed(A, 5)]


def test_older_result_is_refused_and_the_other_tables_move(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(9), 8))
    moved, unkept = commit_tick(outcome(line(A, 5), line(B, 5)), store)
    assert [offset.table for offset in moved] == [B]
    assert unkept is not None
    assert unkept.tables == {name_of(A)}
    assert store.get(A) == Offset(A, lsn(9), 8)
    assert store.get(B) == committed(B, 5)


def test_a_recovered_offset_is_reported(store: FileOffsets, caplog: pytest.LogCaptureFixture) -> None:
    for table, recovered in ((A, True), (B, False)):
        commit(outcome(line(table, 5, offset_recovered=recovered)), store)
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"the offset of S.A was missing: it is taken from the target, {lsn(5)}. If a restart was")
    assert "db2cdc offset restart S.A" in message


def test_failed_table_that_never_was_applied_has_no_offset(store: FileOffsets) -> None:
    assert commit(outcome(line(A, None, "failed", error="x")), store) == []
    assert store.get(A) is None


def test_failed_tables_offset_catches_up_without_a_second_error(store: FileOffsets) -> None:
    store.put(Offset(B, lsn(9), 8))
    moved = commit(outcome(line(A, 5, "failed", error="x"), line(B, 5, "failed", error="ahead")), store)
    assert [offset.table for offset in moved] == [A]


def test_failures_are_reported_with_names_and_errors() -> None:
    with pytest.raises(TickFailedError) as caught:
        raise_for_failures(outcome(line(A, 5), line(B, None, "failed", error="no key. Add one.")))
    assert "1 of 2 tables failed" in str(caught.value)
    assert "S.B: no key. Add one." in str(caught.value)


def test_without_failures_nothing_is_raised() -> None:
    raise_for_failures(outcome(line(A, 5), line(B, 5, "unchanged")))


SNAPSHOT = SnapshotProgress("1", "incremental", "running", (TableSnapshotProgress(A, "reading", 1, 4, 10),), 5)


def signal_outcome(status: SignalStatus, channel: str = "file") -> SignalOutcome:
    return SignalOutcome("1", channel, status, "why")


def test_snapshots_and_signals_are_stored_for_the_next_plan(store: FileOffsets) -> None:
    commit(JobResult("p", "run", (line(A, 5),), (signal_outcome("accepted"),), (SNAPSHOT,)), store)
    stored = PipelineSummary((SNAPSHOT,), (signal_outcome("accepted"),), tables=(A,), newest_batch=7)
    assert store.summary() == stored
    commit(JobResult("p", "run", (line(A, 6),), (), (SNAPSHOT,)), store)
    assert store.summary() == stored, "a tick without news of them"


def test_older_result_brings_no_snapshot_back(store: FileOffsets) -> None:
    old = JobResult(
        "p", "1", (line(A, 5),), (signal_outcome("accepted"),), (SNAPSHOT,), reported_seq=3, planned_at_ms=1
    )
    ended = replace(SNAPSHOT, status="completed")
    new = JobResult("p", "2", (line(A, 9),), (signal_outcome("done"),), (ended,), reported_seq=8, planned_at_ms=2)
    for result in (old, new):
        commit(result, store)
        record_reported(result, store, is_notified=True)
    kept = store.summary()
    for _ in range(2):
        assert commit(old, store) == []
        record_reported(old, store, is_notified=True)
    assert store.summary() == kept, "nor does it hide its own reports from the next tick"


def test_a_repair_changes_no_offset_and_no_summary(store: FileOffsets) -> None:
    """It names no open snapshot and no entry of the journal. The next tick still continues and reports them."""
    tick = JobResult(
        "p", "r1", (line(A, 5),), (signal_outcome("accepted"),), (SNAPSHOT,), reported_seq=3, planned_at_ms=1
    )
    commit(tick, store)
    record_reported(tick, store, is_notified=True)
    before = store.summary(), store.get(A)
    repair = JobResult("p", "r2", (line(A, None),), planned_at_ms=2, repair=Replay())
    commit(repair, store)
    record_reported(repair, store, is_notified=True)
    assert (store.summary(), store.get(A)) == before


def test_snapshot_of_an_older_plans_job_is_work_for_the_next_plan(store: FileOffsets) -> None:
    """Its run was cleared: the summary ignores it, and without work no tick would read the journal."""
    new = JobResult("p", "2", (line(A, 9),), (), (), reported_seq=3, planned_at_ms=2)
    old = JobResult(
        "p", "1", (line(A, 5),), (signal_outcome("accepted"),), (SNAPSHOT,), reported_seq=8, planned_at_ms=1
    )
    for result in (new, old):
        commit(result, store)
        record_reported(result, store, is_notified=True)
    kept = store.summary()
    assert (kept.reported_seq, kept.signals_in_flight_at_ms) == (3, 2), (
        "the next plan starts Spark, which reports from there"
    )
    then = replace(new, run_id="3", snapshots=(SNAPSHOT,), reported_seq=9, planned_at_ms=3)
    commit(then, store)
    record_reported(then, store, is_notified=True)
    assert (store.summary().signals_in_flight_at_ms, store.summary().snapshots) == (0, (SNAPSHOT,))


def test_snapshots_are_stored_even_if_an_offset_cannot_be(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(9), 8))
    assert commit_tick(JobResult("p", "run", (line(A, 5),), (), (SNAPSHOT,)), store)[1] is not None
    assert store.summary().snapshots == (SNAPSHOT,)


def test_reported_position_follows_the_journal_even_a_new_one(store: FileOffsets) -> None:
    for told_upto in (9, 3):
        result = JobResult("p", "run", (line(A, 5),), (), (SNAPSHOT,), reported_seq=told_upto)
        commit(result, store)
        assert store.summary().reported_seq != told_upto, "it is not reported yet"
        record_reported(result, store, is_notified=True)
        assert store.summary() == PipelineSummary((SNAPSHOT,), reported_seq=told_upto, tables=(A,), newest_batch=7)


def test_outcomes_are_reported_even_if_no_channel_was_notified(store: FileOffsets) -> None:
    result = JobResult("p", "run", (line(A, 5),), (signal_outcome("refused"),), reported_seq=9)
    commit(result, store)
    record_reported(result, store, is_notified=False)
    kept = store.summary()
    assert (kept.reported_seq, kept.notified_upto) == (9, 0)
    record_reported(replace(result, reported_seq=12), store, is_notified=True)
    assert store.summary().notified_upto == 12


def test_similar_tables_are_distinguished_if_an_offset_is_not_stored(store: FileOffsets) -> None:
    dotted, other = TableId("A.B", "C"), TableId("A", "B.C")
    store.put(Offset(dotted, lsn(9), 8))
    moved, unkept = commit_tick(outcome(line(dotted, 5), line(other, 5)), store)
    assert [offset.table for offset in moved] == [other]
    assert unkept is not None
    assert str(unkept).startswith(f"offsets of {name_of(dotted)} were not kept: ")
    assert unkept.tables == {name_of(dotted)}


def test_one_problem_of_several_offsets_is_reported_once(store: FileOffsets) -> None:
    store.put(Offset(A, lsn(4), 6))
    store.path.write_text("damaged")
    with pytest.raises(OffsetError) as caught:
        store.get(A)
    moved, unkept = commit_tick(outcome(line(A, 5), line(B, 5)), store)
    assert moved == []
    assert unkept is not None
    assert unkept.tables == {name_of(A), name_of(B)}
    assert str(unkept) == f"offsets of {name_of(A)}, {name_of(B)} were not kept: {caught.value}"


def test_an_unchanged_summary_is_not_written(store: FileOffsets) -> None:
    commit(outcome(line(A, 5)), store)
    [path] = [path for path in store.path.parent.iterdir() if "summary" in path.name]
    os.utime(path, (0, 0))
    commit(outcome(line(A, 6)), store)
    assert path.stat().st_mtime == 0
    commit(outcome(line(A, 6), line(B, 6)), store)
    assert path.stat().st_mtime > 0, "another table is new"


@pytest.mark.parametrize("status", ["refused", "failed"])
def test_unsuccessful_signals_are_reported_with_their_reason(status: SignalStatus) -> None:
    result = JobResult("p", "run", (), (signal_outcome(status), SignalOutcome("2", "file", "done")))
    with pytest.raises(SignalError, match=rf"1 signal\(s\).*\n  1 {status}: why$"):
        raise_for_signals(result, "file")


def test_open_stopped_or_foreign_signals_raise_nothing() -> None:
    result = JobResult(
        "p", "run", (), (signal_outcome("accepted"), signal_outcome("stopped"), signal_outcome("refused", "kafka"))
    )
    raise_for_signals(result, "file")


@pytest.mark.parametrize(("channel", "at_ms"), [("airflow", 7), ("file", 7), ("source", 0)])
def test_signals_in_flight_are_recorded_except_from_the_signal_table(
    store: FileOffsets, channel: str, at_ms: int
) -> None:
    source = SourceSpec("jdbc:db2://h:1/D", "D", "p", "ASNCDC")
    fence = CapturePosition(lsn(5), "2026-01-01T00:00:00", "2026-01-01T00:00:00", 0.0)
    asked = (Signal("1", "pause-snapshot", "{}", channel),)
    record_signals_in_flight(JobSpec("p", "run", "plan", 7, "/t", source, fence, (), signals=asked), store)
    assert store.summary().signals_in_flight_at_ms == at_ms
    record_signals_in_flight(None, store)
    assert store.summary().signals_in_flight_at_ms == at_ms
