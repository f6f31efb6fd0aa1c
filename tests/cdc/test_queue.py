import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from support.present import present

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.queue import (
    SnapshotQueue,
    add_initial,
    close_finished,
    handle_signal,
    refuse_signal,
)
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, may_publish, next_group, next_table_to_chunk
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    MAX_FAILURES,
    ChunkCounts,
    ChunkSpan,
    DeleteMissing,
    KeyedChunks,
    KeylessRead,
    TableSnapshot,
    TableSnapshotStatus,
    has_same_bounds,
    restarted,
    with_chunks,
    with_failure,
    with_published,
    with_stop,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

A, B, C = (TableId("S", name) for name in "ABC")
LOW = Lsn(bytes(16))
Windows: TypeAlias = tuple[tuple[int, int], ...]


def bounds(count: int) -> list[tuple[str]]:
    return [(str(number),) for number in range(count)]


def snapshot(kind: SnapshotKind = "incremental", **chunks: int) -> Snapshot:
    parts = [
        with_chunks(TableSnapshot(TableId("S", name)), bounds(count - 1), "f")
        if count
        else TableSnapshot(TableId("S", name))
        for name, count in chunks.items()
    ]
    return Snapshot("s", kind, tuple(parts))


def sent(kind: str, data: Mapping[str, object] | None = None, id: str = "1", channel: str = "source") -> Signal:
    return Signal(id, kind, json.dumps(data or {}), channel)


def execute(*patterns: str, id: str = "1", more: Mapping[str, object] | None = None, **data: Any) -> Signal:
    return sent("execute-snapshot", {"data-collections": list(patterns), **data, **(more or {})}, id)


ALL = {"data-collection": r"S\..*", "filter": "X = 1"}


def acting(
    queue: SnapshotQueue, *signals: Signal, check: Callable[[TableSnapshot], None] = lambda part: None, **refused: str
) -> tuple[SnapshotQueue, list[tuple[str, str]]]:
    tables = {table: refused.get(table.name, "") for table in (A, B, C)}
    outcomes: list[tuple[str, str]] = []
    for signal in signals:
        queue, outcome = handle_signal(queue, signal, tables, check, 5)
        outcomes.append((outcome.status, outcome.reason))
    return queue, outcomes


def range_of(first: int, last: int, deletes_by_range: bool = False) -> KeyedChunks:
    rows = 10 * first // 2
    return KeyedChunks("s", "incremental", first, last, LOW, 6, 6, "f", rows, "", deletes_by_range=deletes_by_range)


def deletion_of(last: int, rows: int = 0) -> DeleteMissing:
    return DeleteMissing("s", "incremental", 0, last, LOW, 6, 6, "f", rows)


def read_of(read: int, windows: Windows, rows: int = 0, needs_another: bool = False) -> KeylessRead:
    low = (LOW, 6, 6)
    return KeylessRead(
        "s", "incremental", read, read, *low, "f", rows, windows=windows, needs_another_read=needs_another
    )


def test_group_spans_the_end_of_one_table_and_the_beginning_of_others() -> None:
    asked = snapshot(A=3, B=1, C=4)
    assert next_group(asked, {}, 5) == [ChunkSpan(A, 0, 2), ChunkSpan(B, 0, 0), ChunkSpan(C, 0, 0)]
    assert next_group(asked, {A: 3, B: 1, C: 1}, 5) == [ChunkSpan(C, 1, 3)]
    assert next_group(asked, {A: 3, B: 1, C: 4}, 5) == []


def test_group_begins_after_the_published_chunks() -> None:
    asked = snapshot(A=3)
    part = with_published(present(asked.table_snapshot(A)), range_of(0, 1), 10)
    assert next_group(asked.with_table(part), {}, 5) == [ChunkSpan(A, 2, 2)]


def test_blocking_snapshot_is_one_group() -> None:
    assert next_group(snapshot("blocking", A=30, B=40), {}, 5) == [ChunkSpan(A, 0, 29), ChunkSpan(B, 0, 39)]


def test_tables_of_a_blocking_snapshot_are_only_published_together() -> None:
    asked = snapshot("blocking", A=3, B=1, C=0)
    assert may_publish(asked, [A, B, C])
    assert not may_publish(asked, [A, B])
    assert may_publish(snapshot(A=3, B=1), [A])
    over = asked.with_table(with_stop(present(asked.table_snapshot(B)), "")).with_table(
        with_failure(present(asked.table_snapshot(C)), "", tries=1)
    )
    assert may_publish(over, [A])
    deleted = asked.with_table(replace(present(asked.table_snapshot(A)), delete_missing=True, published_chunks=3))
    assert may_publish(deleted, [B, C]), "no chunk of A remains"


