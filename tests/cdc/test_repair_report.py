"""What a repair reports to people and later tasks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Repair, Replay
from airflow_provider_db2cdc.cdc.repair.report import (
    describe_findings,
    remarks,
    repair_report,
    warnings,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TickFailedError
from airflow_provider_db2cdc.offsets.commit import raise_for_failures

A = TableId("S", "A")
WORK = Backfill(60_000, 120_500)
SINCE_BEGIN = 60_000


def lines(repair: Repair = WORK, **found: Any) -> list[str]:
    """Return the remarks and the warnings on a table in which this was found."""
    table = TableResult(A, "unchanged", repair=Findings(**found))
    return [*remarks(table, repair), *warnings(table)]


def test_an_equal_interval_needs_no_word() -> None:
    assert lines(commits=2, events=2, keys=2, comparable_since_ms=SINCE_BEGIN) == []
    assert lines(commits=2, events=2, keys=2, comparable_since_ms=0) == []
    assert lines(Replay(), keys=9) == []


@pytest.mark.parametrize(
    ("found", "remark"),
    [
        ({"note": "its snapshot is under way"}, "its snapshot is under way"),
        ({}, "the target has nothing of the interval. The table began later"),
        ({"keys": 1}, "its change rows are pruned, so only its state was compared"),
        ({"keys": 1, "comparable_since_ms": 60_001}, "could be compared from 1970-01-01T00:01:00.001000+00:00 on"),
        ({"keys": 1, "comparable_since_ms": 0, "events_only_in_log": 2}, "2 events are only in the change log"),
        ({"keys": 1, "comparable_since_ms": 0, "events_doubled": 3}, "3 events are in the change log twice"),
        ({"keys": 1, "comparable_since_ms": 0, "is_foreign": True}, "another writer has changed its tables"),
    ],
)
def test_the_report_names_what_was_not_compared_or_not_mended(found: dict[str, Any], remark: str) -> None:
    [line] = lines(**found)
    assert line.startswith("S.A: ")
    assert remark in line


def test_a_table_that_was_partly_compared_has_both_remarks() -> None:
    assert len(lines(note="the change log is trimmed", keys=1, comparable_since_ms=60_001)) == 2


def test_the_report_is_json_for_later_tasks() -> None:
    found = Findings(1, 2, 3, 4, 5, 6, 7, 1_000)
    failed = TableResult(TableId("S", "B"), "failed", error="no disk")
    report = repair_report(JobResult("p", "r", (TableResult(A, "applied", repair=found), failed), repair=WORK))
    assert json.loads(json.dumps(report)) == {
        "repair": "backfill",
        "interval_start": "1970-01-01T00:01:00+00:00",
        "interval_end": "1970-01-01T00:02:00.500000+00:00",
        "tables": {
            "S.A": {
                "status": "applied", "commits": 1, "events": 2, "keys": 3, "events_added": 4, "events_only_in_log": 5,
                "events_doubled": 6, "rows_corrected": 7, "comparable_since": "1970-01-01T00:00:01+00:00", "note": "",
            },
            "S.B": {"status": "failed", "error": "no disk"},
        },
    }  # fmt: skip
    assert repair_report(JobResult("p", "r", (), repair=Replay())) == {"repair": "replay", "tables": {}}


def test_the_log_has_the_counts_or_the_error() -> None:
    line = describe_findings(TableResult(A, "applied", repair=Findings(rows_corrected=7)))
    assert line.startswith("table=S.A applied commits=0 events=0 keys=0 events_added=0 rows_corrected=7 ")
    assert line.endswith("comparable_since=none")
    assert describe_findings(TableResult(A, "failed", error="no disk")) == "table=S.A failed error: no disk"
    assert [*remarks(TableResult(A, "failed"), WORK), *warnings(TableResult(A, "failed"))] == []


def test_failed_tables_are_listed() -> None:
    fine, failed = TableResult(A, "unchanged"), TableResult(TableId("S", "B"), "failed", error="S.B: no disk")
    raise_for_failures(JobResult("p", "r", (fine,)))
    with pytest.raises(
        TickFailedError, match=r"1 of 2 tables were not repaired .*run it again for these\):\n  S\.B: n"
    ):
        raise_for_failures(JobResult("p", "r", (fine, failed), repair=WORK))
