"""Which commits belong to an interval, and which batch pulled which commit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.memory_source import lsn

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch, begins
from airflow_provider_db2cdc.cdc.repair.pulled import Beginning, pulled_ranges
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, PlannedRepair, Replay
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import DeleteMissing, KeyedChunks
from airflow_provider_db2cdc.cdc.table import TableId

IDENTITY = CaptureIdentity("C", "1", "1", "0")


def planned(batch: int, after: int, upto: int, repair: PlannedRepair | None = None) -> PlannedBatch:
    return PlannedBatch(
        batch, "run", "plan", TableId("S", "T"), lsn(after), lsn(upto), 7 * batch, IDENTITY, repair=repair
    )


@pytest.mark.parametrize(
    ("repair", "held"),
    [
        (Backfill(100, 200, lsn(10), lsn(20)), [11, 20]),
        (Backfill(100, 200, None, lsn(20)), [11, 20]),
        (Backfill(100, 200, lsn(10), None), [11, 20]),
        (Backfill(100, 200), [11, 20]),
    ],
    ids=str,
)
def test_an_interval_excludes_its_beginning_and_includes_its_end(repair: Backfill, held: list[int]) -> None:
    assert [commit for commit in (9, 10, 11, 20, 21) if repair.holds(lsn(commit), commit * 10)] == held


def test_commits_decide_where_they_are_known() -> None:
    assert Backfill(100, 200, lsn(10), lsn(20)).holds(lsn(15), 999)


def test_a_repair_begins_no_table() -> None:
    repair = PlannedRepair(Replay(), Findings())
    assert begins(planned(1, 5, 5))
    assert not begins(planned(1, 5, 5, repair))


def test_the_deletion_of_missing_rows_begins_no_table() -> None:
    deletion = DeleteMissing("initial-1", "initial", 0, 0, lsn(1), 0, 0, "f")
    assert begins(replace(planned(3, 9, 9), chunk_range=KeyedChunks("initial-1", "initial", 0, 0, lsn(1), 0, 0, "f")))
    assert not begins(replace(planned(3, 9, 9), chunk_range=deletion))


def test_ranges_are_those_since_the_newest_beginning() -> None:
    repair = PlannedRepair(Replay(), Findings())
    batches = [planned(1, 5, 5), planned(2, 5, 9), planned(3, 7, 7), planned(4, 7, 8), planned(5, 8, 8, repair)]
    pulled = pulled_ranges([*batches, planned(6, 8, 12)])
    assert pulled is not None
    assert pulled.beginning == Beginning(lsn(7), 3, 21)
    assert [pulled.covering(lsn(commit)) for commit in (7, 8, 9, 12, 13)] == [None, 4, 6, 6, None]


def test_the_newest_batch_covers_a_commit_of_two_ranges() -> None:
    """The second one began at an older offset, which an operator had stored."""
    pulled = pulled_ranges([planned(2, 5, 9), planned(3, 7, 12)])
    assert pulled is not None
    assert pulled.covering(lsn(8)) == 3


def test_the_oldest_batch_stands_for_a_beginning_that_is_trimmed() -> None:
    pulled = pulled_ranges([planned(8, 20, 30), planned(9, 30, 40)])
    assert pulled is not None
    assert pulled.beginning == Beginning(lsn(20), 8, 56)
    assert pulled_ranges([]) is None
    assert pulled_ranges([planned(8, 20, 20, PlannedRepair(Replay(), Findings()))]) is None


def test_the_newest_batch_covers_a_commit_that_was_pulled_twice() -> None:
    pulled = pulled_ranges([planned(1, 5, 5), planned(2, 5, 9), planned(3, 7, 12)])
    assert pulled is not None
    assert [pulled.covering(lsn(commit)) for commit in (7, 8, 9)] == [2, 3, 3]


@pytest.mark.parametrize(
    ("repair", "found", "is_needed"),
    [
        (Backfill(0, 1), Findings(events_added=1), True),
        (Backfill(0, 1), Findings(rows_corrected=1), True),
        (Backfill(0, 1), Findings(is_foreign=True), False),
        (Replay(), Findings(is_foreign=True), True),
        (Replay(), Findings(events_doubled=1, events_only_in_log=1), False),
    ],
    ids=str,
)
def test_a_batch_is_needed_where_something_is_written(
    repair: Backfill | Replay, found: Findings, is_needed: bool
) -> None:
    assert PlannedRepair(repair, found).is_needed == is_needed
