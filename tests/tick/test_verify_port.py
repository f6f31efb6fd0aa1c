"""The contract of the ports of a verification, held by what is in memory and by what is on Delta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.memory_source import lsn
from support.memory_twin import MemoryTwin
from support.port_table import BOUNDS, BY_TWIN, NewTable, Table
from support.port_verify import MemoryVerifyTwin, Verification, VerifyTwin, places

from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, Comparison
from airflow_provider_db2cdc.cdc.verify.report import TableReport, VerifiedChunks
from airflow_provider_db2cdc.errors import GapError, TargetError

VALUES = {key: 10 * key for key in range(1, 10)}
Begin = Callable[..., Verification]


@pytest.fixture
def begin(new_table: NewTable) -> Begin:
    """Fill a table with three rows in each chunk, and begin a verification of it."""

    def make(quick: bool = False) -> Verification:
        table = new_table(True)
        table.begin(VALUES)
        return Verification(table, twin_of(table), quick)

    return make


def twin_of(table: Table) -> VerifyTwin:
    """Return the ports of a verification for a table of the same kind."""
    if isinstance(table.twin, MemoryTwin):
        return MemoryVerifyTwin(table.twin)
    from support.delta_verify import DeltaVerifyTwin

    return DeltaVerifyTwin(table.twin)  # type: ignore[arg-type]


@BY_TWIN
def test_equal_rows_are_equal_at_once_and_stay_as_they_were(begin: Begin) -> None:
    verification = begin()
    table, comparer = verification.table, verification.comparer
    comparer.check_filled(verification.task)
    first = comparer.position(verification.task)
    assert (first.upto, first.capture) == (table.at, verification.task.capture.identity)
    with verification.read() as rows:
        table.twin.commit({1: 11, 4: None, 12: 120})
        table.done(table.plan())
        old, new = verification.totals(rows, first), verification.totals(rows)
    assert (old.position, old.source_rows, old.state_rows, old.is_equal) == (first, 9, 9, True)
    assert (new.position.upto, new.state_rows, new.is_equal) == (table.at, 9, False)
    with verification.read(1, 1) as rows:
        middle = verification.totals(rows)
    assert (middle.source_rows, middle.state_rows, middle.is_equal) == (2, 2, True)


@BY_TWIN
def test_differences_are_found_in_their_chunks_and_confirmed(begin: Begin) -> None:
    verification = begin()
    table = verification.table
    table.twin.commit({2: 21, 4: None, 12: 120}, is_captured=False)
    with verification.read() as rows:
        found, suspects = verification.compare(rows)
    assert (found.source_rows, found.state_rows, found.keys_changed) == (9, 9, 0)
    assert places(found) == [
        (0, (), ("3",), (0, 0, 1)),
        (1, ("3",), ("6",), (0, 1, 0)),
        (2, ("6",), (), (1, 0, 0)),
    ]
    table.twin.commit({2: 20, 9: 91}, is_captured=False)
    with verification.read() as rows:
        table.twin.commit({5: 55}, is_captured=False)
        found, _ = verification.compare(rows)
        assert places(found)[0] == (1, ("3",), ("6",), (0, 1, 0)), "5 is compared as it was read"
        confirmed, _ = verification.compare(rows, suspects=suspects)
    assert places(confirmed) == [(1, ("3",), ("6",), (0, 1, 0)), (2, ("6",), (), (1, 0, 0))]
    with verification.read(0, 1) as rows:
        assert places(verification.compare(rows)[0]) == [(1, ("3",), ("6",), (0, 1, 1))]


@BY_TWIN
def test_keys_with_a_change_in_the_window_are_not_compared(begin: Begin) -> None:
    verification = begin()
    table, after = verification.table, verification.table.at
    table.twin.commit({2: 21, 4: None, 12: 120})
    table.twin.commit({3: 31, 8: None}, is_captured=False)
    window = LsnRange(after, table.twin.captured())
    with verification.read() as rows:
        found, _ = verification.compare(rows, window)
    assert found.keys_changed == 3
    assert places(found) == [(0, (), ("3",), (0, 0, 1)), (2, ("6",), (), (0, 1, 0))]
    with verification.read(1, 1) as rows:
        found, _ = verification.compare(rows, window)
        assert (found.keys_changed, places(found)) == (1, []), "only keys of the chunks count"
        found, _ = verification.compare(rows)
        assert places(found) == [(1, ("3",), ("6",), (0, 1, 0))]


@BY_TWIN
def test_counts_are_compared_without_what_changes_explain(begin: Begin) -> None:
    verification = begin(quick=True)
    table, after = verification.table, verification.table.at
    with verification.read() as rows:
        assert verification.totals(rows).is_equal
    table.twin.commit({4: None, 5: None, 7: None}, is_captured=False)
    table.twin.commit({6: None})
    window = LsnRange(after, table.twin.captured())
    with verification.read() as rows:
        totals = verification.totals(rows)
        found, _ = verification.compare(rows, window)
    assert (totals.source_rows, totals.state_rows, totals.is_equal) == (5, 9, False)
    assert (found.source_rows, found.state_rows, found.keys_changed) == (5, 9, 1)
    assert places(found) == [(0, (), (), (0, 3, 0))]
    with verification.read(2, 2) as rows:
        found, _ = verification.compare(rows, window)
    assert (found.keys_changed, places(found)) == (0, [(2, ("6",), (), (0, 1, 0))])


@BY_TWIN
def test_a_state_that_cannot_be_compared_is_refused(new_table: NewTable) -> None:
    table = new_table(True)
    table.twin.commit(VALUES)
    verification = Verification(table, twin_of(table))
    with pytest.raises(TargetError, match="is not in the target yet"):
        verification.comparer.check_filled(verification.task)
    table.prepare()
    table.done(table.plan())
    verification.comparer.check_filled(verification.task)
    task = verification.task
    wider = replace(task.schema, columns=(*task.schema.columns, replace(task.schema.columns[-1], name="B")))
    with pytest.raises(TargetError, match="has no column B yet"):
        verification.comparer.check_filled(replace(task, schema=wider))
    verification.begin_initial_snapshot()
    with pytest.raises(TargetError, match="still being filled by its first snapshot"):
        verification.comparer.check_filled(task)
    table.twin.drop()
    with pytest.raises(TargetError, match="is not in the target yet"):
        verification.comparer.check_filled(task)


@BY_TWIN
def test_the_source_shows_bounds_marks_and_lost_changes(begin: Begin) -> None:
    verification = begin()
    table, task = verification.table, verification.task
    position = verification.comparer.position(task)
    table.twin.commit({1: 11, 10: 100})
    window = LsnRange(position.upto, table.twin.captured())
    with verification.ports.source.connect() as reader:
        bounds = reader.find_bounds(task, TableSnapshot(task.table))
        assert tuple(map(tuple, bounds)) == (*BOUNDS, ("9",))
        assert reader.capture_lsn() == window.upto
        assert not reader.column_errors([task])
        mark = reader.watermark.low_mark("")
        table.twin.commit({1: 12})
        table.twin.captured()
        reached = reader.watermark.reached(mark)
        assert reached is not None
        assert reached >= window.upto
        reader.check_window(task, position, window)
        table.twin.prune()
        with pytest.raises(GapError, match="cannot be verified now"):
            reader.check_window(task, position, window)
        pruned = verification.task.capture.pruned_upto
        assert pruned is not None
        reader.check_window(task, position, LsnRange(pruned, pruned))
        table.twin.recreate_changes()
        with pytest.raises(GapError, match="cannot be verified now"):
            reader.check_window(verification.task, position, LsnRange(pruned, pruned))


def compared(table: TableId, first: int, last: int, started_at_ms: int, *found: ChunkDifference) -> VerifiedChunks:
    """Return chunks that were compared."""
    comparison = Comparison(10 + first, 11 + last, 2, found)
    low, high = (lsn(3), lsn(4)) if found else (None, None)
    reads, ended_at_ms = 1 + len(found), started_at_ms + 1
    return VerifiedChunks(table, first, last, comparison, reads, 7, low, high, started_at_ms, ended_at_ms)


@BY_TWIN
def test_a_report_continues_where_it_was_begun_last(begin: Begin) -> None:
    verification = begin()
    twin, table = verification.twin, verification.task.table
    report = verification.ports.report
    assert table not in report.read("one")
    begun = TableReport(table, "columns", BOUNDS)
    stale = TableReport(table, "other columns", BOUNDS)
    report.begin("one", stale, 1_000)
    report.append("one", stale, compared(table, 0, 0, 1_100))
    report.begin("one", begun, 2_000)
    report.append("one", stale, compared(table, 0, 1, 2_100))
    different = compared(table, 0, 0, 2_200, ChunkDifference(0, 0, (), ("3",), 1, 2, 3))
    report.append("one", begun, different)
    twin.ports().report.append("one", begun, compared(table, 1, 2, 2_300))
    read = twin.ports().report.read("one")[table]
    assert read == begun.with_chunks([different, compared(table, 1, 2, 2_300)])
    assert read.is_complete
    assert table not in report.read("two")
    assert table not in twin.ports(quick=True).report.read("one"), "counts do not continue a comparison of rows"
    report.begin("one", begun, 3_000)
    assert twin.ports().report.read("one")[table] == begun
