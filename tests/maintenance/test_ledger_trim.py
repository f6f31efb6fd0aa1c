"""The batch log and the journal keep the rows that a tick needs, however old they are."""

from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.maintenance.ledger_trim import JournalKind, JournalRow, JournalTrim, ledger_trim
from airflow_provider_db2cdc.cdc.table import TableId

TABLE = TableId("S", "T")


def test_rows_of_batches_before_the_horizon_are_deleted() -> None:
    trim = ledger_trim(TABLE, 5, 9, {"chunks": 2, "offset": None})
    assert trim is not None
    assert [batch for batch in range(1, 10) if trim.deletes(batch)] == [1, 3, 4]


def test_the_last_applied_batch_stays() -> None:
    trim = ledger_trim(TABLE, 12, 9, {})
    assert trim is not None
    assert trim.deletes(8)
    assert not trim.deletes(9)
    assert ledger_trim(TABLE, 0, 9, {}) is None


TRIM = JournalTrim(at_ms=100, reported_seq=50, open_ids=frozenset({"open"}), last_seq=40)


@pytest.mark.parametrize(
    ("kind", "is_newest", "snapshot", "is_deleted"),
    [
        ("notification", True, "", True),
        ("signal", True, "", False),
        ("signal", False, "", True),
        ("snapshot", True, "", False),
        ("snapshot", False, "", True),
        ("begun", True, "", False),
        ("skipped", True, "", False),
        ("bounds", True, "over", True),
        ("bounds", True, "open", False),
        ("bounds", False, "open", True),
    ],
)
def test_the_newest_row_of_an_id_stays(kind: JournalKind, is_newest: bool, snapshot: str, is_deleted: bool) -> None:
    assert TRIM.deletes(JournalRow(7, kind, 99, is_newest, snapshot)) == is_deleted


def test_young_unreported_and_last_rows_of_the_journal_stay() -> None:
    assert not TRIM.deletes(JournalRow(7, "notification", 100, True))
    assert not TRIM.deletes(JournalRow(51, "notification", 99, True))
    assert TRIM.deletes(JournalRow(50, "notification", 99, True))
    assert not TRIM.deletes(JournalRow(40, "notification", 99, True))
