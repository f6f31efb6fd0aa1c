import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.offset.summary import KEPT_OUTCOMES, PipelineSummary, TableFailure
from airflow_provider_db2cdc.cdc.repair.repair import Replay
from airflow_provider_db2cdc.cdc.selection.table_names import is_named, name_of
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, SignalStatus, SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Status
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError

T, U = TableId("S", "T"), TableId("S", 'u "x".y')


def snapshot(
    id_: str, status: Status = "running", kind: SnapshotKind = "incremental", *parts: TableSnapshotProgress
) -> SnapshotProgress:
    parts = parts or (TableSnapshotProgress(T, "reading", 1, 4, 10),)
    return SnapshotProgress(id_, kind, status, parts, 5, "why" if status == "failed" else "")


def outcome(id_: str, status: SignalStatus = "done", channel: str = "airflow") -> SignalOutcome:
    return SignalOutcome(id_, channel, status)


def result(snapshots: Sequence[SnapshotProgress] = (), signals: Sequence[SignalOutcome] = ()) -> JobResult:
    return JobResult("p", "run", (), tuple(signals), tuple(snapshots))


def test_empty_summary_has_no_work() -> None:
    assert not PipelineSummary().has_snapshot_work({T})
    assert PipelineSummary().initially_loading == frozenset()
    assert PipelineSummary().updated(result()) == PipelineSummary()


def test_tables_are_those_of_the_last_tick_with_the_failed_ones() -> None:
    lines = [TableResult(U, "failed", error="why"), TableResult(T, "applied")]
    done = PipelineSummary(tables=(TableId("S", "GONE"),)).updated(replace(result(), tables=tuple(lines)))
    assert done.tables == (T, U)
    assert [name_of(table) for table in done.tables] == ['"S"."T"', '"S"."u ""x"".y"']
    assert [is_named(name_of(one), other) for one in (T, U) for other in (T, U)] == [True, False, False, True]


def test_newest_batch_is_the_greatest_of_all_results() -> None:
    summary = PipelineSummary()
    for batch, planned_at_ms, repair, newest in (
        (4, 2, None, 4),
        (3, 1, None, 4),
        (9, 2, Replay(), 9),
        (2, 3, None, 9),
    ):
        line = TableResult(T, "applied", batch=batch)
        summary = summary.updated(JobResult("p", "run", (line,), planned_at_ms=planned_at_ms, repair=repair))
        assert summary.newest_batch == newest


@pytest.mark.parametrize(
    ("status", "expected"), [("running", True), ("paused", False), ("completed", False), ("failed", False)]
)
def test_only_a_running_snapshot_is_work_for_an_idle_tick(status: Status, expected: bool) -> None:
    assert PipelineSummary((snapshot("b", status),)).has_snapshot_work({T}) is expected


@pytest.mark.parametrize(
    ("first", "kind", "tables", "expected"),
    [
        ("paused", "incremental", (T,), False),
        ("paused", "incremental", (T, U), True),
        ("paused", "blocking", (T, U), False),
        ("running", "incremental", (T,), True),
        ("completed", "blocking", (T, U), True),
    ],
)
def test_snapshot_that_waits_for_a_paused_snapshot_is_not_work(
    first: Status, kind: SnapshotKind, tables: tuple[TableId, ...], expected: bool
) -> None:
    part = TableSnapshotProgress(T, "completed" if first == "completed" else "reading", 1, 4, 10)
    waiting = [TableSnapshotProgress(table, "waiting", 0, None, 0) for table in tables]
    kept = PipelineSummary((snapshot("a", first, "incremental", part), snapshot("b", "running", kind, *waiting)))
    assert kept.has_snapshot_work({T, U}) is expected


def test_initial_snapshot_is_work_while_one_of_its_tables_can_continue() -> None:
    parts = (TableSnapshotProgress(T, "reading", 1, 4, 10), TableSnapshotProgress(U, "completed", 1, 1, 2))
    initial = PipelineSummary((snapshot("a", "running", "initial", *parts),))
    assert initial.has_snapshot_work({T, U})
    assert not initial.has_snapshot_work({U}), "it waits for the table that was taken out, and no tick brings that back"
    asked = PipelineSummary((snapshot("b", "running", "incremental", *parts),))
    assert asked.has_snapshot_work({U}), "a tick lets go of the table, and the snapshot ends"