def test_tables_are_chunked_only_as_far_as_a_group_needs() -> None:
    assert next_table_to_chunk(snapshot(A=0, B=0), {}, 5) == A
    assert next_table_to_chunk(snapshot(A=3, B=0), {}, 5) == B
    assert next_table_to_chunk(snapshot(A=5, B=0), {}, 5) is None
    assert next_table_to_chunk(snapshot(A=5, B=0), {A: 5}, 5) == B
    assert next_table_to_chunk(snapshot("blocking", A=50, B=0), {}, 5) == B
    assert next_table_to_chunk(snapshot(A=3), {}, 5) is None


def test_table_snapshot_completes_with_its_last_chunk_range() -> None:
    part = with_chunks(TableSnapshot(A), bounds(2), "f")
    one = with_published(part, range_of(0, 1), 10)
    assert (one.status, one.published_chunks, one.rows_published, one.low_batch) == ("reading", 2, 10, 6)
    assert with_published(one, range_of(0, 1), 10) == one
    two = with_published(one, replace(range_of(2, 2), low_batch=8), 1)
    assert (two.status, two.published_chunks, two.rows_published, two.low_batch) == ("completed", 3, 11, 6)


def test_deletion_range_shows_the_progress_of_its_table_snapshot() -> None:
    part = replace(with_chunks(TableSnapshot(A), bounds(2), "f"), delete_missing=True)
    deleted = with_published(part, deletion_of(2, rows=30), 0)
    assert (deleted.status, deleted.published_chunks, deleted.rows_published, deleted.low_batch) == (
        "completed",
        3,
        30,
        6,
    )


def test_table_snapshot_with_changed_columns_ignores_earlier_ranges() -> None:
    part = with_published(with_chunks(TableSnapshot(A), bounds(2), "f"), range_of(0, 1), 10)
    fresh = restarted(part, is_held=False)
    assert (fresh.status, fresh.published_chunks, fresh.rows_published, fresh.low_batch, fresh.bounds) == (
        "waiting",
        0,
        0,
        None,
        (),
    )
    other = with_chunks(fresh, bounds(1), "g")
    assert with_published(other, range_of(0, 1), 10) == other
    deleted = replace(other, delete_missing=True)
    assert with_published(deleted, deletion_of(1), 0) == deleted
    assert with_published(other, replace(range_of(0, 1), fingerprint="g"), 10).status == "completed"


@pytest.mark.parametrize(
    ("part", "is_held", "deletes"),
    [
        (TableSnapshot(A), False, False),
        (TableSnapshot(A), True, True),
        (TableSnapshot(A, delete_missing=True), False, True),
        (TableSnapshot(A, condition="ID > 5"), True, False),
        (TableSnapshot(A, select="SELECT 1 FROM A"), True, False),
    ],
)
def test_restarted_full_snapshot_of_a_held_table_deletes_missing_rows(
    part: TableSnapshot, is_held: bool, deletes: bool
) -> None:
    """This covers rows that it published before, also those of an initial snapshot into an empty target."""
    assert restarted(with_chunks(part, bounds(2), "f"), is_held) == replace(part, delete_missing=deletes)


def test_table_without_a_key_has_one_more_chunk_per_further_read() -> None:
    part = with_chunks(replace(TableSnapshot(A), delete_missing=True), [], "f")
    first = read_of(0, ((3, 6),), needs_another=True)
    one = with_published(part, first, 10)
    assert (one.status, one.published_chunks, one.chunks, one.windows) == ("reading", 1, 2, ((3, 6),))
    assert with_published(one, first, 10) == one
    last = read_of(1, ((3, 6), (6, 7)), rows=10)
    assert with_published(one, replace(last, needs_another_read=True), 2).chunks == 3
    two = with_published(one, last, 2)
    assert (two.status, two.published_chunks, two.chunks, two.rows_published) == ("completed", 2, 2, 12)
    assert with_published(part, last, 2) == two, "the last chunk range shows all of the progress"
    assert restarted(one, is_held=True) == replace(part, status="waiting", fingerprint="")


