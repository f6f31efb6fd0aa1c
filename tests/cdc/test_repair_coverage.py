"""How much of a table a repair can compare, where its change log may be trimmed."""

from __future__ import annotations

import pytest
from support.memory_source import lsn

from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.repair.coverage import Coverage, check_replayable, find_coverage
from airflow_provider_db2cdc.cdc.repair.pulled import Beginning
from airflow_provider_db2cdc.cdc.repair.repair import Backfill
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError

TABLE = TableId("S", "T")
WORK = Backfill(100, 300, lsn(10), lsn(30))
BEGUN = Beginning(lsn(5), 2, 7)
WHOLE, TRIMMED = LogHorizon(), LogHorizon(6, lsn(20))


def span(after: int, upto: int) -> LsnRange:
    return LsnRange(lsn(after), lsn(upto))


@pytest.mark.parametrize(
    ("work", "beginning", "upto", "expected"),
    [
        (WORK, BEGUN, 50, span(10, 30)),
        (WORK, BEGUN, 25, span(10, 25)),
        (WORK, Beginning(lsn(15), 2, 7), 50, span(15, 30)),
        (Backfill(100, 300), BEGUN, 50, span(5, 50)),
        (WORK, Beginning(lsn(30), 2, 7), 50, None),
        (WORK, BEGUN, 10, None),
        (WORK, BEGUN, None, None),
        (WORK, None, 50, None),
    ],
    ids=str,
)
def test_commits_after_the_beginning_and_up_to_the_position_are_compared(
    work: Backfill, beginning: Beginning | None, upto: int | None, expected: LsnRange | None
) -> None:
    covered = find_coverage(work, beginning, WHOLE, None if upto is None else lsn(upto), True)
    assert covered == Coverage(expected, 0, 0 if beginning is None else 2)


@pytest.mark.parametrize(("work", "after"), [(WORK, 20), (Backfill(100, 300, None, lsn(30)), 20)], ids=str)
def test_a_trimmed_log_is_compared_from_its_horizon_on(work: Backfill, after: int) -> None:
    covered = find_coverage(work, BEGUN, TRIMMED, lsn(50), True)
    assert (covered.span, covered.first_batch, covered.pulled_since) == (span(after, 30), 6, 6)
    assert str(lsn(20)) in covered.note
    assert covered.compares_rows


def test_an_interval_after_the_horizon_needs_no_note() -> None:
    covered = find_coverage(Backfill(200, 300, lsn(20), lsn(30)), BEGUN, TRIMMED, lsn(50), True)
    assert covered == Coverage(span(20, 30), 6, 6)


def test_a_table_that_began_after_the_horizon_has_lost_nothing_since() -> None:
    """Its source was restored, and uses its LSNs again."""
    covered = find_coverage(WORK, Beginning(lsn(5), 6, 7), TRIMMED, lsn(50), True)
    assert covered == Coverage(span(10, 30), 6, 6)


def test_a_beginning_of_an_earlier_history_does_not_limit_a_trimmed_log() -> None:
    """Its LSNs may be greater, or of another length."""
    for after in (lsn(900), Lsn(bytes(10))):
        assert find_coverage(WORK, Beginning(after, 2, 7), TRIMMED, lsn(50), has_key=True).span == span(20, 30)


def test_copies_are_not_counted_from_a_trimmed_log() -> None:
    assert find_coverage(WORK, BEGUN, WHOLE, lsn(50), False).compares_rows
    covered = find_coverage(WORK, BEGUN, TRIMMED, lsn(50), False)
    assert not covered.compares_rows
    assert "copies" in covered.note


def test_a_replay_of_a_trimmed_log_is_refused() -> None:
    check_replayable(TABLE, WHOLE)
    with pytest.raises(TargetError, match="needs the whole change log"):
        check_replayable(TABLE, TRIMMED)