def test_tables_with_an_open_initial_snapshot_are_initially_loading() -> None:
    parts = (TableSnapshotProgress(T, "waiting", 0, None, 0), TableSnapshotProgress(U, "completed", 1, 1, 2))
    assert PipelineSummary((snapshot("a", "running", "initial", *parts),)).initially_loading == {T}
    assert PipelineSummary((snapshot("a", "paused", "initial", *parts),)).initially_loading == {T}
    assert PipelineSummary((snapshot("a", "running", "incremental", *parts),)).initially_loading == frozenset()
    assert PipelineSummary((snapshot("a", "stopped", "initial", *parts),)).initially_loading == frozenset()


class TestSnapshotsAfterATick:
    def test_open_snapshot_that_the_result_does_not_name_is_dropped(self) -> None:
        """The target was removed or replaced. Otherwise each idle plan would start Spark for the snapshot."""
        old = PipelineSummary((snapshot("a"), snapshot("b", "paused"), snapshot("c", "completed")), reported_seq=40)
        assert old.updated(result([snapshot("d")])).snapshots == (snapshot("d"),)
        assert old.updated(replace(result(), reported_seq=1)).snapshots == (snapshot("c", "completed"),)

    def test_signal_whose_snapshot_is_not_in_the_target_has_failed(self) -> None:
        """Otherwise its sender would wait for ever."""
        old = PipelineSummary((snapshot("a"), snapshot("b")), (outcome("a", "accepted"), outcome("b", "accepted")))
        lost, still = old.updated(result([snapshot("b")])).outcomes
        assert (lost.id, lost.status, still) == ("a", "failed", outcome("b", "accepted"))
        assert "send the signal again" in lost.reason

    def test_result_replaces_the_known_snapshots(self) -> None:
        old = PipelineSummary((snapshot("a"), snapshot("b")))
        new = result([snapshot("a", "failed"), snapshot("b")])
        assert old.updated(new).snapshots == (snapshot("a", "failed"), snapshot("b"))

    def test_result_of_an_older_plan_changes_nothing(self) -> None:
        """Clearing an old run's commit task commits its result again."""
        first = JobResult("p", "1", (), (outcome("a", "accepted"),), (snapshot("a"),), reported_seq=3, planned_at_ms=1)
        second = JobResult(
            "p", "2", (), (outcome("a"),), (snapshot("a", "completed"),), reported_seq=8, planned_at_ms=2
        )
        ended = PipelineSummary().updated(first).updated(second)
        for reported in (2, 3, 8):
            assert replace(ended, reported_seq=reported).updated(first) == replace(ended, reported_seq=reported), (
                "whether or not it was reported"
            )
        assert ended.updated(replace(first, planned_at_ms=3)).has_snapshot_work({T}), (
            "a new target's journal begins at 0"
        )

    def test_late_commit_of_an_older_plan_brings_back_no_failure(self) -> None:
        """The ticks around it changed nothing but the time."""
        applied, failed = TableResult(T, "applied"), TableResult(T, "failed", error="a gap")
        known = PipelineSummary().updated(replace(result(), tables=(applied,), planned_at_ms=1))
        newest = known.updated(replace(result(), tables=(applied,), planned_at_ms=3))
        assert newest == replace(known, planned_at_ms=3)
        assert newest.updated(replace(result(), tables=(failed,), planned_at_ms=2)) == newest

    def test_last_ended_snapshot_is_shown_until_there_is_a_newer_one(self) -> None:
        ended = PipelineSummary((snapshot("a", "completed"),))
        assert ended.updated(result()) == ended
        assert ended.updated(result([snapshot("b")])).snapshots == (snapshot("b"),)


def test_channels_are_notified_up_to_the_reports_or_a_lower_position() -> None:
    assert (
        PipelineSummary(reported_seq=7).notified_upto,
        PipelineSummary(reported_seq=7, notified_seq=3).notified_upto,
    ) == (7, 3)