def test_table_whose_reads_always_need_another_read_fails() -> None:
    part, windows = with_chunks(TableSnapshot(A), [], "f"), Windows()
    for at in range(3):
        assert part.is_open
        windows = (*windows, (at, at + 1))
        part = with_failure(with_published(part, read_of(at, windows, needs_another=True), 1), "it never rests")
    assert (part.status, part.failures) == ("failed", 3)


def test_last_read_of_a_table_without_a_key_resets_its_failures() -> None:
    part = with_chunks(TableSnapshot(A), [], "f")
    part = with_failure(with_published(part, read_of(0, ((0, 1),), needs_another=True), 1), "why")
    assert with_published(part, read_of(1, ((0, 1), (1, 2))), 1).failures == 0


def test_table_snapshot_with_a_deletion_of_missing_rows_completes_with_it() -> None:
    part = with_published(replace(with_chunks(TableSnapshot(A), [], "f"), delete_missing=True), range_of(0, 0), 10)
    assert (part.status, part.published_chunks) == ("reading", 1)
    assert with_published(part, deletion_of(0), 0).status == "completed"


def test_ranges_that_delete_missing_rows_need_no_final_deletion() -> None:
    part = replace(with_chunks(TableSnapshot(A), bounds(2), "f"), delete_missing=True)
    one = with_published(part, range_of(0, 1, deletes_by_range=True), 10)
    assert (one.status, one.published_chunks) == ("reading", 2)
    assert with_published(one, range_of(2, 2, deletes_by_range=True), 1).status == "completed"


def test_snapshot_completes_only_with_every_table() -> None:
    asked = snapshot(A=1, B=1)
    half = asked.with_table(with_published(present(asked.table_snapshot(A)), range_of(0, 0), 1))
    assert half.status == "running"
    assert half.with_table(with_published(present(half.table_snapshot(B)), range_of(0, 0), 1)).status == "completed"
    broken = half.with_table(with_failure(present(half.table_snapshot(B)), "why", tries=1))
    assert (broken.status, broken.reason) == ("failed", "failed: S.B (why)")
    partly = half.with_table(with_stop(present(half.table_snapshot(B)), "why"))
    assert (partly.status, partly.reason) == ("completed", "stopped: S.B (why)")
    ended = asked.with_table(with_stop(present(asked.table_snapshot(A)), "")).with_table(
        with_stop(present(asked.table_snapshot(B)), "by hand")
    )
    assert (ended.status, ended.reason) == ("stopped", "stopped: S.A; stopped: S.B (by hand)")
    mixed = asked.with_table(with_stop(present(asked.table_snapshot(A)), "by hand")).with_table(
        with_failure(present(asked.table_snapshot(B)), "S.B: why", tries=1)
    )
    assert (mixed.status, mixed.reason) == ("failed", "failed: S.B (why); stopped: S.A (by hand)")


def test_reason_of_a_snapshot_is_bounded() -> None:
    asked = Snapshot("s", "incremental", tuple(TableSnapshot(TableId("S", f"T{number}")) for number in range(500)))
    for part in asked.tables:
        asked = asked.with_table(with_failure(part, "a\n b " * 1000, tries=1))
    assert asked.reason.startswith("failed: S.T0 (a b a b")
    assert asked.reason.endswith("...); and 480 more")
    assert len(asked.reason) < 5000


def test_table_snapshot_fails_after_the_allowed_number_of_failures() -> None:
    part = TableSnapshot(A)
    for _ in range(MAX_FAILURES - 1):
        part = with_failure(part, "why")
        assert part.is_open
    assert with_failure(part, "why").status == "failed"
    assert with_failure(part, "why", tries=None).is_open
    assert with_published(replace(part, failures=2, fingerprint="f"), range_of(0, 0), 1).failures == 0


def test_next_published_chunk_clears_the_reason_of_a_failure() -> None:
    part = with_failure(with_chunks(TableSnapshot(A), bounds(2), "f"), "no grant")
    assert (with_published(part, range_of(0, 1), 10).reason, with_published(part, range_of(0, 1), 10).failures) == (
        "",
        0,
    )


def test_last_chunk_range_has_the_rows_read() -> None:
    part = with_chunks(TableSnapshot(A), bounds(2), "f")
    counts = tuple(ChunkCounts((), (), read, read) for read in (7, 4))
    after = with_published(part, replace(range_of(0, 1), counts=counts, read_before=100), 10)
    assert (after.rows_read, after.rows_published) == (111, 10)


