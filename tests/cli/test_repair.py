"""`db2cdc backfill` and `db2cdc replay`: what they plan, show and return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from support.command_line import Command
from support.fake_spark import FakeSpark

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Replay
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.repair.run import read_time
from airflow_provider_db2cdc.cli.repair.show import show, show_idle
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

JARS = str(Path(__file__).parents[2] / "build" / "jars")
A, B, C, D = (TableId("S", name) for name in "ABCD")
WORK = Backfill(0, 60_000)
RESULT = JobResult(
    "p",
    "r",
    (
        TableResult(A, "unchanged", repair=Findings(3, 4, 2, comparable_since_ms=0)),
        TableResult(B, "applied", repair=Findings(3, 4, 2, 1, 5, rows_corrected=6, comparable_since_ms=30_000)),
        TableResult(C, "unchanged", repair=Findings(note="its snapshot is under way")),
        TableResult(D, "failed", error="S.D: no disk"),
    ),
    repair=WORK,
)


def rows(out: str) -> dict[str, list[str]]:
    """Return the cells of each table's line."""
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if "│" in line]
    return {cells[0]: cells[1:] for cells in lines}


def test_each_table_has_a_line_and_what_is_to_be_known(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, is_dry_run=False, as_json=False, taken_s=2)
    shown = capsys.readouterr()
    assert "p: backfill of 1970-01-01T00:00:00+00:00 to 1970-01-01T00:01:00+00:00 in 2.0 s" in shown.out
    assert rows(shown.out) == {
        "S.A": ["equal", "3", "4", "2", "", "", "", "1970-01-01 00:00:00"],
        "S.B": ["corrected", "3", "4", "2", "1", "6", "5", "1970-01-01 00:00:30"],
        "S.C": ["not compared", "", "", "", "", "", "", "-"],
        "S.D": ["failed", "", "", "", "", "", "", ""],
    }
    assert "S.B: its change rows could be compared from 1970-01-01T00:00:30+00:00 on" in shown.err
    assert "warning: S.B: 5 events are only in the change log" in shown.err
    assert "S.C: its snapshot is under way" in shown.err


def test_a_dry_run_says_that_it_wrote_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = TableResult(A, "applied", repair=Findings(keys=1, rows_corrected=1))
    show(JobResult("p", "r", (found,), repair=Replay()), is_dry_run=True, as_json=False, taken_s=2)
    shown = capsys.readouterr().out
    assert "p: replay in 2.0 s (dry run: nothing was written)" in shown
    assert rows(shown)["S.A"][0] == "different"


def test_json_has_the_report_of_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT, is_dry_run=False, as_json=True, taken_s=2)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["status"], shown["repair"], shown["dry_run"]) == ("failed", "backfill", False)
    assert shown["tables"]["S.B"]["events_added"] == 1
    show_idle("why", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"status": "idle", "reason": "why"}


def test_a_time_without_a_zone_is_one_of_the_source() -> None:
    config = PipelineConfig(pipeline="p", target="/t")
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    berlin = config.model_copy(update={"time_zone": "Europe/Berlin"})
    assert read_time("2026-07-01T14:00", "--from", berlin) == noon
    assert read_time("2026-07-01T12:00Z", "--from", berlin) == read_time("2026-07-01T12:00Z", "--from", config) == noon
    for text in ("yesterday", "2026-07-01T14:00", ""):
        with pytest.raises(ConfigurationError, match=r"--to is .*\. Give an ISO time .* database\.time\.zone must be"):
            read_time(text, "--to", config)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox.start(tmp_path_factory.mktemp("sandbox")) as running:
        connection = running.connect()
        cursor = connection.cursor()
        for statement in ("CREATE SCHEMA SALES", "CREATE TABLE SALES.T (ID INTEGER NOT NULL PRIMARY KEY)"):
            cursor.execute(statement)
        connection.commit()
        control_tables.addtable(connection, "SALES", "T")
        connection.close()
        yield running


@pytest.mark.sandbox
def test_commands_from_the_file_to_the_result(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark = FakeSpark(tmp_path)
    pipeline = {"pipeline": "p", "target": str(tmp_path / "lake"), "table.include.list": "SALES\\..*"}
    spark = {"spark.jars": JARS, "spark.binary": str(fake_spark.binary)}
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**pipeline, "database": sandbox.state.settings, **spark}))
    now = datetime.now(UTC)
    times = ("--from", (now - timedelta(hours=1)).isoformat(), "--to", now.isoformat())
    ahead = ("--from", (now + timedelta(hours=1)).isoformat(), "--to", (now + timedelta(hours=2)).isoformat())

    def run(command: str, *arguments: str) -> tuple[int, str]:
        done = db2cdc(command, "-c", str(path), *arguments)
        return done.returncode, done.stdout + done.stderr

    code, text = run("backfill", *times)
    assert (code, "idle: no table has an offset yet" in text) == (0, True)
    assert run("tick")[0] == 0
    offsets = [file.read_text() for file in tmp_path.rglob("*offsets*.json")]
    code, text = run("backfill", *times, "SALES.T")
    assert (code, "SALES.T" in text, "equal" in text) == (0, True, True)
    repair = fake_spark.call()["spec"]["repair"]
    assert (repair["repair"]["end_ms"], repair["is_dry_run"]) == (int(now.timestamp() * 1000), False)
    code, text = run("backfill", *ahead)
    assert (code, "idle: the interval begins at" in text) == (0, True)
    code, text = run("replay", "SALES.TYPO")
    assert (code, "error: SALES.TYPO is not a captured table" in text) == (1, True)
    assert run("replay", "SALES.T", "--dry-run", "--json")[0] == 0
    assert fake_spark.call()["spec"]["repair"] == {"repair": {"type": "replay"}, "is_dry_run": True}
    monkeypatch.setenv("FAKE_FAIL", "T")
    code, text = run("replay", "SALES.T")
    assert (code, "1 of 1 tables were not repaired" in text) == (1, True)
    assert [file.read_text() for file in tmp_path.rglob("*offsets*.json")] == offsets != []