def test_signals_are_in_flight_until_the_result_of_their_tick() -> None:
    asked = PipelineSummary(signals_in_flight_at_ms=5)
    assert asked.updated(replace(result(), planned_at_ms=4)).signals_in_flight_at_ms == 5, "an older plan's job"
    assert asked.updated(replace(result(), planned_at_ms=5)).signals_in_flight_at_ms == 0


def test_update_by_a_tick_leaves_the_reported_position() -> None:
    assert PipelineSummary(reported_seq=7).updated(replace(result(), reported_seq=9)).reported_seq == 7


class TestOutcomesAfterATick:
    def test_newest_outcome_of_each_signal_is_known(self) -> None:
        old = PipelineSummary(outcomes=(outcome("1", "accepted"), outcome("1", "done", "file")))
        new = old.updated(result(signals=[outcome("1", "stopped"), outcome("2")]))
        assert set(new.outcomes) == {outcome("1", "stopped"), outcome("1", "done", "file"), outcome("2")}

    def test_the_newest_outcomes_are_stored_up_to_a_limit(self) -> None:
        old = PipelineSummary(outcomes=tuple(outcome(f"old {at}") for at in range(KEPT_OUTCOMES)))
        new = old.updated(result(signals=[outcome("new")]))
        assert [one.id for one in new.outcomes] == [f"old {at}" for at in range(1, KEPT_OUTCOMES)] + ["new"]

    def test_outcome_of_an_open_snapshot_is_stored_whatever_follows(self) -> None:
        """Otherwise its sender would think that the run did not act on it."""
        summary = PipelineSummary((snapshot("long"),), (outcome("long", "accepted"),))
        for at in range(KEPT_OUTCOMES + 1):
            summary = summary.updated(result([snapshot("long")], [outcome(f"log {at}")]))
        assert len(summary.outcomes) == KEPT_OUTCOMES + 1
        assert summary.outcomes[0] == outcome("long", "accepted")

    def test_tick_without_signals_changes_none(self) -> None:
        old = PipelineSummary(outcomes=(outcome("1"),), handled_signal_ids=("2",))
        assert old.updated(result()) == old

    def test_outcome_of_a_repeated_signal_is_the_newest(self) -> None:
        of_a, of_b = SignalOutcome("nightly", "airflow", "done", "", "a"), outcome("nightly #b", "refused")
        summary = PipelineSummary()
        # The job names the outcome of the id, then the signal's own.
        for outcomes in ((of_a,), (of_a, of_b), (of_b, of_a)):
            summary = summary.updated(result(signals=outcomes))
            assert summary.outcomes[-1] == outcomes[-1]

    def test_end_of_an_old_signal_is_as_new_as_any(self) -> None:
        old = PipelineSummary(
            outcomes=(outcome("mine", "accepted"), *(outcome(f"{at}") for at in range(KEPT_OUTCOMES - 1)))
        )
        new = old.updated(result(signals=[outcome("mine"), outcome("another")]))
        assert outcome("mine") in new.outcomes

    def test_full_signal_table_hides_no_signal_of_another_channel(self) -> None:
        """Each tick that handles a signal reports every row of the signal table."""
        rows = [outcome(f"{at}", "done", "source") for at in range(KEPT_OUTCOMES + 5)]
        new = PipelineSummary().updated(result(signals=[outcome("mine"), *rows]))
        assert outcome("mine") in new.outcomes


