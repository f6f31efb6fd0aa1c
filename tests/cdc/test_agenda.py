import json
from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.agenda import Agenda, act, begin_initial, refuse, settle
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.part import (
    MAX_FAILURES,
    ChunkCounts,
    Part,
    Reading,
    Slice,
    chunked,
    failed,
    from_start,
    is_cut_alike,
    published,
    stopped,
)
from airflow_provider_db2cdc.cdc.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot import Snapshot, is_together, next_group, next_to_chunk
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError

A, B, C = (TableId("S", name) for name in "ABC")
LOW = Lsn(bytes(16))


def bounds(count):
    return [(str(number),) for number in range(count)]


def snapshot(kind="incremental", **chunks):
    parts = [
        chunked(Part(TableId("S", name)), bounds(count - 1), "f") if count else Part(TableId("S", name))
        for name, count in chunks.items()
    ]
    return Snapshot("s", kind, tuple(parts))


def sent(kind, data=None, id="1", channel="source"):
    return Signal(id, kind, json.dumps(data or {}), channel)


def execute(*patterns, id="1", **data):
    return sent("execute-snapshot", {"data-collections": list(patterns), **data}, id)


ALL = {"data-collection": r"S\..*", "filter": "X = 1"}


def acting(agenda, *signals, check=lambda part: None, **refused):
    tables, outcomes = {table: refused.get(table.name, "") for table in (A, B, C)}, []
    for signal in signals:
        agenda, outcome = act(agenda, signal, tables, check, 5)
        outcomes.append((outcome.status, outcome.reason))
    return agenda, outcomes


