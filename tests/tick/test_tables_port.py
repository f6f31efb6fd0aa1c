"""The contract of the target port, held by what is in memory and by what is on Delta."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support.crash import killed
from support.port_table import BOUNDS, BY_TWIN, NewTable, Table, at_any_time, without_chunks

from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Replay
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import KeylessRead, deletion_range
from airflow_provider_db2cdc.cdc.table import Column
from airflow_provider_db2cdc.errors import ConcurrentRunError, GapError, TargetError
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, When, failpoint_action
from airflow_provider_db2cdc.tick.log import now_ms

IDLE_BATCHES = range(1, 101)


@pytest.fixture
def table(new_table: NewTable) -> Table:
    """A table with a key."""
    return new_table(True)


def dying(table: Table, planned: PlannedBatch) -> None:
    """Apply a batch, and die once its changes are in the change log."""
    with killed("append_changes", "after"):
        table.apply(planned)


@BY_TWIN
def test_changes_are_applied_once(table: Table) -> None:
    table.begin({1: 10, 2: 20, 3: 30})
    table.twin.commit({1: 11, 3: None, 4: 40})
    planned = table.plan()
    dying(table, planned)
    applied = table.again(planned)
    assert (applied.creates, applied.updates, applied.deletes, applied.reads, applied.rows) == (1, 1, 1, 0, 3)
    assert applied.commit_lsn is not None
    assert planned.after < applied.commit_lsn <= planned.upto == applied.upto
    assert table.again(planned) == applied
    assert table.twin.rows() == table.twin.at_source() == Counter([(1, 11), (2, 20), (4, 40)])
    first = [(1, "c", (1, 10)), (1, "c", (2, 20)), (1, "c", (3, 30))]
    assert table.twin.events() == [*first, (2, "c", (4, 40)), (2, "d", (3, 30)), (2, "u", (1, 11))]


@BY_TWIN
def test_a_chunk_range_yields_to_the_changes_of_its_window(table: Table) -> None:
    table.begin({1: 10, 2: 20, 3: 30, 4: 40, 6: 60, 8: 80})
    table.twin.commit({2: None, 3: 33, 5: 50, 6: None, 8: None}, is_captured=False)
    staged = table.stage(spans=[(0, 0), (1, 1)], deletes_by_range=True)
    found = [(chunk.low, chunk.high, chunk.rows_read, chunk.rows_counted) for chunk in staged.counts]
    assert found == [((), ("3",), 2, 2), (("3",), ("6",), 2, 2)]
    table.twin.commit({1: 11, 4: None, 5: 51, 6: 66})
    planned = table.plan(staged)
    applied = table.apply(planned)
    assert (applied.reads, applied.deletes, applied.rows, applied.snapshot) == (1, 2, 5, "snapshot")
    assert {chunk: rows for chunk, rows in applied.published.items() if rows} == {0: 1}
    assert table.again(planned) == without_chunks(applied)
    assert table.twin.rows() - table.twin.at_source() == Counter([(8, 80)]), "it is beyond the range"
    assert not table.twin.at_source() - table.twin.rows()
    reads = [event for event in table.twin.events() if event[0] == 2 and event[1] in "rd"]
    assert reads == [(2, "d", (2, 20)), (2, "d", (4, 40)), (2, "r", (3, 33))]


@BY_TWIN
def test_a_batch_knows_how_new_its_rows_may_be(table: Table) -> None:
    table.begin({1: 10})
    table.last = replace(table.last, as_of_ms=0) if table.last else None
    table.twin.commit({1: 11})
    changed = table.done(table.plan())
    assert changed.as_of_ms == table.twin.time_ms(changed.upto), "the time of the commit"
    table.twin.commit({2: 20}, is_captured=False)
    staged = table.stage_whole()
    before_ms = now_ms()
    published = table.done(table.plan(staged))
    assert published.as_of_ms >= before_ms, "row 2 has no event, so no time of a commit either"
    later_ms = before_ms + 3_600_000
    table.last = replace(published, as_of_ms=later_ms)
    table.twin.commit({1: 12})
    assert table.done(table.plan()).as_of_ms == later_ms, "a newer row may still be there"


@BY_TWIN
def test_a_snapshot_of_an_empty_table_writes_nothing(table: Table) -> None:
    table.begin_with_snapshot({})
    assert table.last is not None
    assert (table.last.rows, table.last.reads) == (0, 0)
    assert (table.last.state_version, table.last.changes_version) == (0, 0), "both are as they were created"


@BY_TWIN
def test_a_read_without_rows_empties_the_state(table: Table) -> None:
    table.begin({1: 10, 2: 20})
    table.twin.commit({1: None, 2: None}, is_captured=False)
    applied = table.done(table.plan(table.stage_whole()))
    assert (applied.reads, applied.deletes, applied.rows) == (0, 2, 0)
    assert table.twin.rows() == Counter()
    assert table.done(table.plan(table.stage_whole())).deletes == 0


@BY_TWIN
def test_a_row_that_no_batch_of_a_snapshot_wrote_is_deleted(table: Table) -> None:
    table.begin_with_snapshot({1: 10, 2: 20, 3: 30, 8: 80})
    table.twin.commit({2: None, 3: 33, 8: None}, is_captured=False)
    staged = table.stage()
    table.twin.commit({4: 40})
    table.done(table.plan(staged))
    assert table.twin.rows() == table.twin.at_source() + Counter([(2, 20), (8, 80)])
    complete = table.snapshot(bounds=BOUNDS, published_chunks=3, low_batch=staged.low_batch)
    planned = table.plan(deletion_range(complete, "snapshot", "incremental", table.at))
    applied = table.apply(planned)
    assert (applied.deletes, applied.reads, applied.rows) == (2, 0, 3)
    assert table.again(planned) == at_any_time(applied)
    assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
@pytest.mark.parametrize("is_merged", [False, True], ids=["logged", "merged"])
def test_an_abandoned_batch_is_closed_to_its_writers(table: Table, is_merged: bool) -> None:
    """Its events are in the change log, and in the state at the latest when the table begins again."""
    table.begin({1: 10, 2: 20, 3: 30})
    table.twin.commit({1: None, 2: 21, 4: 40})
    hung = table.plan()
    if is_merged:
        table.apply(hung)
    else:
        dying(table, hung)
    table.twin.commit({3: 31})
    unread = table.plan()
    table.twin.commit({4: None}, is_captured=False)
    for _ in range(2):
        table.prepare(is_begun=True, abandoned=[hung, unread])
        assert table.twin.rows() == Counter([(2, 21), (3, 30), (4, 40)])
    for planned in (hung, unread):
        with pytest.raises(TargetError):
            table.apply(planned, is_redone=True)
    staged = table.stage()
    table.done(table.plan(staged), is_begun=True)
    complete = table.snapshot(bounds=BOUNDS, published_chunks=3, low_batch=staged.low_batch)
    assert table.done(table.plan(deletion_range(complete, "snapshot", "initial", table.at))).deletes == 1
    assert table.twin.rows() == table.twin.at_source()
    found = [event[1:] for event in table.twin.events() if event[0] > unread.batch]
    assert found == [("r", (2, 21)), ("r", (3, 31)), ("d", (4, 40))]


@BY_TWIN
def test_rows_that_an_abandoned_batch_has_read_are_closed_too(table: Table) -> None:
    table.begin({1: 10, 2: 20})
    table.twin.commit({2: None, 3: 30}, is_captured=False)
    table.twin.commit({1: 11})
    planned = table.plan(table.stage_whole())
    with killed("merge_state", "before"):
        table.apply(planned)
    table.prepare(is_begun=True, abandoned=[planned])
    assert table.twin.rows() == Counter([(1, 11), (3, 30)])


@BY_TWIN
def test_a_select_leaves_the_rows_of_an_abandoned_batch(table: Table) -> None:
    """Row 3 of that batch was deleted, and nothing shows it. A replay of the log finds the state as it is."""
    table.begin({1: 10, 2: 20})
    table.twin.commit({3: 30})
    planned = table.plan()
    dying(table, planned)
    table.twin.commit({3: None}, is_captured=False)
    table.prepare(is_begun=True, abandoned=[planned])
    staged = replace(table.stage((), [(0, 0)], condition="SELECT * FROM S.T"), snapshot_kind="initial")
    table.done(table.plan(staged), is_begun=True)
    assert table.twin.rows() == table.twin.at_source() + Counter([(3, 30)])
    assert not table.compare(Replay()).rows_corrected


@BY_TWIN
def test_rows_of_an_abandoned_batch_without_a_key_are_deleted(new_table: NewTable) -> None:
    table = new_table(False)
    table.begin({1: 1})
    table.twin.commit({2: 2})
    hung = table.plan()
    dying(table, hung)
    table.twin.commit({2: None}, is_captured=False)
    for _ in range(2):
        table.prepare(is_begun=True, abandoned=[hung])
        assert table.twin.rows() == Counter([(1,), (2,)])
    staged = table.stage_whole(windows=((hung.batch, hung.batch + 1),))
    assert table.done(table.plan(staged), is_begun=True).deletes == 1
    assert table.twin.rows() == table.twin.at_source()
    assert [event[1:] for event in table.twin.events() if event[0] > hung.batch] == [("d", (2,)), ("r", (1,))]


@BY_TWIN
@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_foreign_change_and_an_abandoned_batch_are_both_mended(new_table: NewTable, is_keyed: bool) -> None:
    """After the restart the state is what the log says: nothing is restored twice, and deletes of the batch count."""
    table = new_table(is_keyed)
    table.begin({1: 1, 2: 1, 3: 3})
    table.twin.commit({4: 1, 5: 2, 3: None, 2: None})
    hung = table.plan()
    dying(table, hung)
    table.twin.change_state(None, lost=1)
    for _ in range(2):
        table.prepare(is_begun=True, abandoned=[hung])
        assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_overtaken_run_has_no_effect(table: Table, when: When) -> None:
    table.twin.commit({1: 10})
    table.prepare()
    planned = table.plan()
    other, turns = Table(table.twin), [1]

    def overtake(_: ReachedFailpoint) -> None:
        if turns.pop() if turns else 0:
            other.done(planned, is_redone=True)
            table.twin.commit({1: 11})
            other.at, other.batch = planned.upto, planned.batch
            other.done(other.plan())

    with failpoint_action("append_changes", **{when: overtake}), pytest.raises(ConcurrentRunError):
        table.apply(planned)
    assert table.twin.rows() == Counter([(1, 11)])
    assert table.twin.events() == [(1, "c", (1, 10)), (2, "u", (1, 11))]


@BY_TWIN
def test_a_table_that_begins_again_does_not_trust_its_last_batch(table: Table) -> None:
    """Row 1 is lost in the state and deleted at the source: only the change log has it, until the range deletes it."""
    table.begin({1: 10, 2: 20, 3: 30})
    table.twin.change_state((9, 90), lost=1)
    table.twin.commit({1: None}, is_captured=False)
    table.prepare(is_begun=True)
    applied = table.done(table.plan(table.stage_whole()), is_begun=True)
    assert (applied.rows, applied.reads, applied.deletes) == (2, 2, 2)
    assert table.twin.rows() == table.twin.at_source() == Counter([(2, 20), (3, 30)])
    assert [event for event in table.twin.events() if event[1] == "d"] == [(2, "d", (1, 10)), (2, "d", (9, 90))]


@BY_TWIN
@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_restart_repairs_rows_that_another_writer_doubled(new_table: NewTable, is_keyed: bool) -> None:
    """Without a key the other writer also deletes the first of three equal rows."""
    table = new_table(is_keyed)
    table.begin({1: 1, 2: 1, 3: 1, 4: 2})
    table.twin.change_state((4, 9) if is_keyed else (2,), lost=None if is_keyed else 1)
    table.prepare(is_begun=True)
    window = {} if is_keyed else {"windows": ((table.batch, table.batch + 1),)}
    staged = table.stage_whole(**window)
    assert table.done(table.plan(staged), is_begun=True).rows == 4
    assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
def test_a_restart_keeps_copies_whose_events_are_trimmed(new_table: NewTable) -> None:
    """Another writer has deleted the first of three equal rows, so that the others are not numbered from 1."""
    table = new_table(False)
    table.begin({1: 1, 2: 1, 3: 1, 4: 0})
    begun = table.at
    table.twin.commit({5: 1, 6: 0})
    table.done(table.plan())
    table.twin.trim(LogHorizon(2, begun))
    table.twin.change_state(None, lost=1)
    table.prepare(is_begun=True)
    assert table.twin.rows() == Counter({(1,): 3, (0,): 2})
    table.twin.commit({7: 1})
    table.done(table.plan(), is_begun=True)
    assert table.twin.rows() == Counter({(1,): 4, (0,): 2}), "a fourth copy has a number that is free"


@BY_TWIN
def test_pruned_changes_are_a_gap_unless_the_log_has_them(table: Table) -> None:
    table.begin({1: 10})
    table.twin.commit({2: 20})
    logged = table.plan()
    dying(table, logged)
    table.twin.commit({3: 30})
    unread = table.plan()
    table.twin.prune()
    task, captured = table.twin.task(table.at), table.twin.captured()
    table.tables.check_readable(task, logged, captured)
    with pytest.raises(GapError):
        table.tables.check_readable(task, unread, captured)
    table.done(logged, is_redone=True)
    with pytest.raises(GapError):
        table.apply(unread)
    assert table.twin.rows() == Counter([(1, 10), (2, 20)])


@BY_TWIN
def test_a_state_that_another_writer_changed_is_refused(table: Table) -> None:
    last = table.begin({1: 10})
    task = table.twin.task(table.at)
    assert {table.tables.check_idle(task, last, batch) == last for batch in IDLE_BATCHES} == {True}
    table.twin.change_state((9, 90))
    table.twin.commit({2: 20})
    planned = table.plan()
    with pytest.raises(TargetError):
        table.apply(planned)
    with pytest.raises(TargetError):
        [table.tables.check_idle(task, last, batch) for batch in IDLE_BATCHES]
    assert table.twin.rows() == Counter([(1, 10), (9, 90)])


@BY_TWIN
def test_a_trimmed_change_log_continues(table: Table) -> None:
    table.begin({1: 10, 2: 20})
    assert not table.twin.horizon().is_trimmed
    table.twin.commit({1: 11})
    second = table.done(table.plan())
    horizon = LogHorizon(second.batch, table.at)
    # Delta also deletes tombstones, and there are none.
    assert table.twin.trim(horizon) == 2
    assert table.twin.trim(horizon) == 0
    assert table.twin.horizon() == horizon
    assert table.twin.events() == [(2, "u", (1, 11))]
    table.twin.commit({2: None, 3: 30})
    table.done(table.plan())
    assert table.twin.rows() == table.twin.at_source() == Counter([(1, 11), (3, 30)])
    assert {batch for batch, _, _ in table.twin.events()} == {2, 3}


@BY_TWIN
def test_a_missing_table_or_one_of_other_types_is_refused(table: Table) -> None:
    last = table.begin({1: 10})
    task = table.twin.task(table.at)
    other = replace(task.schema, columns=(task.schema.columns[0], Column("A", "BIGINT", 8)))
    with pytest.raises(TargetError):
        table.tables.prepare(replace(task, schema=other), last, False, (), 2)
    table.twin.drop()
    with pytest.raises(TargetError):
        table.prepare()
    with pytest.raises(TargetError):
        [table.tables.check_idle(task, last, batch) for batch in IDLE_BATCHES]


@BY_TWIN
def test_staged_rows_may_be_dropped_twice(table: Table) -> None:
    staged = table.begin_with_snapshot({1: 10, 5: 50})
    for _ in range(2):
        table.tables.drop_staged(staged)
    table.twin.commit({1: 11}, is_captured=False)
    table.done(table.plan(table.stage()))
    assert table.twin.rows() == table.twin.at_source() == Counter([(1, 11), (5, 50)])


@BY_TWIN
def test_equal_rows_of_a_table_without_a_key_are_counted(new_table: NewTable) -> None:
    table = new_table(False)
    table.begin({1: 1, 2: 1, 3: 2, 4: 3})
    table.twin.commit({1: None, 5: 1}, is_captured=False)
    table.twin.commit({4: None, 6: 1}, is_captured=False)
    low = table.batch
    windows = ((low, low + 1), (low + 1, low + 2))
    staged = table.stage_whole(windows=windows[:1], needs_another_read=True)
    table.twin.commit({7: 2, 3: None})
    planned = table.plan(staged)
    first = table.done(planned)
    assert (first.reads, first.creates, first.deletes, first.rows) == (3, 1, 2, 4)
    assert isinstance(first.chunk_range, KeylessRead)
    assert first.chunk_range.needs_another_read
    second = table.stage_whole(windows=windows)
    planned = table.plan(second)
    applied = table.apply(planned)
    assert (applied.reads, applied.deletes, applied.rows) == (1, 0, 4)
    assert isinstance(applied.chunk_range, KeylessRead)
    assert not applied.chunk_range.needs_another_read
    assert table.again(planned) == without_chunks(applied)
    assert table.twin.rows() == table.twin.at_source() == Counter({(1,): 3, (2,): 1})
    table.twin.gain()
    with pytest.raises(TargetError):
        table.prepare()


@BY_TWIN
def test_a_column_added_later_is_null_in_older_rows(table: Table) -> None:
    table.begin({1: 10, 2: 20})
    staged = table.stage()
    table.twin.gain()
    table.twin.commit({1: 11})
    table.tables = table.twin.open()
    table.prepare()
    planned = table.plan(staged)
    applied = table.apply(planned)
    assert (applied.updates, applied.reads, applied.snapshot, applied.chunk_range) == (1, 0, None, None)
    assert table.again(planned) == at_any_time(applied)
    assert table.twin.rows() == table.twin.at_source() == Counter([(1, 11, 11), (2, 20, None)])