def test_snapshot_deletes_no_rows_of_tables_with_conditions() -> None:
    conditions = [{"data-collection": "S.B", "filter": "X = 1"}]
    queue, outcomes = acting(SnapshotQueue(), execute("S.B", "S.*", more={"additional-conditions": conditions}))
    assert outcomes == [("accepted", "")]
    assert queue.next_snapshot({A, B, C}) == Snapshot(
        "1",
        "incremental",
        (TableSnapshot(B, "X = 1"), TableSnapshot(A, delete_missing=True), TableSnapshot(C, delete_missing=True)),
        "source",
        "running",
        5,
    )


def test_blocking_snapshot_reads_a_select_in_place_of_the_table() -> None:
    conditions = [{"data-collection": "S.B", "filter": "SELECT * FROM S.B WHERE X = 1"}]
    asked = execute("S.A", "S.B", type="blocking", more={"additional-conditions": conditions})
    queue, _ = acting(SnapshotQueue(), asked)
    parts = (TableSnapshot(A, delete_missing=True), TableSnapshot(B, select="SELECT * FROM S.B WHERE X = 1"))
    assert queue.next_snapshot({A, B, C}) == Snapshot("1", "blocking", parts, "source", "running", 5)


def test_signal_is_handled_once() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A"))
    again, outcomes = acting(queue, execute("S.A"))
    assert (again, outcomes) == (queue, [("accepted", "")])
    assert queue.known_outcome(replace(execute("S.A"), channel="file")) is None


def test_signal_with_a_used_id_does_not_replace_the_first_outcome() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A"))
    other = execute("S.B")
    assert queue.known_outcome(other) is None
    after, outcome = handle_signal(queue, other, dict.fromkeys((A, B), ""), lambda part: None, 6)
    assert (outcome.status, outcome.id) == ("refused", f"1 #{other.asked}")
    assert outcome.reason == "its id was given before, to another signal. Give each signal an id of its own."
    assert after.snapshots == queue.snapshots
    assert after.known_outcome(other) == outcome
    assert present(after.known_outcome(execute("S.A"))).status == "accepted"
    assert acting(after, other)[0] == after
    assert (
        present(refuse_signal(after, execute("S.C"), SignalError("too old"))[0].known_outcome(execute("S.A"))).status
        == "accepted"
    )
    stopped_too, _ = acting(after, sent("stop-snapshot", id="2"))
    settled, [ended] = close_finished(stopped_too)
    assert (ended.id, ended.status, settled.known_outcome(execute("S.A"))) == ("1", "stopped", ended)


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        ([execute("S.X")], "matches no table"),
        ([execute("S.A", "S.X")], "'S.X' matches no table"),
        (
            [execute("S.A", more={"additional-conditions": [{"data-collection": "S.B", "filter": "X=1"}]})],
            r"the condition for 'S.B' applies to no table of data-collections\. They name S\.A\.",
        ),
        (
            [execute("S.A", more={"additional-conditions": [ALL, {"data-collection": "S.A", "filter": "Y = 1"}]})],
            "the condition for 'S.A' is never used: an earlier one applies to its tables",
        ),
        (
            [execute("S.A", more={"additional-conditions": [ALL], "additional-condition": "Y = 1"})],
            "the additional-condition is never used",
        ),
        (
            [execute("S.A", type="blocking", more={"additional-condition": "SELECT 1", "surrogate-key": "K"})],
            "the surrogate key is never used",
        ),
        (
            [execute("S.*", type="blocking", more={"additional-condition": "SELECT 1"})],
            "one select is given for S.A, S.B",
        ),
        ([sent("stop-snapshot")], "no snapshot.*running"),
        ([execute("S.A"), sent("stop-snapshot", {"data-collections": ["S.B"]}, "2")], r"'S.B': no table .* are S\.A\."),
        ([sent("pause-snapshot")], "no snapshot is running"),
        ([execute("S.A"), sent("resume-snapshot", id="2")], "no snapshot is paused"),
        ([sent("nonsense")], "is unknown"),
        ([execute("S.A"), replace(execute("S.B"), channel="file")], "was requested before"),
    ],
)
def test_impossible_signal_is_refused_and_the_others_are_handled(signals: list[Signal], words: str) -> None:
    before, _ = acting(SnapshotQueue(), *signals[:-1])
    after, [(status, reason)] = acting(before, signals[-1])
    assert status == "refused"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(reason)
    assert after.snapshots == before.snapshots


