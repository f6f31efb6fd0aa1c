from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import Command
from support.memory_offsets import FileOffsets

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary, TableFailure
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli import tick

ROOT = Path(__file__).parents[2]
MAIN = "from airflow_provider_db2cdc.cli.main import main; main()"
HEAVY = {"airflow", "pyspark", "ibm_db", "pydantic", "airflow_provider_db2cdc.config.pipeline"}


def in_a_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text("pipeline: p\ntarget: ./lake\n")
    return str(path)


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom airflow_provider_db2cdc.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = in_a_process(code, "--help")
    assert all(name in done.stdout for name in ("tick", "status", "doctor", "offset", "jars", "sandbox"))
    assert "HEAVY []" in done.stdout


def test_error_is_a_sentence_and_a_remedy_without_a_traceback(config: str) -> None:
    done = in_a_process(MAIN, "tick", "--config", config)
    assert done.returncode == 1
    assert "error: the configuration names no database" in done.stderr
    assert "DB2CDC_PASSWORD" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_command_says_so() -> None:
    code = (
        "from airflow_provider_db2cdc.cli import main, options\n"
        "def run(*arguments, **more): raise KeyboardInterrupt\n"
        "options.run = run\nmain.main()"
    )
    done = in_a_process(code, "options")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interrupted_tick_says_that_the_next_does_what_is_missing(
    db2cdc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tick, "run", run)
    done = db2cdc("tick", "-c", "p.yaml")
    assert (done.returncode, done.stderr) == (130, "interrupted; the next tick does what is missing\n")


def test_full_disk_is_an_error_not_a_crash() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "options"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode != 0
    assert "error: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback_wherever_it_stands(db2cdc: Command, config: str) -> None:
    assert "Traceback" in db2cdc("--debug", "status", "--config", config).stderr
    assert "Traceback" in db2cdc("status", "--config", config, "--debug").stderr


def test_missing_file_is_an_error_not_a_crash(db2cdc: Command, tmp_path: Path) -> None:
    done = db2cdc("doctor", "--config", str(tmp_path / "none.yaml"))
    assert (done.returncode, "cannot be read" in done.stderr) == (1, True)


def test_offsets_are_set_shown_and_removed(db2cdc: Command, config: str) -> None:
    lsn = "00000000:0000150f:0000000000048fca"
    assert "no offsets yet" in db2cdc("offset", "show", "--config", config).stderr
    assert db2cdc("offset", "set", "-c", config, "S.T", lsn, "--batch", "4").returncode == 0
    assert db2cdc("offset", "set", "-c", config, '"A.B"."c d"', lsn).returncode == 0
    wrong = db2cdc("offset", "set", "-c", config, "DB.S.T", lsn)
    assert (wrong.returncode, "'DB.S.T' is not schema.table" in wrong.stderr) == (1, True)
    shown = json.loads(db2cdc("offset", "show", "-c", config, "--json").stdout)
    assert [(entry["table"], entry["lsn"], entry["batch"]) for entry in shown] == [
        ({"schema": "A.B", "name": "c d"}, lsn, 0),
        ({"schema": "S", "name": "T"}, lsn, 4),
    ]
    assert lsn in db2cdc("offset", "show", "-c", config).stdout
    # A tick that is under way was planned with another mark, or none, and does not change it.
    marks = [entry["revision"] for entry in shown]
    assert db2cdc("offset", "restart", "-c", config, "S.T").returncode == 0
    marks += [entry["revision"] for entry in json.loads(db2cdc("offset", "show", "-c", config, "--json").stdout)]
    assert all(marks)
    assert len({*marks}) == 3
    assert db2cdc("offset", "remove", "-c", config, "S.T").returncode == 0
    assert len(json.loads(db2cdc("offset", "show", "-c", config, "--json").stdout)) == 1


@pytest.mark.parametrize(("others", "width"), [((), 16), ((10,), 10)])
def test_a_table_without_an_offset_is_restarted_if_the_last_tick_knew_it(
    db2cdc: Command, config: str, others: tuple[int, ...], width: int
) -> None:
    """Its first batch failed in a way whose way out is a restart."""
    store = FileOffsets(Path(config).with_name("lake") / "_db2cdc" / "offsets.json")
    store.put_summary(PipelineSummary(tables=(TableId("S", "T"), TableId("S", "OTHER"))))
    for other in others:
        store.put(Offset(TableId("S", "OTHER"), Lsn(b"\x01" * other), 1))
    assert db2cdc("offset", "restart", "-c", config, "S.T").returncode == 0
    asked = store.get(TableId("S", "T"))
    assert asked is not None
    assert asked.revision, "a tick that was planned before does not change it"
    assert replace(asked, revision="") == Offset(TableId("S", "T"), Lsn(bytes(width)), 0, restart=True)
    unknown = db2cdc("offset", "restart", "-c", config, "S.TYPO")
    assert (unknown.returncode, "the pipeline's last tick had no such table" in unknown.stderr) == (1, True)


