"""The contract of the target port for repairs, held by what is in memory and by what is on Delta."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support.crash import killed
from support.memory_source import Row
from support.port_table import DELTA, NewTable, Table

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Replay
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import Failpoint, When

LONG = pytest.param("delta", marks=[*DELTA.marks, pytest.mark.long])
BY_TWIN = pytest.mark.parametrize("kind", ["memory", DELTA])
BY_LONG_TWIN = pytest.mark.parametrize("kind", ["memory", LONG])


def filled(table: Table) -> list[Lsn]:
    """Apply four batches: nine rows, then three times a change, each with a commit. Return the positions."""
    table.begin_with_snapshot({key: 10 * key for key in range(1, 10)})
    positions = [table.at]
    for values in ({1: 11, 2: 21}, {3: None, 2: 22}, {12: 120, 4: 41}):
        table.twin.commit(values)
        table.done(table.plan())
        positions.append(table.at)
    return positions


def interval(table: Table, after: Lsn, upto: Lsn, by_time: bool = False) -> Backfill:
    """Return the interval between two positions, by its commits or by their times."""
    ends = (table.twin.time_ms(after), table.twin.time_ms(upto))
    return Backfill(*ends) if by_time else Backfill(*ends, after, upto)


def damaged(table: Table) -> None:
    """Lose and double events of the log. Let the state have a wrong row, a missing and a surplus one, and row 9 lost.

    Row 9 is of no commit after the snapshot.
    """
    twin = table.twin
    twin.lose("u", (2, 21))
    twin.lose("d", (3, 30))
    twin.double("u", (1, 11))
    for row, lost in (((1, 99), 1), ((2, 99), 2), ((3, 30), 12), (None, 9)):
        twin.change_state(None, lost, is_own=True)
        if row is not None:
            twin.change_state(row, is_own=True)


@BY_TWIN
def test_a_backfill_mends_its_interval(new_table: NewTable) -> None:
    table = new_table(True)
    positions, events = filled(table), table.twin.events()
    whole = interval(table, positions[0], positions[3])
    counted = Findings(commits=3, events=6, keys=5, comparable_since_ms=whole.begin_ms)
    assert table.compare(whole) == counted
    damaged(table)
    last = table.last
    part = table.repair(interval(table, positions[1], positions[2], by_time=True))
    assert (part.commits, part.events, part.keys) == (1, 2, 2)
    assert (part.events_added, part.events_doubled, part.rows_corrected) == (1, 0, 2)
    assert [event for event in table.twin.events() if event[1] == "d"] == [(3, "d", (3, 30))], "in its own batch"
    assert table.last is not None
    table.last = replace(table.last, as_of_ms=0)
    found = table.repair(whole)
    assert found == replace(counted, events_added=1, events_doubled=1, rows_corrected=2)
    assert table.last.as_of_ms == table.planned[-1].planned_at_ms > 0, "what was lost may be newer"
    assert table.twin.events() == sorted([*events, (2, "u", (1, 11))]), "the doubled event stays"
    assert table.twin.rows() + Counter([(9, 90)]) == table.twin.at_source()
    assert table.compare(whole) == replace(counted, events_doubled=1)
    applied, batch = table.last, table.batch
    assert applied is not None
    assert last is not None
    rest = replace(last, batch=batch, repair="backfill", rows=8, as_of_ms=applied.as_of_ms)
    assert unversioned(applied) == unversioned(rest)
    table.twin.commit({1: 12})
    assert table.done(table.plan()).rows == 8, "it is not refused"


def unversioned(applied: AppliedBatch) -> AppliedBatch:
    """Return an applied batch without versions and counts of its own events."""
    bare = replace(applied, state_id="", state_version=0, changes_id="", changes_version=0)
    return replace(bare, creates=0, updates=0, deletes=0, reads=0, chunk_range=None, published={}, snapshot=None)


@BY_LONG_TWIN
@pytest.mark.parametrize("point", ["append_changes", "merge_state"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_backfill_that_died_is_redone_once(new_table: NewTable, point: Failpoint, when: When) -> None:
    table = new_table(True)
    positions, events = filled(table), table.twin.events()
    damaged(table)
    planned = table.plan_repair(interval(table, positions[0], positions[3]))
    with killed(point, when):
        table.apply(planned)
    applied = table.again(planned)
    assert applied.rows == 8
    assert table.again(planned) == applied
    assert table.twin.events() == sorted([*events, (2, "u", (1, 11))])
    assert table.twin.rows() + Counter([(9, 90)]) == table.twin.at_source()
    table.batch, table.last = planned.batch, applied
    table.twin.record(applied)
    table.twin.commit({1: 12})
    table.done(table.plan())


@BY_TWIN
def test_copies_of_rows_without_a_key_are_repaired(new_table: NewTable) -> None:
    """Of the value 1 the log has a doubled event, of 2 it lacks one. The state has one 2 too few and one 3 too many."""
    table = new_table(False)
    table.begin({1: 1, 2: 1, 3: 2, 4: 3, 7: 0})
    begun = table.at
    table.twin.commit({5: 1, 6: 2, 4: None})
    table.done(table.plan())
    rows = table.twin.rows()
    table.twin.double("c", (1,))
    table.twin.lose("d", (3,))
    table.twin.change_state((3,), lost=2, is_own=True)
    found = table.repair(interval(table, begun, table.at))
    assert (found.commits, found.events, found.keys, found.events_added) == (1, 3, 3, 1)
    assert (found.events_doubled, found.rows_corrected) == (1, 2)
    assert table.twin.rows() == table.twin.at_source() == rows
    table.twin.change_state((7,), is_own=True)
    assert table.compare(interval(table, begun, table.at)).rows_corrected == 0, "no event of the interval has it"
    assert table.repair(Replay()).rows_corrected == 1
    assert table.compare(Replay()).rows_corrected == 0
    assert table.twin.rows() == rows


@BY_TWIN
def test_a_replay_ends_the_refusal_of_a_foreign_change(new_table: NewTable) -> None:
    table = new_table(True)
    positions = filled(table)
    rows = table.twin.rows()
    table.twin.change_state((4, 99))
    table.twin.change_state((50, 500), lost=9)
    found = table.repair(interval(table, positions[1], positions[3]))
    assert (found.is_foreign, found.rows_corrected) == (True, 1)
    with pytest.raises(TargetError):
        table.apply(table.plan())
    table.batch -= 1
    replayed = table.repair(Replay())
    assert (replayed.is_foreign, replayed.rows_corrected, replayed.keys) == (True, 2, 10)
    assert (replayed.commits, replayed.events) == (3, 6)
    assert table.twin.rows() == rows == table.twin.at_source()
    assert not table.compare(Replay()).is_foreign
    table.twin.commit({1: 12})
    table.done(table.plan())


@BY_TWIN
def test_a_trimmed_log_is_compared_from_its_horizon_on(new_table: NewTable) -> None:
    table = new_table(True)
    positions = filled(table)
    trimmed, whole, rest = (interval(table, positions[a], positions[b]) for a, b in ((0, 1), (0, 3), (1, 3)))
    damaged(table)
    table.twin.trim(LogHorizon(3, positions[1]))
    with pytest.raises(TargetError, match="trimmed"):
        table.compare(Replay())
    assert not table.compare(trimmed).keys
    found = table.repair(whole)
    assert str(positions[1]) in found.note
    assert (found.events, found.keys, found.events_added, found.rows_corrected) == (4, 4, 1, 3)
    assert found.comparable_since_ms is not None
    assert found.comparable_since_ms >= rest.begin_ms
    missing = Counter[Row]([(1, 11), (9, 90)])
    assert table.twin.rows() - Counter([(1, 99)]) + missing == table.twin.at_source(), "rows before it stay"
    assert not table.compare(rest).note


@BY_LONG_TWIN
def test_copies_are_not_counted_from_a_trimmed_log(new_table: NewTable) -> None:
    table = new_table(False)
    table.begin({1: 1, 2: 1, 3: 2})
    begun = table.at
    table.twin.commit({4: 1})
    table.done(table.plan())
    rows, work = table.twin.rows(), interval(table, begun, table.at)
    table.twin.trim(LogHorizon(2, begun))
    found = table.repair(work)
    assert (found.events, found.rows_corrected) == (1, 0)
    assert "copies" in found.note
    assert table.twin.rows() == rows


@BY_TWIN
def test_pruned_change_rows_are_not_compared(new_table: NewTable) -> None:
    table = new_table(True)
    positions = filled(table)
    damaged(table)
    table.twin.prune()
    found = table.repair(interval(table, positions[0], positions[3]))
    assert (found.events, found.events_added, found.events_only_in_log) == (4, 0, 0)
    assert found.rows_corrected == 3, "row 3 has lost its only event"
    table.twin.commit({8: 81})
    table.done(table.plan())
    table.twin.lose("u", (8, 81))
    found = table.repair(interval(table, positions[0], table.at))
    assert (found.events, found.events_added) == (5, 1)
    assert found.comparable_since_ms is not None
    assert found.comparable_since_ms > table.twin.time_ms(positions[2])


@BY_LONG_TWIN
def test_what_is_not_at_the_source_is_reported(new_table: NewTable) -> None:
    """The change table lacks an event that the log has. An event of the snapshot's time is not compared."""
    table = new_table(True)
    positions = filled(table)
    whole = Backfill(0, table.twin.time_ms(positions[3]), None, positions[3])
    assert table.compare(whole).events_only_in_log == 0
    table.twin.forget(4)
    found = table.compare(whole)
    assert (found.events_only_in_log, found.events_added, found.is_equal) == (1, 0, True)