def over(queue: SnapshotQueue, id_: str, *tables: TableId, end: TableSnapshotStatus = "completed") -> SnapshotQueue:
    """Bring tables of a snapshot to an end."""
    for table in tables:
        [one] = [one for one in queue.snapshots if one.id == id_]
        queue = queue.with_snapshot(one.with_table(replace(present(one.table_snapshot(table)), status=end, reason="x")))
    return queue


def test_a_table_that_is_in_an_open_snapshot_waits_for_its_turn() -> None:
    queue, outcomes = acting(
        SnapshotQueue(), execute("S.A", "S.B"), execute("S.B", "S.C", id="2"), execute("S.B", id="3")
    )
    assert outcomes == [
        ("accepted", ""),
        ("accepted", "S.B waits for snapshot '1'"),
        ("accepted", "S.B waits for snapshot '1'"),
    ]
    assert [queue.tables_in_turn(id_) for id_ in "123"] == [{A, B}, {C}, set()]
    assert [present(queue.next_snapshot({A, B, C}, besides)).id for besides in ((), "1")] == ["1", "2"]
    assert queue.next_snapshot({A, B, C}, ("1", "2")) is None, "nothing of the third has its turn"
    queue = over(queue, "1", B)
    assert [queue.tables_in_turn(id_) for id_ in "123"] == [{A}, {B, C}, set()], "though the first one is not over"
    queue, _ = close_finished(over(queue, "2", B, C))
    assert [queue.tables_in_turn(id_) for id_ in "123"] == [{A}, set(), {B}]
    assert queue.outcomes["source", "3"].status == "accepted"
    assert [(one.id, one.status) for one in close_finished(over(queue, "3", B))[1]] == [("3", "done")]


def test_a_blocking_snapshot_waits_until_all_its_tables_have_their_turn() -> None:
    queue, _ = acting(
        SnapshotQueue(), execute("S.A"), execute("S.A", "S.B", id="2", type="blocking"), execute("S.B", id="3")
    )
    assert queue.next_snapshot({A, B, C}, "1") is None, "it is still before the third"
    queue = over(queue, "1", A)
    assert present(queue.next_snapshot({A, B, C})).id == "2"


def test_requested_tables_wait_for_their_initial_snapshot() -> None:
    queue = add_initial(SnapshotQueue(), [TableSnapshot(A), TableSnapshot(B)], 9)
    queue, outcomes = acting(queue, execute("S.*"))
    assert outcomes == [("accepted", "S.A waits for snapshot 'initial-1'; S.B waits for snapshot 'initial-1'")]
    assert [queue.tables_in_turn(id_) for id_ in ("initial-1", "1")] == [{A, B}, {C}]
    by_time = replace(queue, snapshots=queue.snapshots[::-1])
    assert by_time.tables_in_turn("initial-1") == {A, B}, "whatever the clocks of the senders say"


def test_request_fails_if_an_initial_snapshot_makes_no_progress() -> None:
    """A busy table without a key fails in each tick. The sender of the request gets that answer."""
    queue = add_initial(
        SnapshotQueue(), [TableSnapshot(A, failures=MAX_FAILURES - 1, reason="S.A: busy."), TableSnapshot(B)], 9
    )
    queue, _ = acting(queue, execute("S.A", "S.C"))
    queue, ended = close_finished(over(queue, "1", C))
    assert ended == []
    [initial] = [one for one in queue.snapshots if one.kind == "initial"]
    queue = queue.with_snapshot(
        initial.with_table(with_failure(present(initial.table_snapshot(A)), "S.A: busy.", tries=None))
    )
    queue, [outcome] = close_finished(queue)
    assert (outcome.id, outcome.status) == ("1", "failed")
    assert outcome.reason == "failed: S.A (its initial snapshot has failed 3 times: S.A: busy.)"
    assert queue.tables_in_turn("initial-1") == {A, B}, "the initial snapshot is retried for ever"


def test_stop_ends_running_and_waiting_snapshots() -> None:
    requests = execute("S.A", "S.B"), execute("S.A", id="2"), execute("S.A", "S.B", id="3")
    queue, _ = acting(SnapshotQueue(), *requests, sent("stop-snapshot", {"data-collections": ["S.A"]}, "4"))
    assert [one.status for one in queue.snapshots] == ["running", "stopped", "running"]
    assert [queue.tables_in_turn(id_) for id_ in "13"] == [{B}, set()]
    queue, outcomes = acting(queue, sent("stop-snapshot", id="5"))
    assert outcomes == [("done", "")]
    assert [one.status for one in close_finished(queue)[1]] == ["stopped"] * 3


