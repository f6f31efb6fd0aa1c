from __future__ import annotations

import pytest

from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Status
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.status import _show_snapshots

PARTS = (
    TableSnapshotProgress(TableId("S", "A"), "completed", 4, 4, 40),
    TableSnapshotProgress(TableId("S", "B"), "waiting", 0, None, 0),
)


@pytest.mark.parametrize(("status", "second"), [("running", "waiting"), ("paused", "paused")])
def test_snapshot_is_shown_table_by_table(capsys: pytest.CaptureFixture[str], status: Status, second: str) -> None:
    _show_snapshots(PipelineSummary((SnapshotProgress("77", "incremental", status, PARTS, 5, remaining_s=90),)))
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["77", "incremental", "S.A", "completed", "4 of 4", "40", "90.0 s", ""],
        ["77", "incremental", "S.B", second, "0 of ?", "0", "90.0 s", ""],
    ], "what is over does not wait, though the snapshot is paused"


@pytest.mark.parametrize("text", ["[/oops]", "'[a-z]+' matches no table"])
def test_texts_of_signals_are_shown_as_they_are(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Square brackets are markup to the screen: they would vanish, or be an error."""
    part = TableSnapshotProgress(TableId("S", "T"), "failed", 0, 1, 0, text)
    snapshot = SnapshotProgress(text, "incremental", "failed", (part,), 5)
    _show_snapshots(PipelineSummary((snapshot,), (SignalOutcome(text, "file", "refused", text),)))
    assert capsys.readouterr().out.count(text) == 4
