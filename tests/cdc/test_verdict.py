from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary, TableFailure
from airflow_provider_db2cdc.cdc.offset.verdict import judge
from airflow_provider_db2cdc.cdc.table import TableId

T = TableId("S", "T")
IDENTITY = CaptureIdentity("ASN.CD", "2026-01-01", "2025-01-01", "0")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


CAPTURE = CaptureRegistration(T, "ASN", "CD", "A", "", "DI", None, lsn(40), lsn(60), (), IDENTITY)
OFFSET = Offset(T, lsn(50), 3, capture=IDENTITY.digest, committed_lsn=lsn(50))
ZERO = Offset(T, Lsn(bytes(16)), 0)


@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        (None, "begins"),
        (ZERO, "begins"),
        (replace(ZERO, capture_interrupted=True), "begins"),
        (replace(OFFSET, restart=True, capture_interrupted=True, source_restored=True), "begins"),
        (replace(OFFSET, restart=True, restore=True), "begins"),
        (replace(ZERO, restore=True, capture_interrupted=True), "restored"),
        (replace(OFFSET, restore=True, lsn=lsn(70), source_restored=True), "restored"),
        (OFFSET, "pulled"),
        (replace(OFFSET, capture="", committed_lsn=None), "pulled"),
        (replace(OFFSET, lsn=lsn(45)), "pulled"),
        (replace(OFFSET, lsn=lsn(100), committed_lsn=lsn(100)), "pulled"),
    ],
    ids=[
        "none",
        "no position",
        "never begun",
        "restart",
        "restart and restore",
        "lost",
        "ahead, to be restored",
        "unchanged",
        "set by hand",
        "set back",
        "at the capture position",
    ],
)
def test_a_table_begins_or_continues(offset: Offset | None, kind: str) -> None:
    assert judge(CAPTURE, offset, lsn(100)).kind == kind
    assert judge(CAPTURE, offset, lsn(100)).error is None


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (replace(OFFSET, capture_interrupted=True), "not active for a while"),
        (replace(OFFSET, source_restored=True), "the source was restored"),
        (replace(OFFSET, source_restored=True, lsn=lsn(70)), "the source was restored"),
        (replace(OFFSET, lsn=lsn(70)), "ahead of the target, which only holds changes up to"),
        (replace(OFFSET, capture="another"), "its capture was replaced"),
        (replace(OFFSET, lsn=lsn(30), committed_lsn=lsn(30)), "are pruned"),
        (replace(OFFSET, lsn=lsn(101), committed_lsn=lsn(101)), "before the offset"),
        (replace(OFFSET, lsn=Lsn(b"\1" * 10), committed_lsn=None), "cannot be compared"),
    ],
    ids=["inactive", "restored", "restored, edited", "edited", "replaced", "pruned", "capture behind", "width"],
)
def test_a_table_that_cannot_continue_is_stopped_with_reason_and_remedy(offset: Offset, words: str) -> None:
    verdict = judge(CAPTURE, offset, lsn(100))
    assert verdict.kind == "stopped"
    assert verdict.error is not None
    assert words in str(verdict.error)
    assert verdict.error.remedy
    assert judge(CAPTURE, offset, lsn(100), mends=True).kind == "mended"
    assert judge(CAPTURE, offset, lsn(100), is_pulled=False).kind == "idle"


def test_the_summary_has_the_failed_tables_and_those_with_an_offset() -> None:
    lines = (
        TableResult(T, "applied", lsn(5), 7),
        TableResult(TableId("S", "BAD"), "failed", error="why"),
        TableResult(TableId("S", "LATE"), "failed", error="registered in state 'I'", is_rejected=True),
        TableResult(TableId("S", "SIGNALS"), "failed", error="no signal table", is_replicated=False, is_rejected=True),
    )
    kept = PipelineSummary().updated(JobResult("p", "run", lines))
    assert kept.failures == (
        TableFailure(TableId("S", "BAD"), "why"),
        TableFailure(TableId("S", "LATE"), "registered in state 'I'", is_rejected=True),
    )
    assert [kept.had_offset(line.table) for line in lines] == [True, False, False, False]
    assert kept.updated(JobResult("p", "run", lines[:1], planned_at_ms=1)).failures == ()