def test_snapshot_that_waits_for_a_paused_one_continues_after_it() -> None:
    pause = sent("pause-snapshot", {"type": "incremental"}, "3")
    queue, _ = acting(SnapshotQueue(), execute("S.A"), execute("S.A", "S.B", id="2", type="blocking"), pause)
    assert queue.next_snapshot({A, B, C}) is None
    queue, _ = acting(queue, sent("stop-snapshot", {"type": "incremental"}, "4"))
    assert present(queue.next_snapshot({A, B, C})).id == "2"


def test_table_that_cannot_be_read_fails_in_the_snapshot_that_names_it() -> None:
    def check(part: TableSnapshot) -> None:
        assert part.table != B, "its columns are unknown"

    queue, outcomes = acting(SnapshotQueue(), execute("S.*"), check=check, B="S.B: not captured.")
    assert outcomes == [("accepted", "")]
    for table in (A, C):
        queue = queue.with_snapshot(
            queue.open[0].with_table(replace(present(queue.open[0].table_snapshot(table)), status="completed"))
        )
    [ended] = close_finished(queue)[1]
    assert (ended.status, ended.reason) == ("failed", "failed: S.B (not captured.)")


def test_snapshot_of_unreadable_tables_only_is_refused() -> None:
    queue, [(status, reason)] = acting(SnapshotQueue(), execute("S.B"), B="S.B: not captured.")
    assert (status, queue.snapshots) == ("refused", ())
    assert reason == "none of its tables can be read: S.B: not captured. Send it again when that is repaired."


def test_check_at_the_source_refuses() -> None:
    def check(part: TableSnapshot) -> None:
        raise SignalError("no column X")

    queue, [(status, reason)] = acting(SnapshotQueue(), execute("S.A"), check=check)
    assert (status, reason, queue.snapshots) == ("refused", "no column X", ())


def test_any_failure_of_a_signal_is_a_refusal_and_ends_no_tick() -> None:
    def check(part: TableSnapshot) -> None:
        raise RecursionError("too deep")

    queue, [(status, reason)] = acting(SnapshotQueue(), execute("S.A"), check=check)
    assert (status, reason, queue.snapshots) == ("refused", "it cannot be acted on (RecursionError: too deep)", ())


def test_stored_reason_is_bounded() -> None:
    """It is stored in a Variable next to the offsets. Some databases limit its size."""
    _, [(status, reason)] = acting(SnapshotQueue(), sent("x" * 100_000))
    assert (status, len(reason)) == ("refused", 10_000)
    assert reason.startswith("its type 'xxx")


def test_snapshots_wait_for_each_other_and_new_tables_go_first() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A"), execute("S.B", id="2"))
    assert present(queue.next_snapshot({A, B, C})).id == "1"
    queue = add_initial(queue, [TableSnapshot(C)], 9)
    assert (present(queue.next_snapshot({A, B, C})).kind, present(queue.next_snapshot({A, B, C})).tables) == (
        "initial",
        (TableSnapshot(C),),
    )


@pytest.mark.parametrize(("failures", "first"), [((3, 4), "asked"), ((3, 2), "initial-1"), ((2, 3), "initial-1")])
def test_initial_snapshot_without_progress_lets_the_others_go_first(failures: tuple[int, int], first: str) -> None:
    """The read of a busy table without a key may take longer than a tick has for snapshots."""
    parts = [TableSnapshot(table, failures=times) for table, times in zip((A, B), failures, strict=True)]
    queue, _ = acting(add_initial(SnapshotQueue(), parts, 5), execute("S.C", id="asked"))
    assert present(queue.next_snapshot({A, B, C})).id == first
    assert present(queue.next_snapshot({A, B, C}, {"asked"})).id == "initial-1", "it still has its turn"


def test_a_table_removed_from_the_pipeline_counts_as_without_progress() -> None:
    queue, _ = acting(
        add_initial(SnapshotQueue(), [TableSnapshot(A, failures=3), TableSnapshot(B)], 5), execute("S.C", id="asked")
    )
    assert present(queue.next_snapshot({A, B, C})).id == "initial-1"
    assert present(queue.next_snapshot({A, C})).id == "asked"


