"""The contract of the target port for heals, held by what is in memory and by what is on Delta."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from support.crash import killed
from support.memory_twin import Logged
from support.port_table import BY_TWIN, NewTable, Table, without_chunks

from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import Failpoint, When


def damaged(table: Table) -> None:
    """Let the source change unseen: of its nine rows one is wrong, one missing and one surplus in the state."""
    table.begin({key: 10 * key for key in range(1, 10)})
    table.twin.commit({2: 21, 4: None, 12: 120}, is_captured=False)


def published(table: Table, batch: int) -> list[tuple[str, Any]]:
    """Return what a batch has in the change log."""
    events: list[Logged] = [event for event in table.twin.events() if event[0] == batch]
    return [(op, image) for _, op, image in events]


def healing(table: Table, **facts: Any) -> ChunkRange:
    """Stage the whole table for a heal."""
    facts = {"differences_only": True, **facts}
    return table.stage_whole(**facts)


@BY_TWIN
def test_only_rows_that_differ_are_published(new_table: NewTable) -> None:
    table = new_table(True)
    damaged(table)
    staged = healing(table)
    planned = table.plan(staged)
    applied = table.apply(planned)
    assert published(table, 2) == [("d", (4, 40)), ("r", (2, 21)), ("r", (12, 120))]
    assert (applied.reads, applied.deletes, applied.rows) == (2, 1, 9)
    assert {chunk: rows for chunk, rows in applied.published.items() if rows} == {0: 2}
    assert table.again(planned) == without_chunks(applied)
    table.last = applied
    table.twin.record(applied)
    assert table.twin.rows() == table.twin.at_source()
    again = table.done(table.plan(healing(table)))
    assert (again.reads, again.deletes, again.rows, published(table, 3)) == (0, 0, 9, [])


@BY_TWIN
def test_a_change_of_the_window_overrides_a_difference(new_table: NewTable) -> None:
    table = new_table(True)
    damaged(table)
    staged = table.stage(deletes_by_range=True, differences_only=True)
    table.twin.commit({2: 22, 12: None, 9: 99, 4: 44})
    planned = table.plan(staged)
    applied = table.apply(planned)
    assert [op for op, _ in published(table, 2)] == ["c", "d", "u", "u"], "no event of the heal is left"
    assert applied.reads == 0
    assert table.again(planned) == without_chunks(applied)
    assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
def test_a_heal_with_a_condition_deletes_nothing(new_table: NewTable) -> None:
    table = new_table(True)
    damaged(table)
    staged = table.stage((), [(0, 0)], differences_only=True, condition="ID > 0")
    applied = table.done(table.plan(staged))
    assert (applied.reads, applied.deletes, applied.rows) == (2, 0, 10)
    assert table.twin.rows() == table.twin.at_source() + Counter([(4, 40)])


@BY_TWIN
@pytest.mark.parametrize(
    ("point", "when", "at"),
    [("append_changes", "after", 1), ("append_changes", "after", 2), ("merge_state", "before", 1),
     ("merge_state", "after", 1)],
)  # fmt: skip
def test_a_heal_that_died_is_finished_by_the_next(new_table: NewTable, point: Failpoint, when: When, at: int) -> None:
    table = new_table(True)
    damaged(table)
    planned = table.plan(healing(table))
    with killed(point, when, at):
        table.apply(planned)
    table.tables = table.twin.open()
    table.done(planned, is_redone=True)
    assert table.done(table.plan(healing(table))).rows == 9
    found = published(table, 2) + published(table, 3)
    assert sorted(found) == [("d", (4, 40)), ("r", (2, 21)), ("r", (12, 120))], "each event once"
    assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
def test_an_empty_state_is_filled(new_table: NewTable) -> None:
    table = new_table(True)
    table.begin({1: 10})
    table.twin.commit({1: None})
    table.done(table.plan())
    table.twin.commit({2: 20, 3: 30}, is_captured=False)
    planned = table.plan(healing(table))
    applied = table.apply(planned)
    assert (applied.reads, applied.rows) == (2, 2)
    assert table.again(planned) == without_chunks(applied)
    assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
def test_copies_of_rows_without_a_key_are_healed(new_table: NewTable) -> None:
    """The source has one more copy of 1 and one less of 2. The copies of 3 are equal."""
    table = new_table(False)
    table.begin({1: 1, 2: 2, 3: 2, 4: 3, 5: 3})
    table.twin.commit({6: 1, 3: None}, is_captured=False)
    windows = ((table.batch, table.batch + 1),)
    planned = table.plan(healing(table, windows=windows, needs_another_read=True))
    applied = table.apply(planned)
    assert published(table, 2) == [("d", (2,)), ("r", (1,)), ("r", (1,)), ("r", (2,))]
    assert (applied.reads, applied.deletes, applied.rows) == (3, 1, 5)
    assert table.again(planned) == without_chunks(applied)
    assert table.twin.rows() == table.twin.at_source() == Counter({(1,): 2, (2,): 1, (3,): 2})


@BY_TWIN
def test_an_image_that_a_read_does_not_settle_is_healed_by_the_next(new_table: NewTable) -> None:
    table = new_table(False)
    table.begin({1: 1, 2: 2})
    table.twin.commit({3: 1}, is_captured=False)
    low = table.batch
    windows = ((low, low + 1), (low + 1, low + 2))
    staged = healing(table, windows=windows[:1], needs_another_read=True)
    table.twin.commit({4: 1})
    first = table.done(table.plan(staged))
    assert (first.reads, first.deletes) == (0, 0), "2 is equal, and 1 is open"
    second = table.done(table.plan(healing(table, windows=windows)))
    assert (second.reads, second.rows) == (3, 4)
    assert table.twin.rows() == table.twin.at_source()


def foreign(table: Table) -> None:
    """Let another writer change the state: a second row of key 2, a row 50 that is nowhere else, and no row 1."""
    table.twin.change_state((2, 99), lost=1)
    table.twin.change_state((50, 500))


@BY_TWIN
def test_a_heal_mends_what_another_writer_has_changed(new_table: NewTable) -> None:
    table = new_table(True)
    first = table.begin({1: 10, 2: 20, 3: 30})
    foreign(table)
    table.twin.commit({3: 33})
    pulled = table.plan()
    with pytest.raises(TargetError, match="Heal the table"):
        table.apply(pulled)
    table.last = table.apply(pulled, is_healed=True)
    assert table.last.foreign_since == first.batch
    task = table.twin.task(table.at)
    with pytest.raises(TargetError, match="Heal the table"):
        [table.tables.check_idle(task, table.last, batch) for batch in range(1, 101)]
    with pytest.raises(TargetError, match="Heal the table"):
        table.apply(table.plan())
    healed = table.done(table.plan(healing(table)), is_healed=True)
    assert (healed.foreign_since, healed.rows) == (None, 3)
    assert table.twin.rows() == table.twin.at_source()
    assert ("d", (50, 500)) in published(table, healed.batch)
    assert table.done(table.plan()).rows == 3, "nothing is left to find"


@BY_TWIN
def test_a_row_that_only_the_log_has_left_is_deleted_there(new_table: NewTable) -> None:
    table = new_table(True)
    table.begin({1: 10, 2: 20})
    table.twin.change_state((9, 90), lost=1)
    table.twin.commit({1: None}, is_captured=False)
    table.done(table.plan(healing(table)), is_healed=True)
    assert table.twin.rows() == table.twin.at_source()
    assert ("d", (1, 10)) in published(table, 2)


@BY_TWIN
def test_a_change_after_the_comparison_began_stays_recorded(new_table: NewTable) -> None:
    table = new_table(True)
    table.begin({1: 10, 5: 50, 8: 80})
    low = table.batch
    first = table.stage(spans=[(0, 0)], deletes_by_range=True, differences_only=True)
    table.done(table.plan(first), is_healed=True)
    table.twin.change_state((1, 99))
    rest = table.stage((), [(0, 0)], deletes_by_range=True, differences_only=True)
    rest = replace(rest, first=1, first_low_batch=low)
    healed = table.done(table.plan(rest), is_healed=True)
    assert healed.foreign_since == 2
    with pytest.raises(TargetError):
        table.apply(table.plan())
    table.done(table.plan(healing(table)), is_healed=True)
    assert table.twin.rows() == table.twin.at_source()


@BY_TWIN
def test_a_change_before_a_redo_stays_recorded(new_table: NewTable) -> None:
    table = new_table(True)
    table.begin({1: 10, 2: 20})
    table.twin.commit({2: 21}, is_captured=False)
    planned = table.plan(healing(table))
    with killed("merge_state", "after"):
        table.apply(planned)
    table.twin.change_state((3, 30), lost=1)
    redone = table.apply(planned, table.twin.open(), is_redone=True, is_healed=True)
    assert redone.foreign_since == planned.batch


@BY_TWIN
def test_copies_that_another_writer_has_changed_are_healed(new_table: NewTable) -> None:
    table = new_table(False)
    table.begin({1: 1, 2: 1, 3: 1, 4: 2})
    table.twin.change_state((2,), lost=1)
    table.twin.change_state((3,))
    windows = ((table.batch, table.batch + 1),)
    planned = table.plan(healing(table, windows=windows, needs_another_read=True))
    healed = table.done(planned, is_healed=True)
    assert (healed.foreign_since, healed.rows) == (None, 4)
    assert table.twin.rows() == table.twin.at_source()
