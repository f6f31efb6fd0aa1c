"""Signals in any order, repeated and under reused ids: each is answered once, each snapshot is notified once."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.present import present

from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import notifications
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue, close_finished, handle_signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshotStatus
from airflow_provider_db2cdc.cdc.table import TableId

TABLES = {TableId("S", name): "" for name in ("A", "B", "C")} | {TableId("S", "GONE"): "its registration is gone"}
ASKED: tuple[tuple[str, dict[str, Any] | list[str]], ...] = (
    ("execute-snapshot", {"data-collections": [r"S\.A"]}),
    ("execute-snapshot", {"data-collections": [r"S\.(B|GONE)"], "type": "blocking"}),
    ("execute-snapshot", {"data-collections": [r"S\.GONE"]}),
    ("execute-snapshot", {"data-collections": [r"S\.[BC]"], "surrogate-key": "K"}),
    ("stop-snapshot", {}),
    ("stop-snapshot", {"data-collections": [r"S\.A", r"S\.C"]}),
    ("stop-snapshot", {"type": "blocking"}),
    ("pause-snapshot", {}),
    ("pause-snapshot", {"type": "incremental"}),
    ("resume-snapshot", {}),
    ("log", {"message": "m"}),
    ("schema-changes", {}),
    ("log", []),
    ("execute-snapshot", {"data-collections": [r"S\.[ABC]"], "type": "blocking"}),
)
SIGNALS = st.builds(
    lambda id_, asked, channel: Signal(id_, asked[0], json.dumps(asked[1]), channel),
    st.sampled_from("12345"), st.sampled_from(ASKED), st.sampled_from(["source", "airflow", "file"]),
)  # fmt: skip
READ_AND_ASKED_AGAIN = [
    Signal(id_, kind, json.dumps(data), "source") if id_ else (0, "completed")
    for id_, (kind, data) in (("1", ASKED[3]), ("", ASKED[3]), ("2", ASKED[1]), ("3", ASKED[4]))
]
"""One of two tables is read and then requested again, before everything is stopped."""
PROGRESS = st.tuples(st.integers(0, 9), st.sampled_from(["completed", "completed", "failed"]))


def with_ended_table(queue: SnapshotQueue, choice: int, end: TableSnapshotStatus) -> SnapshotQueue:
    """End one table of the current snapshot whose turn it is."""
    snapshot = queue.next_snapshot(TABLES)
    if snapshot is None:
        return queue
    held = sorted(queue.tables_in_turn(snapshot.id))
    table = held[choice % len(held)]
    check_turn(queue, snapshot.id, table)
    return queue.with_snapshot(
        snapshot.with_table(replace(present(snapshot.table_snapshot(table)), status=end, reason="x"))
    )


def check_turn(queue: SnapshotQueue, id_: str, table: TableId) -> None:
    """Check that no earlier snapshot still has work on the table."""
    waiting = [
        one.id for one in queue.snapshots if any(table_snapshot.table == table for table_snapshot in one.open_tables)
    ]
    assert waiting[0] == id_


@settings(deadline=None, database=None, max_examples=300)
@given(st.lists(SIGNALS | PROGRESS, max_size=25))
@example(READ_AND_ASKED_AGAIN)
def test_each_signal_is_handled_once_and_each_snapshot_notified_once(
    steps: list[Signal | tuple[int, TableSnapshotStatus]],
) -> None:
    queue = SnapshotQueue()
    answers: dict[tuple[str, str, str], SignalOutcome] = {}
    notified: dict[Any, Any] = {}
    for at, step in enumerate(steps):
        before = queue
        if not isinstance(step, Signal):
            queue = with_ended_table(queue, *step)
        else:
            queue, answer = handle_signal(queue, step, TABLES, lambda _: None, at)
            assert (answer.channel, answer.asked, step.is_answered([answer])) == (step.channel, step.asked, True)
            known = answers.setdefault((step.channel, step.id, step.asked), answer)
            if known is not answer:
                assert (queue, answer.id) == (before, known.id), "acted on again"
                assert known.status in (answer.status, "accepted")
        old = {one.id: one for one in before.snapshots}
        over = [
            (id_, table_snapshot)
            for id_, one in old.items()
            for table_snapshot in one.tables
            if not table_snapshot.is_open
        ]
        now = {one.id: one for one in queue.snapshots}
        assert all(table_snapshot in now[id_].tables for id_, table_snapshot in over), "an ended table stays as it is"
        for one in queue.snapshots:
            if old.get(one.id) != one:
                notified.setdefault(one.id, []).extend(note.type for note in notifications(old.get(one.id), one, at))
        queue, _ = close_finished(queue)
        assert close_finished(queue) == (queue, [])
    for snapshot in queue.snapshots:
        kinds = notified[snapshot.id]
        assert (kinds[0], kinds.count("STARTED")) == ("STARTED", 1)
        assert kinds.count("COMPLETED") + kinds.count("ABORTED") == (0 if snapshot.is_open else 1)
        assert kinds.count("PAUSED") - kinds.count("RESUMED") in (0, 1)
        assert kinds.count("TABLE_SCAN_COMPLETED") == sum(
            not table_snapshot.is_open for table_snapshot in snapshot.tables
        )
        assert (queue.outcomes[snapshot.channel, snapshot.id].status == "accepted") == snapshot.is_open
    check_that_all_come_to_an_end(queue)


def check_that_all_come_to_an_end(queue: SnapshotQueue) -> None:
    """Check that all snapshots end once paused ones continue, and that each accepted signal is answered."""
    if any(one.status == "paused" for one in queue.open):
        queue, _ = handle_signal(queue, Signal("on", "resume-snapshot", "{}", "source"), TABLES, lambda _: None, 99)
    for _ in range(sum(len(one.tables) for one in queue.snapshots)):
        queue = with_ended_table(queue, 0, "completed")
    queue, _ = close_finished(queue)
    assert not queue.open
    assert all(outcome.status != "accepted" for outcome in queue.outcomes.values())