def test_initial_snapshot_is_found_for_any_plan_and_for_one_plan() -> None:
    queue = add_initial(SnapshotQueue((snapshot(C=1),)), [TableSnapshot(A)], 5)
    assert [queue.has_begun(table) for table in (A, B, C)] == [True, False, False]
    assert [queue.has_begun(A, at_ms) for at_ms in (5, 6)] == [True, False]
    assert queue.is_waiting(TableSnapshot(A))
    assert not any(
        queue.is_waiting(other)
        for other in (
            TableSnapshot(A, delete_missing=True),
            TableSnapshot(A, select="S"),
            TableSnapshot(B),
            TableSnapshot(C),
        )
    )
    [initial] = [one for one in queue.snapshots if one.kind == "initial"]
    begun = queue.with_snapshot(initial.with_table(replace(initial.tables[0], published_chunks=1)))
    assert not begun.is_waiting(TableSnapshot(A)), "it has published something"


def test_a_stopped_initial_snapshot_does_not_leave_its_table_loading() -> None:
    queue = add_initial(SnapshotQueue(), [TableSnapshot(A), TableSnapshot(B)], 1)
    queue = add_initial(queue, [TableSnapshot(A)], 2)
    assert queue.initially_loading == {A, B}
    again = queue.snapshots[1]
    queue = queue.with_snapshot(again.with_table(replace(again.tables[0], status="completed")))
    assert queue.initially_loading == {B}, "it was stopped in the first snapshot"


def test_closed_snapshots_keep_their_ids_and_initial_tables() -> None:
    past = SnapshotQueue(closed_ids=frozenset({"initial-1", "initial-2", "once"}), initially_begun=frozenset({A}))
    queue = add_initial(past, [TableSnapshot(B)], 9)
    assert [snapshot.id for snapshot in queue.snapshots] == ["initial-4"], "an id is never used again"
    assert [queue.has_begun(table) for table in (A, B, C)] == [True, True, False]
    assert not queue.has_begun(A, 9), "it was reported, so it was not begun by this plan"
    _, [(status, reason)] = acting(past, execute("S.A", id="once"))
    assert (status, reason[:31]) == ("refused", "a snapshot 'once' was requested")


def test_an_initial_snapshot_takes_no_id_of_a_signal() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A", id="initial-2"))
    queue = add_initial(queue, [TableSnapshot(B)], 9)
    assert {snapshot.id for snapshot in queue.snapshots} == {"initial-2", "initial-3"}


def test_stop_ends_all_or_some_tables_and_the_signals_outcome_follows() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A", "S.B"), sent("stop-snapshot", {"data-collections": ["S.A"]}, "2"))
    assert [part.status for part in present(queue.next_snapshot({A, B, C})).tables] == ["stopped", "waiting"]
    assert close_finished(queue)[1] == []
    queue, _ = acting(queue, sent("stop-snapshot", id="3"))
    queue, [outcome] = close_finished(queue)
    assert (outcome.id, outcome.channel, outcome.status) == ("1", "source", "stopped")
    assert outcome.reason == "stopped: S.A (stopped by a signal); stopped: S.B (stopped by a signal)"
    assert close_finished(queue)[1] == []


def test_signal_of_a_snapshot_with_stopped_tables_is_done_and_names_them() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A", "S.B"), sent("stop-snapshot", {"data-collections": ["S.A"]}, "2"))
    part = replace(with_chunks(present(queue.snapshots[0].table_snapshot(B)), [], "f"), delete_missing=False)
    queue = queue.with_snapshot(queue.snapshots[0].with_table(with_published(part, range_of(0, 0), 1)))
    [outcome] = close_finished(queue)[1]
    assert (outcome.status, outcome.reason) == ("done", "stopped: S.A (stopped by a signal)")


def test_stop_ends_the_named_tables_and_reports_names_without_a_match() -> None:
    stop = sent("stop-snapshot", {"data-collections": ["S.A", "S.B", "S.X.*"]}, "2")
    queue, outcomes = acting(SnapshotQueue(), execute("S.A", "S.C"), stop)
    assert outcomes[1] == ("done", "'S.B', 'S.X.*': no table of an open requested snapshot")
    assert [part.status for part in queue.snapshots[0].tables] == ["stopped", "waiting"]


def test_pause_and_resume() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A"), sent("pause-snapshot", id="2"))
    assert queue.next_snapshot({A, B, C}) is None
    assert len(queue.open) == 1
    queue, outcomes = acting(queue, sent("resume-snapshot", id="3"))
    assert outcomes == [("done", "")]
    assert present(queue.next_snapshot({A, B, C})).id == "1"