def slice_of(first, last, sweep=False):
    return Slice("s", "incremental", first, last, LOW, 6, 6, "f", 10 * first // 2, 3, sweep=sweep)


def test_group_spans_the_end_of_one_table_and_the_beginning_of_others():
    asked = snapshot(A=3, B=1, C=4)
    assert next_group(asked, {}, 5) == [Reading(A, 0, 2), Reading(B, 0, 0), Reading(C, 0, 0)]
    assert next_group(asked, {A: 3, B: 1, C: 1}, 5) == [Reading(C, 1, 3)]
    assert next_group(asked, {A: 3, B: 1, C: 4}, 5) == []


def test_group_begins_behind_what_is_published():
    asked = snapshot(A=3)
    part = published(asked.part(A), slice_of(0, 1), 10)
    assert next_group(asked.with_part(part), {}, 5) == [Reading(A, 2, 2)]


def test_blocking_snapshot_is_one_group():
    assert next_group(snapshot("blocking", A=30, B=40), {}, 5) == [Reading(A, 0, 29), Reading(B, 0, 39)]


def test_blocking_snapshots_tables_come_to_one_mark_or_stay():
    asked = snapshot("blocking", A=3, B=1, C=0)
    assert is_together(asked, [A, B, C])
    assert not is_together(asked, [A, B])
    assert is_together(snapshot(A=3, B=1), [A])
    over = asked.with_part(stopped(asked.part(B), "")).with_part(failed(asked.part(C), "", tries=1))
    assert is_together(over, [A])
    swept = asked.with_part(replace(asked.part(A), sweep=True, done=3))
    assert is_together(swept, [B, C]), "of A nothing is left to read"


def test_tables_are_chunked_only_as_far_as_a_group_needs():
    assert next_to_chunk(snapshot(A=0, B=0), {}, 5) == A
    assert next_to_chunk(snapshot(A=3, B=0), {}, 5) == B
    assert next_to_chunk(snapshot(A=5, B=0), {}, 5) is None
    assert next_to_chunk(snapshot(A=5, B=0), {A: 5}, 5) == B
    assert next_to_chunk(snapshot("blocking", A=50, B=0), {}, 5) == B
    assert next_to_chunk(snapshot(A=3), {}, 5) is None


def test_part_advances_with_its_slices_and_completes_with_the_last():
    part = chunked(Part(A), bounds(2), "f")
    one = published(part, slice_of(0, 1), 10)
    assert (one.status, one.done, one.rows, one.low_batch) == ("reading", 2, 10, 6)
    assert published(one, slice_of(0, 1), 10) == one
    two = published(one, replace(slice_of(2, 2), low_batch=8), 1)
    assert (two.status, two.done, two.rows, two.low_batch) == ("completed", 3, 11, 6)


def test_sweep_alone_tells_how_far_its_part_is():
    part = replace(chunked(Part(A), bounds(2), "f"), sweep=True)
    swept = published(part, replace(slice_of(0, 2, sweep=True), rows_before=30), 0)
    assert (swept.status, swept.done, swept.rows, swept.low_batch) == ("completed", 3, 30, 6)


def test_part_whose_columns_changed_begins_anew_and_forgets_slices_of_before():
    part = published(chunked(Part(A), bounds(2), "f"), slice_of(0, 1), 10)
    anew = from_start(part, is_held=False)
    assert (anew.status, anew.done, anew.rows, anew.low_batch, anew.bounds) == ("waiting", 0, 0, None, ())
    other = chunked(anew, bounds(1), "g")
    assert published(other, slice_of(0, 1), 10) == other
    swept = replace(other, sweep=True)
    assert published(swept, slice_of(0, 1, sweep=True), 0) == swept
    assert published(other, replace(slice_of(0, 1), fingerprint="g"), 10).status == "completed"


@pytest.mark.parametrize(
    ("part", "is_held", "sweep"),
    [
        (Part(A), False, False),
        (Part(A), True, True),
        (Part(A, sweep=True), False, True),
        (Part(A, condition="ID > 5"), True, False),
        (Part(A, select="SELECT 1 FROM A"), True, False),
    ],
)
def test_part_that_begins_anew_deletes_what_is_gone_where_it_reads_all_of_a_table_that_is_held(
    part: Part, is_held: bool, sweep: bool
) -> None:
    """Also of what it published before, be it an initial snapshot's, which found nothing there when it began."""
    assert from_start(chunked(part, bounds(2), "f"), is_held) == replace(part, sweep=sweep)


def test_part_without_a_key_has_a_chunk_more_for_each_read_that_it_needs():
    part = chunked(replace(Part(A), sweep=True), [], "f")
    first = replace(slice_of(0, 0), windows=((3, 6),), again=True)
    one = published(part, first, 10)
    assert (one.status, one.done, one.chunks, one.windows) == ("reading", 1, 2, ((3, 6),))
    assert published(one, first, 10) == one
    last = replace(slice_of(1, 1), windows=((3, 6), (6, 7)), rows_before=10)
    assert published(one, replace(last, again=True), 2).chunks == 3
    two = published(one, last, 2)
    assert (two.status, two.done, two.chunks, two.rows) == ("completed", 2, 2, 12)
    assert published(part, last, 2) == two, "the last slice alone tells how far the part is"
    assert from_start(one, is_held=True) == replace(part, status="waiting", fingerprint="")


def test_part_whose_reads_always_need_another_one_fails_as_any_other():
    part, windows = chunked(Part(A), [], "f"), ()
    for at in range(3):
        assert part.open
        windows = (*windows, (at, at + 1))
        part = failed(published(part, replace(slice_of(at, at), windows=windows, again=True), 1), "it never rests")
    assert (part.status, part.failures) == ("failed", 3)


def test_part_that_a_read_brings_to_rest_forgets_its_failures():
    part = failed(
        published(chunked(Part(A), [], "f"), replace(slice_of(0, 0), windows=((0, 1),), again=True), 1), "why"
    )
    assert published(part, replace(slice_of(1, 1), windows=((0, 1), (1, 2))), 1).failures == 0


def test_part_with_a_sweep_completes_with_it():
    part = published(replace(chunked(Part(A), [], "f"), sweep=True), slice_of(0, 0), 10)
    assert (part.status, part.done) == ("reading", 1)
    assert published(part, slice_of(0, 0, sweep=True), 0).status == "completed"


def test_part_whose_groups_tell_what_is_gone_needs_no_sweep():
    part = replace(chunked(Part(A), bounds(2), "f"), sweep=True)
    one = published(part, replace(slice_of(0, 1), whole=True), 10)
    assert (one.status, one.done) == ("reading", 2)
    assert published(one, replace(slice_of(2, 2), whole=True), 1).status == "completed"


def test_snapshot_completes_only_with_every_part():
    asked = snapshot(A=1, B=1)
    half = asked.with_part(published(asked.part(A), slice_of(0, 0), 1))
    assert half.status == "running"
    assert half.with_part(published(half.part(B), slice_of(0, 0), 1)).status == "completed"
    broken = half.with_part(failed(half.part(B), "why", tries=1))
    assert (broken.status, broken.reason) == ("failed", "failed: S.B (why)")
    partly = half.with_part(stopped(half.part(B), "why"))
    assert (partly.status, partly.reason) == ("completed", "stopped: S.B (why)")
    ended = asked.with_part(stopped(asked.part(A), "")).with_part(stopped(asked.part(B), "by hand"))
    assert (ended.status, ended.reason) == ("stopped", "stopped: S.A; stopped: S.B (by hand)")
    mixed = asked.with_part(stopped(asked.part(A), "by hand")).with_part(failed(asked.part(B), "S.B: why", tries=1))
    assert (mixed.status, mixed.reason) == ("failed", "failed: S.B (why); stopped: S.A (by hand)")


def test_reason_of_a_snapshot_is_not_longer_than_a_log_line_may_be():
    asked = Snapshot("s", "incremental", tuple(Part(TableId("S", f"T{number}")) for number in range(500)))
    for part in asked.parts:
        asked = asked.with_part(failed(part, "a\n b " * 1000, tries=1))
    assert asked.reason.startswith("failed: S.T0 (a b a b")
    assert asked.reason.endswith("...); and 480 more")
    assert len(asked.reason) < 5000


def test_failure_is_forgiven_but_not_for_ever():
    part = Part(A)
    for _ in range(MAX_FAILURES - 1):
        part = failed(part, "why")
        assert part.open
    assert failed(part, "why").status == "failed"
    assert failed(part, "why", tries=None).open
    assert published(replace(part, failures=2, fingerprint="f"), slice_of(0, 0), 1).failures == 0


def test_reason_of_a_failure_is_forgotten_with_the_next_published_chunk():
    part = failed(chunked(Part(A), bounds(2), "f"), "no grant")
    assert (published(part, slice_of(0, 1), 10).reason, published(part, slice_of(0, 1), 10).failures) == ("", 0)


def test_what_was_read_is_told_by_the_last_slice_alone():
    part = chunked(Part(A), bounds(2), "f")
    counts = tuple(ChunkCounts((), (), read, read) for read in (7, 4))
    after = published(part, replace(slice_of(0, 1), counts=counts, read_before=100), 10)
    assert (after.read, after.rows) == (111, 10)


def test_execute_makes_a_snapshot_with_conditions_and_without_a_sweep_for_them():
    conditions = [{"data-collection": "S.B", "filter": "X = 1"}]
    agenda, outcomes = acting(Agenda(), execute("S.B", "S.*", **{"additional-conditions": conditions}))
    assert outcomes == [("accepted", "")]
    assert agenda.next_snapshot({A, B, C}) == Snapshot(
        "1", "incremental", (Part(B, "X = 1"), Part(A, sweep=True), Part(C, sweep=True)), "source", "running", 5
    )


def test_a_filter_that_is_a_select_stands_in_the_tables_place_of_a_blocking_snapshot():
    conditions = [{"data-collection": "S.B", "filter": "SELECT * FROM S.B WHERE X = 1"}]
    asked = execute("S.A", "S.B", type="blocking", **{"additional-conditions": conditions})
    agenda, _ = acting(Agenda(), asked)
    parts = (Part(A, sweep=True), Part(B, select="SELECT * FROM S.B WHERE X = 1"))
    assert agenda.next_snapshot({A, B, C}) == Snapshot("1", "blocking", parts, "source", "running", 5)


def test_signal_is_acted_on_once():
    agenda, _ = acting(Agenda(), execute("S.A"))
    again, outcomes = acting(agenda, execute("S.A"))
    assert (again, outcomes) == (agenda, [("accepted", "")])
    assert agenda.known(replace(execute("S.A"), channel="file")) is None


def test_signal_under_an_id_that_was_given_before_is_refused_once_and_the_first_one_keeps_its_outcome():
    agenda, _ = acting(Agenda(), execute("S.A"))
    other = execute("S.B")
    assert agenda.known(other) is None
    after, outcome = act(agenda, other, dict.fromkeys((A, B), ""), lambda part: None, 6)
    assert (outcome.status, outcome.id) == ("refused", f"1 #{other.asked}")
    assert outcome.reason == "its id was given before, to another signal. Give each signal an id of its own."
    assert after.snapshots == agenda.snapshots
    assert after.known(other) == outcome
    assert after.known(execute("S.A")).status == "accepted"
    assert acting(after, other)[0] == after
    assert refuse(after, execute("S.C"), SignalError("too old"))[0].known(execute("S.A")).status == "accepted"
    stopped_too, _ = acting(after, sent("stop-snapshot", id="2"))
    settled, [ended] = settle(stopped_too)
    assert (ended.id, ended.status, settled.known(execute("S.A"))) == ("1", "stopped", ended)


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        ([execute("S.X")], "matches no table"),
        ([execute("S.A", "S.X")], "'S.X' matches no table"),
        (
            [execute("S.A", **{"additional-conditions": [{"data-collection": "S.B", "filter": "X=1"}]})],
            r"the condition for 'S.B' is for no table of data-collections\. They name S\.A\.",
        ),
        (
            [execute("S.A", **{"additional-conditions": [ALL, {"data-collection": "S.A", "filter": "Y = 1"}]})],
            "the condition for 'S.A' is never used: an earlier one counts for its tables",
        ),
        (
            [execute("S.A", **{"additional-conditions": [ALL], "additional-condition": "Y = 1"})],
            "the additional-condition is never used",
        ),
        (
            [execute("S.A", type="blocking", **{"additional-condition": "SELECT 1", "surrogate-key": "K"})],
            "the surrogate key is never used",
        ),
        ([execute("S.*", type="blocking", **{"additional-condition": "SELECT 1"})], "one select is given for S.A, S.B"),
        ([sent("stop-snapshot")], "no snapshot.*running"),
        ([execute("S.A"), sent("stop-snapshot", {"data-collections": ["S.B"]}, "2")], r"'S.B': no table .* are S\.A\."),
        ([sent("pause-snapshot")], "no snapshot is running"),
        ([execute("S.A"), sent("resume-snapshot", id="2")], "no snapshot is paused"),
        ([sent("nonsense")], "is unknown"),
        ([execute("S.A"), replace(execute("S.B"), channel="file")], "was asked for before"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_work_goes_on(signals, words):
    before, _ = acting(Agenda(), *signals[:-1])
    after, [(status, reason)] = acting(before, signals[-1])
    assert status == "refused"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(reason)
    assert after.snapshots == before.snapshots


def over(agenda, id_, *tables, end="completed"):
    """Bring tables of a snapshot to an end."""
    for table in tables:
        [one] = [one for one in agenda.snapshots if one.id == id_]
        agenda = agenda.with_snapshot(one.with_part(replace(one.part(table), status=end, reason="x")))
    return agenda


def test_a_table_that_is_in_an_open_snapshot_waits_for_its_turn():
    agenda, outcomes = acting(Agenda(), execute("S.A", "S.B"), execute("S.B", "S.C", id="2"), execute("S.B", id="3"))
    assert outcomes == [
        ("accepted", ""),
        ("accepted", "S.B waits for snapshot '1'"),
        ("accepted", "S.B waits for snapshot '1'"),
    ]
    assert [agenda.held_by(id_) for id_ in "123"] == [{A, B}, {C}, set()]
    assert [agenda.next_snapshot({A, B, C}, besides).id for besides in ((), "1")] == ["1", "2"]
    assert agenda.next_snapshot({A, B, C}, ("1", "2")) is None, "nothing of the third has its turn"
    agenda = over(agenda, "1", B)
    assert [agenda.held_by(id_) for id_ in "123"] == [{A}, {B, C}, set()], "though the first one is not over"
    agenda, _ = settle(over(agenda, "2", B, C))
    assert [agenda.held_by(id_) for id_ in "123"] == [{A}, set(), {B}]
    assert agenda.outcomes["source", "3"].status == "accepted"
    assert [(one.id, one.status) for one in settle(over(agenda, "3", B))[1]] == [("3", "done")]


def test_a_blocking_snapshot_waits_until_all_its_tables_have_their_turn():
    agenda, _ = acting(Agenda(), execute("S.A"), execute("S.A", "S.B", id="2", type="blocking"), execute("S.B", id="3"))
    assert agenda.next_snapshot({A, B, C}, "1") is None, "it keeps its place before the third"
    agenda = over(agenda, "1", A)
    assert agenda.next_snapshot({A, B, C}).id == "2"


def test_tables_of_an_initial_snapshot_are_asked_for_after_it():
    agenda = begin_initial(Agenda(), [Part(A), Part(B)], 9)
    agenda, outcomes = acting(agenda, execute("S.*"))
    assert outcomes == [("accepted", "S.A waits for snapshot 'initial-1'; S.B waits for snapshot 'initial-1'")]
    assert [agenda.held_by(id_) for id_ in ("initial-1", "1")] == [{A, B}, {C}]
    by_time = replace(agenda, snapshots=agenda.snapshots[::-1])
    assert by_time.held_by("initial-1") == {A, B}, "whatever the clocks of those say who asked"


def test_what_is_asked_of_a_table_waits_no_longer_for_an_initial_snapshot_that_never_gets_on():
    """A busy table without a key fails in each tick; whoever asked for it, and for others, is told."""
    agenda = begin_initial(Agenda(), [Part(A, failures=MAX_FAILURES - 1, reason="S.A: busy."), Part(B)], 9)
    agenda, _ = acting(agenda, execute("S.A", "S.C"))
    agenda, ended = settle(over(agenda, "1", C))
    assert ended == []
    [initial] = [one for one in agenda.snapshots if one.kind == "initial"]
    agenda = agenda.with_snapshot(initial.with_part(failed(initial.part(A), "S.A: busy.", tries=None)))
    agenda, [outcome] = settle(agenda)
    assert (outcome.id, outcome.status) == ("1", "failed")
    assert outcome.reason == "failed: S.A (its initial snapshot has failed 3 times: S.A: busy.)"
    assert agenda.held_by("initial-1") == {A, B}, "which is tried for ever"


def test_stop_ends_what_runs_and_what_waits():
    queue = execute("S.A", "S.B"), execute("S.A", id="2"), execute("S.A", "S.B", id="3")
    agenda, _ = acting(Agenda(), *queue, sent("stop-snapshot", {"data-collections": ["S.A"]}, "4"))
    assert [one.status for one in agenda.snapshots] == ["running", "stopped", "running"]
    assert [agenda.held_by(id_) for id_ in "13"] == [{B}, set()]
    agenda, outcomes = acting(agenda, sent("stop-snapshot", id="5"))
    assert outcomes == [("done", "")]
    assert [one.status for one in settle(agenda)[1]] == ["stopped"] * 3


def test_what_waits_for_a_paused_snapshot_goes_on_after_it():
    pause = sent("pause-snapshot", {"type": "incremental"}, "3")
    agenda, _ = acting(Agenda(), execute("S.A"), execute("S.A", "S.B", id="2", type="blocking"), pause)
    assert agenda.next_snapshot({A, B, C}) is None
    agenda, _ = acting(agenda, sent("stop-snapshot", {"type": "incremental"}, "4"))
    assert agenda.next_snapshot({A, B, C}).id == "2"


def test_table_that_cannot_be_read_fails_in_the_snapshot_that_names_it():
    def check(part):
        assert part.table != B, "nothing is known of its columns"

    agenda, outcomes = acting(Agenda(), execute("S.*"), check=check, B="S.B: not captured.")
    assert outcomes == [("accepted", "")]
    for table in (A, C):
        agenda = agenda.with_snapshot(agenda.open[0].with_part(replace(agenda.open[0].part(table), status="completed")))
    [ended] = settle(agenda)[1]
    assert (ended.status, ended.reason) == ("failed", "failed: S.B (not captured.)")


def test_snapshot_of_tables_none_of_which_can_be_read_is_refused():
    agenda, [(status, reason)] = acting(Agenda(), execute("S.B"), B="S.B: not captured.")
    assert (status, agenda.snapshots) == ("refused", ())
    assert reason == "nothing of it can be read: S.B: not captured. Give it again once that is mended."


def test_check_at_the_source_refuses():
    def check(part):
        raise SignalError("no column X")

    agenda, [(status, reason)] = acting(Agenda(), execute("S.A"), check=check)
    assert (status, reason, agenda.snapshots) == ("refused", "no column X", ())


def test_signal_that_fails_in_any_way_is_refused_and_ends_no_tick():
    def check(part):
        raise RecursionError("too deep")

    agenda, [(status, reason)] = acting(Agenda(), execute("S.A"), check=check)
    assert (status, reason, agenda.snapshots) == ("refused", "it cannot be acted on (RecursionError: too deep)", ())


def test_reason_is_not_kept_at_any_length():
    """It is kept in a Variable beside the offsets, which some databases limit."""
    _, [(status, reason)] = acting(Agenda(), sent("x" * 100_000))
    assert (status, len(reason)) == ("refused", 10_000)
    assert reason.startswith("its type 'xxx")


def test_snapshots_wait_for_each_other_and_new_tables_go_first():
    agenda, _ = acting(Agenda(), execute("S.A"), execute("S.B", id="2"))
    assert agenda.next_snapshot({A, B, C}).id == "1"
    agenda = begin_initial(agenda, [Part(C)], 9)
    assert (agenda.next_snapshot({A, B, C}).kind, agenda.next_snapshot({A, B, C}).parts) == ("initial", (Part(C),))


@pytest.mark.parametrize(("failures", "first"), [((3, 4), "asked"), ((3, 2), "initial-1"), ((2, 3), "initial-1")])
def test_initial_snapshot_of_which_no_table_ever_gets_on_lets_the_others_go_first(failures, first):
    """A read of a table without a key that is never at rest may outlast the time that each tick has for snapshots."""
    parts = [Part(table, failures=times) for table, times in zip((A, B), failures, strict=True)]
    agenda, _ = acting(begin_initial(Agenda(), parts, 5), execute("S.C", id="asked"))
    assert agenda.next_snapshot({A, B, C}).id == first
    assert agenda.next_snapshot({A, B, C}, {"asked"}).id == "initial-1", "it has its turn all the same"


def test_a_table_that_was_taken_out_of_the_pipeline_does_not_get_on_either():
    agenda, _ = acting(begin_initial(Agenda(), [Part(A, failures=3), Part(B)], 5), execute("S.C", id="asked"))
    assert agenda.next_snapshot({A, B, C}).id == "initial-1"
    assert agenda.next_snapshot({A, C}).id == "asked"


def test_initial_snapshots_of_a_table_are_those_of_any_plan_or_of_one():
    agenda = begin_initial(Agenda((snapshot(C=1),)), [Part(A)], 5)
    assert [agenda.has_begun(table) for table in (A, B, C)] == [True, False, False]
    assert [agenda.has_begun(A, at_ms) for at_ms in (5, 6)] == [True, False]
    assert agenda.is_waiting(Part(A))
    assert not any(agenda.is_waiting(other) for other in (Part(A, sweep=True), Part(A, select="S"), Part(B), Part(C)))
    [initial] = [one for one in agenda.snapshots if one.kind == "initial"]
    begun = agenda.with_snapshot(initial.with_part(replace(initial.parts[0], done=1)))
    assert not begun.is_waiting(Part(A)), "it has published something"


def test_what_batches_have_told_that_were_left_is_looked_for_by_whichever_snapshot_comes_to_its_end():
    agenda = begin_initial(Agenda(), [Part(A, sweep=True, left=(7,)), Part(B)], 5)
    assert agenda.is_waiting(Part(A, sweep=True))
    assert agenda.is_waiting(Part(A, sweep=True, left=(7,)))
    assert not agenda.is_waiting(Part(A, sweep=True, left=(7, 9))), "it does not know of one of them"
    agenda = begin_initial(agenda, [Part(A, sweep=True, left=(9,)), Part(B)], 6)
    assert agenda.snapshots[1].parts == (Part(A, sweep=True, left=(7, 9)), Part(B))
    assert from_start(agenda.snapshots[1].parts[0], is_held=True) == Part(A, sweep=True, left=(7, 9))


def test_a_table_that_is_begun_anew_elsewhere_is_not_being_filled_here():
    agenda = begin_initial(Agenda(), [Part(A), Part(B)], 1)
    agenda = begin_initial(agenda, [Part(A)], 2)
    assert agenda.filling == {A, B}
    again = agenda.snapshots[1]
    agenda = agenda.with_snapshot(again.with_part(replace(again.parts[0], status="completed")))
    assert agenda.filling == {B}, "the first one's part of it was stopped, and is no one's any more"


def test_what_is_over_and_told_of_keeps_its_name_and_its_tables():
    past = Agenda(past=frozenset({"initial-1", "initial-2", "once"}), begun=frozenset({A}))
    agenda = begin_initial(past, [Part(B)], 9)
    assert [snapshot.id for snapshot in agenda.snapshots] == ["initial-4"], "a name never comes again"
    assert [agenda.has_begun(table) for table in (A, B, C)] == [True, True, False]
    assert not agenda.has_begun(A, 9), "it was told of, so it was no try of this plan"
    _, [(status, reason)] = acting(past, execute("S.A", id="once"))
    assert (status, reason[:32]) == ("refused", "a snapshot 'once' was asked for ")


def test_an_initial_snapshot_takes_no_name_that_a_signal_has():
    agenda, _ = acting(Agenda(), execute("S.A", id="initial-2"))
    agenda = begin_initial(agenda, [Part(B)], 9)
    assert {snapshot.id for snapshot in agenda.snapshots} == {"initial-2", "initial-3"}


def test_stop_ends_all_or_some_tables_and_the_signals_outcome_follows():
    agenda, _ = acting(Agenda(), execute("S.A", "S.B"), sent("stop-snapshot", {"data-collections": ["S.A"]}, "2"))
    assert [part.status for part in agenda.next_snapshot({A, B, C}).parts] == ["stopped", "waiting"]
    assert settle(agenda)[1] == []
    agenda, _ = acting(agenda, sent("stop-snapshot", id="3"))
    agenda, [outcome] = settle(agenda)
    assert (outcome.id, outcome.channel, outcome.status) == ("1", "source", "stopped")
    assert outcome.reason == "stopped: S.A (stopped by a signal); stopped: S.B (stopped by a signal)"
    assert settle(agenda)[1] == []


def test_signal_whose_snapshot_left_tables_out_is_done_and_says_which():
    agenda, _ = acting(Agenda(), execute("S.A", "S.B"), sent("stop-snapshot", {"data-collections": ["S.A"]}, "2"))
    part = replace(chunked(agenda.snapshots[0].part(B), [], "f"), sweep=False)
    agenda = agenda.with_snapshot(agenda.snapshots[0].with_part(published(part, slice_of(0, 0), 1)))
    [outcome] = settle(agenda)[1]
    assert (outcome.status, outcome.reason) == ("done", "stopped: S.A (stopped by a signal)")


def test_stop_ends_what_it_names_and_says_what_named_nothing():
    stop = sent("stop-snapshot", {"data-collections": ["S.A", "S.B", "S.X.*"]}, "2")
    agenda, outcomes = acting(Agenda(), execute("S.A", "S.C"), stop)
    assert outcomes[1] == ("done", "'S.B', 'S.X.*': no table of any open snapshot that was asked for")
    assert [part.status for part in agenda.snapshots[0].parts] == ["stopped", "waiting"]


def test_pause_and_resume():
    agenda, _ = acting(Agenda(), execute("S.A"), sent("pause-snapshot", id="2"))
    assert agenda.next_snapshot({A, B, C}) is None
    assert len(agenda.open) == 1
    agenda, outcomes = acting(agenda, sent("resume-snapshot", id="3"))
    assert outcomes == [("done", "")]
    assert agenda.next_snapshot({A, B, C}).id == "1"


@pytest.mark.parametrize("kind", ["stop-snapshot", "pause-snapshot"])
def test_signal_of_a_kind_is_about_snapshots_of_that_kind_alone(kind):
    asked = execute("S.A"), execute("S.B", id="2", type="blocking")
    agenda, _ = acting(Agenda(), *asked, sent(kind, {"type": "blocking"}, "3"))
    one, two = agenda.snapshots
    assert (one.status, two.status) == ("running", "stopped" if kind == "stop-snapshot" else "paused")
    _, [(status, reason)] = acting(agenda, sent(kind, {"type": "blocking"}, "4"))
    assert (status, "no blocking snapshot" in reason) == ("refused", True)


def test_resume_of_a_kind():
    agenda, _ = acting(
        Agenda(), execute("S.A"), execute("S.B", id="2", type="blocking"), sent("pause-snapshot", id="3")
    )
    agenda, _ = acting(agenda, sent("resume-snapshot", {"type": "incremental"}, "4"))
    assert [snapshot.status for snapshot in agenda.snapshots] == ["running", "paused"]


def test_pause_leaves_the_initial_snapshot_alone():
    agenda = begin_initial(Agenda(), [Part(A)], 9)
    assert acting(agenda, sent("pause-snapshot"))[1][0][0] == "refused"
    assert acting(agenda, sent("stop-snapshot"))[1][0][0] == "refused"


def test_table_that_is_snapshotted_anew_leaves_the_snapshot_that_it_was_in():
    agenda, _ = acting(Agenda(), execute("S.A", "S.B"))
    agenda = begin_initial(agenda, [Part(A, sweep=True)], 9)
    assert agenda.snapshots[0].part(A).status == "stopped"
    assert agenda.holder(A).parts == (Part(A, sweep=True),)
    assert agenda.holder(B).id == "1"


def test_table_that_is_snapshotted_anew_leaves_those_that_wait_for_it_too():
    agenda, _ = acting(Agenda(), execute("S.A"), execute("S.A", "S.B", id="2"))
    agenda = begin_initial(agenda, [Part(A, sweep=True)], 9)
    assert [one.part(A).status for one in agenda.snapshots] == ["stopped", "stopped", "waiting"]
    assert settle(agenda)[1][0].reason == "stopped: S.A (its table is snapshotted anew)"


def test_snapshots_of_one_moment_keep_the_order_in_which_they_were_asked_for():
    """The journal knows them by their time alone."""
    agenda, _ = acting(Agenda(), execute("S.A", id="b"), execute("S.B", id="a"))
    assert sorted(agenda.snapshots, key=lambda one: (one.started_at_ms, one.id)) == [*agenda.snapshots]


def test_a_slice_of_bounds_that_were_given_up_tells_nothing_of_those_named_anew():
    """Columns that changed and changed back have one fingerprint, and the rows may be others by then."""
    part = chunked(Part(A), [("9",), ("19",)], "f")
    old = Slice("s", "initial", 0, 0, LOW, 0, 0, "f", counts=(ChunkCounts((), ("9",), 10, 10),))
    assert is_cut_alike(published(part, old, 10), old)
    other = chunked(from_start(part, is_held=True), [("9",)], "other")
    again = chunked(from_start(other, is_held=True), [("24",)], "f")
    assert not is_cut_alike(again, old)
    last = replace(old, first=2, last=2, counts=(ChunkCounts(("19",), (), 5, 5),))
    assert is_cut_alike(part, last)
    assert not is_cut_alike(again, last), "there are fewer chunks now"
    for free in (replace(old, windows=((0, 1),)), replace(old, sweep=True)):
        assert is_cut_alike(again, free), "it is of the whole table"
