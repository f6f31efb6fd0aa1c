"""Signals in any order, under reused ids and again: each is acted on and answered once, each snapshot told once."""

import json
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.notification import notifications
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue, close_finished, handle_signal
from airflow_provider_db2cdc.cdc.table import TableId

TABLES = {TableId("S", name): "" for name in ("A", "B", "C")} | {TableId("S", "GONE"): "its registration is gone"}
ASKED = (
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
"""Of two tables one is read and then asked for again, before everything is stopped."""
PROGRESS = st.tuples(st.integers(0, 9), st.sampled_from(["completed", "completed", "failed"]))


def gone_on(agenda: SnapshotQueue, part: int, end: str) -> SnapshotQueue:
    """Bring a table that has its turn in the snapshot that is worked on to an end."""
    snapshot = agenda.next_snapshot(TABLES)
    if snapshot is None:
        return agenda
    held = sorted(agenda.tables_in_turn(snapshot.id))
    table = held[part % len(held)]
    check_turn(agenda, snapshot.id, table)
    return agenda.with_snapshot(snapshot.with_table(replace(snapshot.table_snapshot(table), status=end, reason="x")))


def check_turn(agenda: SnapshotQueue, id_: str, table: TableId) -> None:
    """No snapshot is worked on while one that was asked for before it has the table still to do."""
    waiting = [one.id for one in agenda.snapshots if any(part.table == table for part in one.open_tables)]
    assert waiting[0] == id_


@settings(deadline=None, database=None, max_examples=300)
@given(st.lists(SIGNALS | PROGRESS, max_size=25))
@example(READ_AND_ASKED_AGAIN)
def test_each_signal_is_acted_on_once_and_each_snapshot_told_once(steps):
    agenda, answers, told = SnapshotQueue(), {}, {}
    for at, step in enumerate(steps):
        before = agenda
        if not isinstance(step, Signal):
            agenda = gone_on(agenda, *step)
        else:
            agenda, answer = handle_signal(agenda, step, TABLES, lambda _: None, at)
            assert (answer.channel, answer.asked, step.is_answered([answer])) == (step.channel, step.asked, True)
            known = answers.setdefault((step.channel, step.id, step.asked), answer)
            if known is not answer:
                assert (agenda, answer.id) == (before, known.id), "acted on again"
                assert known.status in (answer.status, "accepted")
        old = {one.id: one for one in before.snapshots}
        over = [(id_, part) for id_, one in old.items() for part in one.tables if not part.is_open]
        now = {one.id: one for one in agenda.snapshots}
        assert all(part in now[id_].tables for id_, part in over), "what is over stays as it came to its end"
        for one in agenda.snapshots:
            if old.get(one.id) != one:
                told.setdefault(one.id, []).extend(note.type for note in notifications(old.get(one.id), one, at))
        agenda, _ = close_finished(agenda)
        assert close_finished(agenda) == (agenda, [])
    for snapshot in agenda.snapshots:
        kinds = told[snapshot.id]
        assert (kinds[0], kinds.count("STARTED")) == ("STARTED", 1)
        assert kinds.count("COMPLETED") + kinds.count("ABORTED") == (0 if snapshot.is_open else 1)
        assert kinds.count("PAUSED") - kinds.count("RESUMED") in (0, 1)
        assert kinds.count("TABLE_SCAN_COMPLETED") == sum(not part.is_open for part in snapshot.tables)
        assert (agenda.outcomes[snapshot.channel, snapshot.id].status == "accepted") == snapshot.is_open
    check_that_all_come_to_an_end(agenda)


def check_that_all_come_to_an_end(agenda: SnapshotQueue) -> None:
    """Once what is paused goes on: nothing waits for ever, and each accepted signal is answered."""
    if any(one.status == "paused" for one in agenda.open):
        agenda, _ = handle_signal(agenda, Signal("on", "resume-snapshot", "{}", "source"), TABLES, lambda _: None, 99)
    for _ in range(sum(len(one.tables) for one in agenda.snapshots)):
        agenda = gone_on(agenda, 0, "completed")
    agenda, _ = close_finished(agenda)
    assert not agenda.open
    assert all(outcome.status != "accepted" for outcome in agenda.outcomes.values())
