"""The rules of a verification: when it reads again, what it records, and what its verdict says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.job import SourceSpec
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, Comparison, next_step, total, unexplained
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult, VerifySpec, verdict_of
from airflow_provider_db2cdc.cdc.verify.outcome import check_outcome
from airflow_provider_db2cdc.cdc.verify.report import TableReport, VerifiedChunks
from airflow_provider_db2cdc.errors import Db2CdcError, DifferenceError

TABLE, OTHER = TableId("S", "T"), TableId("S", "U")
EQUAL, BUSY = Comparison(1000, 1000), Comparison(1000, 1000, keys_changed=101)
PLACE = ChunkDifference(1, 1, ("10",), ("20",), missing=2, different=1)
WRONG = Comparison(1000, 998, differences=(PLACE,))


@pytest.mark.parametrize(
    ("comparisons", "step"),
    [
        ([EQUAL], "done"),
        ([WRONG], "confirm"),
        ([WRONG, WRONG], "done"),
        ([WRONG, EQUAL], "done"),
        ([BUSY], "read_again"),
        ([BUSY, BUSY], "read_again"),
        ([BUSY, BUSY, BUSY], "done"),
        ([BUSY, EQUAL], "done"),
        ([BUSY, WRONG], "confirm"),
        ([WRONG, BUSY, WRONG], "confirm"),
        ([BUSY, BUSY, BUSY, WRONG], "confirm"),
    ],
)
def test_differences_are_confirmed_and_busy_chunks_read_again(comparisons: list[Comparison], step: str) -> None:
    assert next_step(comparisons) == step


@pytest.mark.parametrize(
    ("rows", "changed", "is_too_changed"), [(10, 100, False), (10, 101, True), (5000, 500, False), (5000, 501, True)]
)
def test_few_changed_keys_or_a_small_share_do_not_count(rows: int, changed: int, is_too_changed: bool) -> None:
    assert Comparison(rows, 0, changed).is_too_changed is is_too_changed
    assert Comparison(0, rows, changed).is_too_changed is is_too_changed


@pytest.mark.parametrize(
    ("source", "state", "changes", "found"),
    [(9, 9, 0, (0, 0)), (9, 7, 0, (2, 0)), (9, 7, 1, (1, 0)), (9, 7, 5, (0, 0)), (7, 9, 1, (0, 1)), (7, 9, 2, (0, 0))],
)
def test_each_change_may_explain_one_row(source: int, state: int, changes: int, found: tuple[int, int]) -> None:
    assert unexplained(source, state, changes) == found


def chunks(first: int, last: int, comparison: Comparison = EQUAL) -> VerifiedChunks:
    return VerifiedChunks(TABLE, first, last, comparison, 1, 4)


REPORT = TableReport(TABLE, "f", (("10",), ("20",), ("30",)))


def test_a_report_continues_after_its_last_chunk() -> None:
    report = REPORT.with_chunks([chunks(0, 1)])
    assert (report.chunk_count, report.next_chunk, report.is_complete) == (4, 2, False)
    assert report.with_chunks([chunks(2, 3)]).is_complete


def test_chunks_count_once_and_without_a_hole() -> None:
    report = REPORT.with_chunks([chunks(0, 1), chunks(0, 0, WRONG), chunks(3, 3), chunks(1, 2, WRONG)])
    assert [(part.first, part.last) for part in report.chunks] == [(0, 1)]
    assert report.with_chunks([chunks(3, 3), chunks(2, 2)]).is_complete


def test_a_verdict_counts_all_chunks() -> None:
    report = REPORT.with_chunks([chunks(0, 0, BUSY), chunks(1, 1, WRONG), chunks(2, 3)])
    verdict = verdict_of(report, show_keys=False, duration_s=2.0)
    assert (verdict.status, verdict.missing, verdict.surplus, verdict.different) == ("different", 2, 0, 1)
    assert (verdict.source_rows, verdict.state_rows, verdict.keys_changed) == (3000, 2998, 101)
    assert (verdict.chunks, verdict.chunks_compared, verdict.rows_differing) == (4, 4, 3)


def test_keys_are_shown_only_where_they_are_asked_for() -> None:
    report = REPORT.with_chunks([chunks(0, 3, WRONG)])
    assert verdict_of(report, show_keys=True).ranges == (PLACE,)
    assert verdict_of(report, show_keys=False).ranges == (replace(PLACE, low=(), high=()),)


@pytest.mark.parametrize(
    ("parts", "error", "status"),
    [
        ([chunks(0, 3)], "", "equal"),
        ([chunks(0, 1)], "", "unfinished"),
        ([chunks(0, 1)], "no", "failed"),
        ([chunks(0, 1, WRONG)], "no", "different"),
        ([chunks(0, 1, WRONG)], "", "different"),
        ([], "", "unfinished"),
    ],
)
def test_a_difference_counts_before_everything_else(parts: list[VerifiedChunks], error: str, status: str) -> None:
    assert verdict_of(REPORT.with_chunks(parts), show_keys=False, error=error).status == status


def result(*verdicts: TableVerdict) -> VerifyResult:
    return VerifyResult("p", "v", verdicts)


def test_an_equal_result_passes() -> None:
    verdicts = result(TableVerdict(TABLE, "equal"), TableVerdict(OTHER, "excluded", error="it has no key"))
    assert not verdicts.is_failed
    check_outcome(verdicts, "")


def test_the_first_line_names_a_difference_and_its_table() -> None:
    differing = verdict_of(REPORT.with_chunks([chunks(0, 3, WRONG)]), show_keys=True)
    with pytest.raises(DifferenceError) as caught:
        check_outcome(result(TableVerdict(OTHER, "failed", error="locked"), differing), "")
    first, second = str(caught.value).split("\n")
    assert first == "S.T differs from its source: 2 missing, 1 different rows (chunk 1: after (10) up to (20))"
    assert second.startswith("S.U could not be verified: locked. Heal S.T: `db2cdc heal S.T`")
    assert "`db2cdc offset restart S.T`" in second


def test_many_places_are_counted() -> None:
    many = tuple(ChunkDifference(number, number + 1, surplus=1) for number in range(7))
    verdict = verdict_of(REPORT.with_chunks([chunks(0, 3, replace(WRONG, differences=many))]), show_keys=False)
    with pytest.raises(DifferenceError, match=r"7 surplus rows \(chunks 0 to 1; .*; chunks 4 to 5; 2 more places\)"):
        check_outcome(result(verdict), "")


@pytest.mark.parametrize(
    ("status", "told"), [("failed", "could not be verified: why"), ("unfinished", "of S.T. go on")]
)
def test_what_was_not_compared_is_an_error(status: str, told: str) -> None:
    with pytest.raises(Db2CdcError, match=told) as caught:
        check_outcome(result(TableVerdict(TABLE, status, error="why")), "go on")  # type: ignore[arg-type]
    assert not isinstance(caught.value, DifferenceError)


def test_the_documents_come_back_from_their_json() -> None:
    excluded = RejectedTable(OTHER, "no key")
    spec = VerifySpec("p", "v", "/t", SourceSpec("jdbc:x", "D", "s", "ASN"), (), budget_s=2.5, excluded=(excluded,))
    assert VerifySpec.from_json(spec.to_json()) == spec
    assert (spec.script, spec.is_short) == ("verify", False)
    found = result(verdict_of(REPORT.with_chunks([chunks(0, 3, WRONG)]), show_keys=True))
    assert spec.read_result(found.to_json()) == found
    assert found.is_failed


def test_differences_add_up() -> None:
    assert total([PLACE, replace(PLACE, surplus=4)]).rows == 10