class TestSignalTable:
    def test_rows_that_no_tick_handled_are_unhandled(self) -> None:
        rows = [Signal(id_, "log", "", "source") for id_ in "123"]
        known = (rows[0].id_again, rows[2].id_again, "gone")
        assert PipelineSummary(handled_signal_ids=known).unhandled(rows) == [rows[1]]

    def test_row_with_another_request_under_its_id_is_unhandled(self) -> None:
        row, other = (Signal("1", "log", data, "source") for data in ("{}", '{"message": "m"}'))
        for id_ in ("1", row.id_again):
            kept = PipelineSummary().updated(
                result(signals=[SignalOutcome(id_, "source", "refused", "why", row.asked)])
            )
            assert kept.unhandled([row, other]) == [other]

    def test_newest_outcomes_of_a_large_signal_table_are_stored(self) -> None:
        rows = [SignalOutcome(f"{at}", "source", "done", asked="d") for at in range(KEPT_OUTCOMES + 50)]
        summary = PipelineSummary()
        for _ in range(3):
            summary = summary.updated(result(signals=rows))
            assert list(summary.outcomes) == rows[50:]

    def test_tick_that_read_the_signal_table_replaces_its_known_ids(self) -> None:
        old = PipelineSummary(handled_signal_ids=("1", "2"))
        outcomes = [SignalOutcome(id_, "source", "done", asked="0a") for id_ in "23"]
        assert old.updated(result(signals=outcomes)).handled_signal_ids == ("2 #0a", "3 #0a")

    def test_tick_that_only_repeats_unreported_outcomes_keeps_the_known_ids(self) -> None:
        """It does not read the signal table. Its result has the new entries of the journal."""
        rows = [Signal(f"{at}", "log", "", "source") for at in range(KEPT_OUTCOMES + 50)]
        outcomes = [SignalOutcome(row.id, "source", "done", asked=row.asked) for row in rows]
        summary = PipelineSummary().updated(result(signals=outcomes)).updated(result(signals=outcomes[-1:]))
        assert summary.unhandled(rows) == []
        assert summary.updated(result(signals=outcomes)).outcomes == tuple(outcomes[50:])

    def test_tick_that_did_not_read_the_signal_table_keeps_the_known_ids(self) -> None:
        old = PipelineSummary(handled_signal_ids=("1", "2"))
        assert old.updated(result(signals=[outcome("7"), outcome("8", "done", "kafka")])).handled_signal_ids == (
            "1",
            "2",
        )


def test_document_comes_back_as_it_was() -> None:
    parts = (TableSnapshotProgress(T, "waiting", 0, None, 0), TableSnapshotProgress(U, "failed", 1, 3, 10, "why"))
    summary = PipelineSummary(
        (snapshot("a", "paused", "blocking", *parts), snapshot("é", "failed")), (outcome("1", "refused"),), ("1", "")
    )
    assert PipelineSummary.from_json(summary.to_json(), "here") == summary
    assert PipelineSummary.from_json("{}", "here") == PipelineSummary()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{oops",
        "[]",
        '{"snapshots": 3}',
        '{"handled_signal_ids": [1]}',
        '{"more": []}',
        '{"outcomes": [{"id": "1"}]}',
        PipelineSummary(outcomes=(outcome("1"),)).to_json().replace("done", "lost"),
    ],
)
def test_damaged_document_is_named_with_a_remedy(text: str) -> None:
    with pytest.raises(OffsetError, match=r"summary kept in the drawer cannot be read.*Delete it"):
        PipelineSummary.from_json(text, "the drawer")


def test_document_is_one_line_of_json_in_a_fixed_order() -> None:
    text = PipelineSummary(handled_signal_ids=("1",)).to_json()
    assert "\n" not in text
    assert [*json.loads(text)] == [
        "failures", "handled_signal_ids", "newest_batch", "notified_seq", "outcomes", "plan_revision", "planned_at_ms",
        "reported_seq", "signals_in_flight_at_ms", "snapshots", "source_clock", "tables",
    ]  # fmt: skip


def test_plan_without_work_reports_the_tables_that_it_rejects() -> None:
    other = TableId("S", "OTHER")
    applied = TableFailure(other, "a gap")
    summary = PipelineSummary(tables=(T, other), failures=(applied, TableFailure(T, "old", is_rejected=True)))
    rejected = summary.with_rejected({T: "its registration"})
    assert rejected.failures == (applied, TableFailure(T, "its registration", is_rejected=True))
    assert rejected.with_rejected({}).failures == (applied,)
    assert rejected.with_rejected({other: "gone"}).failures == (TableFailure(other, "gone", is_rejected=True),)