@pytest.mark.parametrize("kind", ["stop-snapshot", "pause-snapshot"])
def test_signal_with_a_kind_affects_only_snapshots_of_that_kind(kind: str) -> None:
    asked = execute("S.A"), execute("S.B", id="2", type="blocking")
    queue, _ = acting(SnapshotQueue(), *asked, sent(kind, {"type": "blocking"}, "3"))
    one, two = queue.snapshots
    assert (one.status, two.status) == ("running", "stopped" if kind == "stop-snapshot" else "paused")
    _, [(status, reason)] = acting(queue, sent(kind, {"type": "blocking"}, "4"))
    assert (status, "no blocking snapshot" in reason) == ("refused", True)


def test_resume_of_a_kind() -> None:
    queue, _ = acting(
        SnapshotQueue(), execute("S.A"), execute("S.B", id="2", type="blocking"), sent("pause-snapshot", id="3")
    )
    queue, _ = acting(queue, sent("resume-snapshot", {"type": "incremental"}, "4"))
    assert [snapshot.status for snapshot in queue.snapshots] == ["running", "paused"]


def test_pause_does_not_affect_the_initial_snapshot() -> None:
    queue = add_initial(SnapshotQueue(), [TableSnapshot(A)], 9)
    assert acting(queue, sent("pause-snapshot"))[1][0][0] == "refused"
    assert acting(queue, sent("stop-snapshot"))[1][0][0] == "refused"


def test_table_snapshotted_again_is_stopped_in_its_earlier_snapshot() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A", "S.B"))
    queue = add_initial(queue, [TableSnapshot(A, delete_missing=True)], 9)
    assert present(queue.snapshots[0].table_snapshot(A)).status == "stopped"
    assert present(queue.holder(A)).tables == (TableSnapshot(A, delete_missing=True),)
    assert present(queue.holder(B)).id == "1"


def test_table_snapshotted_again_is_stopped_in_waiting_snapshots() -> None:
    queue, _ = acting(SnapshotQueue(), execute("S.A"), execute("S.A", "S.B", id="2"))
    queue = add_initial(queue, [TableSnapshot(A, delete_missing=True)], 9)
    assert [present(one.table_snapshot(A)).status for one in queue.snapshots] == ["stopped", "stopped", "waiting"]
    assert close_finished(queue)[1][0].reason == "stopped: S.A (its table is snapshotted again)"


def test_simultaneous_snapshots_have_the_order_of_their_requests() -> None:
    """The journal orders them only by their time."""
    queue, _ = acting(SnapshotQueue(), execute("S.A", id="b"), execute("S.B", id="a"))
    assert sorted(queue.snapshots, key=lambda one: (one.started_at_ms, one.id)) == [*queue.snapshots]


def test_a_chunk_range_with_abandoned_bounds_does_not_match_new_bounds() -> None:
    """Columns that changed and changed back have the same fingerprint. The rows may differ by then."""
    part = with_chunks(TableSnapshot(A), [("9",), ("19",)], "f")
    old = KeyedChunks("s", "initial", 0, 0, LOW, 0, 0, "f", counts=(ChunkCounts((), ("9",), 10, 10),))
    assert has_same_bounds(with_published(part, old, 10), old)
    other = with_chunks(restarted(part, is_held=True), [("9",)], "other")
    again = with_chunks(restarted(other, is_held=True), [("24",)], "f")
    assert not has_same_bounds(again, old)
    last = replace(old, first=2, last=2, counts=(ChunkCounts(("19",), (), 5, 5),))
    assert has_same_bounds(part, last)
    assert not has_same_bounds(again, last), "there are fewer chunks now"
    for free in (read_of(5, ((0, 1),)), deletion_of(5)):
        assert has_same_bounds(again, free), "it covers the whole table"


@pytest.mark.parametrize(("kind", "command"), [("restart-table", "restart"), ("restore-offset", "restore")])
def test_change_of_an_offset_by_another_channel_is_refused(kind: str, command: str) -> None:
    queue, [(status, reason)] = acting(SnapshotQueue(), sent(kind, {"data-collections": ["S.A"]}))
    assert status == "refused"
    assert "only taken from the conf of an Airflow run" in reason
    assert f"`db2cdc offset {command}`" in reason
    assert queue.open == ()