def test_several_tables_are_restarted_or_restored_at_once(db2cdc: Command, config: str) -> None:
    names = ("A", "B", "C")
    tables = tuple(TableId("S", name) for name in names)
    store = FileOffsets(Path(config).with_name("lake") / "_db2cdc" / "offsets.json")
    failures = (TableFailure(tables[1], "its offset is missing", waits_for_operator=True), TableFailure(tables[2], "x"))
    store.put_summary(PipelineSummary(tables=tables, failures=failures))
    for table in (tables[0], tables[2]):
        store.put(Offset(table, Lsn(b"\x01" * 16), 1))

    def requests() -> list[str]:
        offsets = [store.get(table) for table in tables]
        return ["-" if one is None else "restart" * one.restart + "restore" * one.restore for one in offsets]

    assert "no table to restart is named" in db2cdc("offset", "restart", "-c", config).stderr
    other = str(Path(config).with_name("other.yaml"))
    Path(other).write_text(Path(config).read_text().replace("lake", "empty"))
    assert "no tick has run yet: nothing to do" in db2cdc("offset", "restart", "-c", other, "--all").stderr
    assert db2cdc("offset", "restart", "-c", config, "S.A", "S.TYPO").returncode == 1
    assert requests() == ["", "-", ""], "nothing is kept of a request that is refused"
    restored = db2cdc("offset", "restore", "-c", config, "--all-failed")
    assert (restored.returncode, requests()) == (0, ["", "restore", ""])
    assert "S.B: the next tick takes its offset from the target and continues there (now it is lost)" in restored.stderr
    assert "The next tick: `db2cdc tick`. Then see `db2cdc status`." in restored.stderr
    assert "restore" in db2cdc("offset", "show", "-c", config).stdout
    assert db2cdc("offset", "restart", "-c", config, "S.A", "--all-failed").returncode == 0
    assert requests() == ["restart"] * 3
    store.put_summary(PipelineSummary(tables=tables[:2]))
    store.put(*(Offset(table, Lsn(b"\x01" * 16), 1) for table in tables))
    assert requests() == [""] * 3
    assert db2cdc("offset", "restart", "-c", config, "--all").returncode == 0
    assert requests() == ["restart"] * 3, "also of a table that is not in the pipeline now"
    nothing = db2cdc("offset", "restore", "-c", config, "--all-failed")
    assert (nothing.returncode, "no table failed in the last tick in a way" in nothing.stderr) == (0, True)


def test_an_offset_of_a_table_that_no_tick_had_is_reported(db2cdc: Command, config: str) -> None:
    """As one may write it in Db2's SQL, where the error that asked for it named the table."""
    store = FileOffsets(Path(config).with_name("lake") / "_db2cdc" / "offsets.json")
    store.put_summary(PipelineSummary(tables=(TableId("S", "T"),)))
    store.put(Offset(TableId("S", "T"), Lsn(b"\x01" * 16), 1))
    for command in (["set", "s.t", "01" * 16], ["remove", "s.u"]):
        told = db2cdc("offset", command[0], "-c", config, *command[1:]).stderr
        assert "the pipeline's last tick had no table" in told
        assert ("; there is S.T" in told) is (command[1] == "s.t")
    assert "was no table" not in db2cdc("offset", "set", "-c", config, "S.T", "01" * 16).stderr
    assert db2cdc("offset", "set", "-c", config, "S.T", "01" * 16, "--batch", "-7").returncode == 2


@pytest.mark.parametrize(("table", "lsn"), [("T", "00" * 16), ("S.T", "zz")])
def test_wrong_table_or_lsn_is_refused(db2cdc: Command, config: str, table: str, lsn: str) -> None:
    done = db2cdc("offset", "set", "-c", config, table, lsn)
    assert done.returncode == 1
    assert "error:" in done.stderr


@pytest.mark.parametrize("command", [["show"], ["restart", "S.T"], ["remove", "S.T"]])
def test_offsets_say_which_file_they_are_in_and_that_airflow_has_others(
    db2cdc: Command, config: str, command: list[str]
) -> None:
    told = db2cdc("offset", command[0], "-c", config, *command[1:]).stderr
    path = Path(config).with_name("lake") / "_db2cdc" / "offsets.json"
    assert f"offsets: {path} (--airflow looks at Airflow's Variables db2cdc.p~offsets" in told


def test_a_target_that_is_written_without_offsets_in_the_file_is_reported(db2cdc: Command, config: str) -> None:
    """Airflow's pipeline looks new to the command line, which must not say so."""
    (Path(config).with_name("lake") / "_db2cdc" / "commits").mkdir(parents=True)
    assert "does not exist, but ticks have written the target" in db2cdc("offset", "show", "-c", config).stderr
    done = db2cdc("offset", "restart", "-c", config, "S.T")
    assert (done.returncode, "add --airflow" in done.stderr) == (1, True)
