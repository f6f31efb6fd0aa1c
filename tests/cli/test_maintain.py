"""What `db2cdc maintain` asks Spark for, and what it shows of a result."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from airflow_provider_db2cdc.cdc.maintenance.job import (
    FileCount,
    MaintenanceResult,
    StepReport,
    TableReport,
    maintenance_spec,
    raise_for_failed_tables,
)
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.maintain import show
from airflow_provider_db2cdc.errors import TickFailedError

A, B = TableId("S", "A"), TableId("S", "B")
NOTHING = StepReport("change log", "vacuum", "nothing", FileCount(1, 5), FileCount(1, 5))
COMPACTED = StepReport("current state", "compact", "done", FileCount(40, 8_000), FileCount(1, 25_000_000), "40 small")
BUSY = StepReport("current state", "purge", "skipped", FileCount(4, 50), FileCount(4, 50), "busy")
RESULT = MaintenanceResult("p", "r", (TableReport(A, (NOTHING, COMPACTED, BUSY)), TableReport(None, (NOTHING,))))


def test_files_and_bytes_are_shown_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, as_json=False)
    shown = capsys.readouterr().out
    [line] = [line for line in shown.splitlines() if "compact" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "S.A", "current state", "compact", "done", "40 -> 1", "8000 B -> 25 MB", "40 small",
    ]  # fmt: skip
    assert "vacuum" not in shown, "it had nothing to do"
    assert "p: maintenance of 2 tables" in shown


def test_a_run_without_work_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(replace(RESULT, tables=(TableReport(A, (NOTHING,)),)), as_json=False)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "p: there was nothing to do\n")


def test_json_has_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["tables"][0]["steps"]) == 3
    assert MaintenanceResult.from_json(RESULT.to_json()) == RESULT


def test_an_error_begins_with_the_first_failed_table() -> None:
    raise_for_failed_tables(RESULT)
    failed = replace(RESULT, tables=(TableReport(A, error="S.A: no. Do."), TableReport(None, error="full.")))
    with pytest.raises(TickFailedError, match=r"^S\.A: no\. Do\.\nAlso:\n  - the pipeline's own tables: full\.$"):
        raise_for_failed_tables(failed)


@pytest.mark.parametrize(("retention", "seconds"), [(None, None), (timedelta(days=2), 172_800)])
def test_the_spec_has_the_retention_and_what_was_reported(retention: timedelta | None, seconds: float | None) -> None:
    config = SimpleNamespace(pipeline="p", target="/t", change_log_retention=retention, shared_mount=True)
    spec = maintenance_spec(config, PipelineSummary(reported_seq=5), "run", 10**9)
    assert (spec.retention_s, spec.reported_seq, spec.at_ms) == (seconds, 5, 10**9)
    assert spec.shared_mount
    assert spec.cutoff_ms == (None if seconds is None else 10**9 - 172_800_000)
