"""What `db2cdc tick` prints of a result."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.memory_offsets import FileOffsets

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary, handled_id
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome, SignalStatus
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli import tick
from airflow_provider_db2cdc.cli.pipeline import open_store
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.errors import ConfigurationError, TickFailedError
from airflow_provider_db2cdc.offsets.commit import OffsetCommitError

STARTED = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, 5)
AHEAD, FINE, BAD = TableId("S", "AHEAD"), TableId("S", "FINE"), TableId("S", "BAD")
SOONER, LATER = Lsn(bytes(15) + b"\5"), Lsn(bytes(15) + b"\x09")
REFUSED = "signal 77 of channel source refused: [no] reason"


def outcome(status: SignalStatus, id_: str = "77") -> SignalOutcome:
    return SignalOutcome(id_, "source", status, "[no] reason")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text("pipeline: p\ntarget: ./lake\n")
    return path


def commit(config: Path, result: JobResult, as_json: bool = False) -> None:
    """Commit a tick that Spark comes back from with this result."""
    tick.commit(load_config(config), result, as_json, time.monotonic())


def told(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    *outcomes: SignalOutcome,
    as_json: bool = False,
) -> tuple[str, str]:
    """Run a tick with these outcomes; return what it wrote to standard output and to error."""
    commit(config, JobResult("p", "r", (), outcomes, notifications=(STARTED,)), as_json)
    written = capsys.readouterr()
    return written.out, written.err


def test_notifications_to_the_log_are_shown(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "notification: Incremental Snapshot STARTED id=77 connector_name=db2"
    out, err = told(config, capsys, as_json=True)
    assert (err.count(line), json.loads(out)["status"]) == (1, "applied")
    config.write_text(f"{config.read_text()}notification.enabled.channels: delta\n")
    assert line not in told(config, capsys)[1]


@pytest.mark.parametrize(("status", "count"), [("refused", 1), ("failed", 1), ("done", 0), ("accepted", 0)])
def test_a_refused_signal_is_reported_once(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    status: SignalStatus,
    count: int,
) -> None:
    line = f"signal 77 of channel source {status}: [no] reason"
    assert told(config, capsys, outcome(status))[1].count(line) == count
    assert line not in told(config, capsys, outcome(status))[1], "the table brings it again"


def test_a_signal_that_was_accepted_and_fails_later_is_reported(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(config, capsys, outcome("accepted"))
    assert "signal 77 of channel source failed" in told(config, capsys, outcome("failed"))[1]


def test_a_refusal_that_is_no_longer_kept_is_not_reported_again(capsys: pytest.CaptureFixture[str]) -> None:
    before = PipelineSummary(handled_signal_ids=(handled_id(outcome("refused")),))
    tick._show_failed_signals(before, JobResult("p", "r", (), (outcome("refused"),)))
    assert capsys.readouterr().err == ""
    tick._show_failed_signals(PipelineSummary(), JobResult("p", "r", (), (outcome("refused"),)))
    assert REFUSED in capsys.readouterr().err


def test_all_else_is_reported_where_an_offset_cannot_be_kept(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = FileOffsets(open_store(load_config(config)).path)
    store.put(Offset(AHEAD, LATER, 8))
    kept, failed = TableResult(FINE, "applied", SOONER, 7), TableResult(BAD, "failed", error="no disk")
    unkept = TableResult(AHEAD, "applied", SOONER, 7)
    result = JobResult("p", "r", (unkept, kept), (outcome("refused"),), notifications=(STARTED,), reported_seq=9)
    with pytest.raises(OffsetCommitError, match=r"S\.AHEAD"):
        commit(config, result, as_json=True)
    written = capsys.readouterr()
    told = json.loads(written.out)
    assert [one["table"]["name"] for one in told["moved"]] == ["FINE"]
    assert (told["status"], told["unkept"]) == ("failed", [name_of(AHEAD)])
    assert written.err.index("offsets were not kept, the tick continues: ") < written.err.index("Snapshot STARTED")
    assert REFUSED in written.err
    assert store.summary().reported_seq == 9
    with pytest.raises(TickFailedError, match=r"S\.BAD: no disk"):
        commit(config, JobResult("p", "r", (unkept, failed)))
    assert "S.AHEAD" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["tomorrow", "2026-01-01T00:00:00", ""])
def test_interval_ends_at_a_time_with_a_zone(config: Path, end: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--interval-end is .* Give an ISO time with its zone"):
        tick.run(config, as_json=False, progress=False, interval_end=end)
