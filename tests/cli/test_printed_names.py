"""Names and patterns of users are printed as they are: no markup, no emoji codes, no lost backslashes."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli import doctor, offset, screen, status, tick
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.comparison import verdict
from airflow_provider_db2cdc.demo.comparison.compare import Comparison
from airflow_provider_db2cdc.sandbox.cli import terminal
from airflow_provider_db2cdc.source.preflight.check import Check

PACKAGE = Path(screen.__file__).parents[1]
MODULES = sorted(PACKAGE.rglob("*.py"))
OF_RICH = {"cli/screen.py", "demo/board.py"}
STYLE = re.compile(r"\[/\]|\[/?(?:bold|dim|italic|red|green|yellow|blue|cyan|magenta)\b[^\]]*\]")

NAMES = ["a:warning:b", "t:x", "[bold]x", "[/oops]", r"(\[.*|B)", r"x\[y]", ":x:", r"end\\"]
TABLES = [TableId("S", name) for name in NAMES]
LSN = Lsn(bytes(15) + b"\5")


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).split(".")[-1], node


def short(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_only_the_screen_and_the_board_import_rich() -> None:
    found = {
        short(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "rich" for alias in node.names))
    }
    assert found == OF_RICH


def test_the_only_console_knows_no_markup_and_no_emoji() -> None:
    consoles = [(short(path), node) for path in MODULES for name, node in calls(path) if name == "Console"]
    assert [path for path, _ in consoles] == ["cli/screen.py"]
    switches = {keyword.arg: ast.unparse(keyword.value) for keyword in consoles[0][1].keywords}
    assert {switches.get(name) for name in ("markup", "emoji", "highlight")} == {"False"}


def test_nothing_asks_for_markup() -> None:
    """What takes a text for markup whatever the console says gets none: from_markup, a status, a spinner, a panel."""
    offenders: list[tuple[str, int, object]] = []
    for path in MODULES:
        for name, node in calls(path):
            asks = {keyword.arg for keyword in node.keywords} & {"markup", "emoji"} and name != "Console"
            is_text = all(isinstance(one, ast.Call) and ast.unparse(one.func) == "Text" for one in node.args)
            if asks or name in ("from_markup", "Panel", "rule") or (name == "status" and not is_text):
                offenders.append((short(path), node.lineno, name))
            if name == "Spinner" and (len(node.args) > 1 or node.keywords):
                offenders.append((short(path), node.lineno, name))
        if path.parent.name in ("cli", "demo", "sandbox"):
            constants = (
                node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)
            )
            styled = (node for node in constants if isinstance(node.value, str) and STYLE.search(node.value))
            offenders += [(short(path), node.lineno, node.value) for node in styled]
    assert offenders == []


def outcome(text: str) -> SignalOutcome:
    return SignalOutcome(text, "file", "refused", text)


def progress(table: TableId) -> SnapshotProgress:
    part = TableSnapshotProgress(table, "failed", 0, 1, 0, table.name)
    return SnapshotProgress(table.name, "incremental", "failed", (part,), 5)


def in_doctor() -> None:
    doctor._show([Check("key", str(table), True) for table in TABLES])
    doctor._show([Check(name, name, False, f"problem {name}", f"remedy {name}", "warning") for name in NAMES])


def in_status() -> None:
    path = Path("p.yaml")
    path.write_text("pipeline: p\ntarget: ./lake\n")
    lines = [status.TableStatus(table, "A", "DI", None, None, f"verdict {table.name}") for table in TABLES]
    status._show(load_config(path), CapturePosition(LSN, "", "", 1.0), lines)
    status._show_snapshots(PipelineSummary(tuple(map(progress, TABLES)), tuple(map(outcome, NAMES))))


def in_tick() -> None:
    tick._show(JobResult("p", "r", tuple(TableResult(table, "applied", LSN, 7) for table in TABLES)), (), 1.0)
    tick._show_failed_signals(PipelineSummary(), JobResult("p", "r", (), tuple(map(outcome, NAMES))))


def in_sandbox() -> None:
    terminal.show_rows(NAMES[:2], [(name, name) for name in NAMES])
    for name in NAMES:
        terminal.say(f"captured: {name}", style="yellow")


def in_demo() -> None:
    lines = [Comparison(table, 1, 1, ((table.name,),), {}, 1, None, LSN, None) for table in TABLES]
    verdict.show(screen.screen(), lines, NAMES)
    board = Board(screen.screen())
    for name in NAMES:
        with board.step(f"step {name}") as step:
            step.outcome = name
            board.tell(name)


@pytest.mark.parametrize("show", [in_doctor, in_status, in_tick, in_sandbox, in_demo])
def test_names_are_printed_as_they_are(
    show: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    show()
    written = capsys.readouterr()
    assert [name for name in NAMES if name not in written.out + written.err] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_text_next_to_the_spinner_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with screen.working("begins") as show:
        show(f"goes on {name}")
        time.sleep(0.2)
    assert f"goes on {name}" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)


def test_long_names_are_folded_and_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    name = "N" * 300
    shown = screen.new_table("table", "offset", "a column with a long title")
    shown.add_row(name, "0" * 32, "x")
    screen.screen().print(shown)
    written = capsys.readouterr().out
    assert written.count("N") == 300
    assert "…" not in written


def test_offset_commands_print_names_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "p.yaml"
    config.write_text(yaml.safe_dump({"pipeline": "p", "target": "./lake"}))
    for table in TABLES:
        offset.set_offset(config, name_of(table), str(LSN), 1)
        assert f"{table}: no offset ->" in capsys.readouterr().err
    offset.show(config, as_json=False)
    written = capsys.readouterr().out
    assert [table for table in TABLES if str(table) not in written] == []
    for table in TABLES:
        offset.request(config, "restart", [name_of(table)])
        offset.remove(config, name_of(table))
        written = capsys.readouterr().err
        assert f"{table}: the next tick" in written
        assert f"{table}: its offset" in written