@BY_LONG_TWIN
def test_a_change_before_the_redo_of_a_replay_stays_known(new_table: NewTable) -> None:
    table = new_table(True)
    filled(table)
    table.twin.change_state(None, lost=1, is_own=True)
    planned = table.plan_repair(Replay())
    with killed("merge_state", "after"):
        table.apply(planned)
    table.twin.change_state(None, lost=2)
    table.last = table.again(planned)
    table.batch = planned.batch
    table.twin.record(table.last)
    with pytest.raises(TargetError):
        table.apply(table.plan())


@BY_LONG_TWIN
def test_a_restart_restores_what_an_abandoned_repair_has_added(new_table: NewTable) -> None:
    """The log has row 12 again, the state not yet. The source has deleted it since."""
    table = new_table(True)
    positions = filled(table)
    table.twin.lose("c", (12, 120))
    table.twin.change_state(None, lost=12, is_own=True)
    planned = table.plan_repair(interval(table, positions[0], positions[3]))
    with killed("append_changes", "after"):
        table.apply(planned)
    table.twin.plan([planned])
    table.batch = planned.batch
    table.twin.commit({12: None}, is_captured=False)
    table.prepare(is_begun=True, abandoned=[planned])
    assert table.done(table.plan(table.stage_whole()), is_begun=True).deletes == 1
    assert table.twin.rows() == table.twin.at_source()
