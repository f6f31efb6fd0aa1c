"""The commands mean and show the same names in every locale."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.fake_spark import FakeSpark

from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.statement import execute, quoted
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
MAIN = "from airflow_provider_db2cdc.cli.main import main; main()"
NAMES = ["ŞİRKET", "受注", "😀"]
ASCII_ONLY = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALES = [
    {"LC_ALL": "C"},
    {"LC_ALL": "xx_XX.UTF-8"},
    ASCII_ONLY,
    {"LANG": "C.UTF-8", "PYTHONIOENCODING": "ascii"},
    {"LANG": "C.UTF-8"},
]


def db2cdc(changed: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "DB2CODE"))}
    command = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, env={**kept, **changed}, check=False)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox.start(tmp_path_factory.mktemp("sandbox")) as running:
        connection = running.connect()
        execute(connection, "CREATE SCHEMA S")
        for name in NAMES:
            execute(connection, f"CREATE TABLE {quoted('S', name)} (ID INTEGER NOT NULL PRIMARY KEY)")
            control_tables.addtable(connection, "S", name)
        connection.commit()
        connection.close()
        yield running


@pytest.fixture
def config(tmp_path: Path, sandbox: Sandbox) -> str:
    path = tmp_path / "pipeline.yaml"
    pipeline = {
        "pipeline": "p",
        "target": "./lake",
        "table.include.list": r"S\..*",
        "spark.jars": str(ROOT / "build" / "jars"),
        "spark.binary": str(FakeSpark(tmp_path).binary),
    }
    path.write_text(yaml.safe_dump({**pipeline, "database": sandbox.state.settings}))
    return str(path)


def is_shown(name: str, output: bytes) -> bool:
    """Whether an output has a name, or its escapes where the encoding lacks a character."""
    text = output.decode("utf-8")
    return name in text or name.encode("ascii", "backslashreplace").decode() in text


@pytest.mark.parametrize("changed", LOCALES, ids=str)
def test_status_shows_every_name_or_its_escapes(config: str, changed: dict[str, str]) -> None:
    done = db2cdc(changed, "status", "-c", config)
    assert done.returncode == 0, done.stderr
    assert [name for name in NAMES if not is_shown(name, done.stdout)] == []


@pytest.mark.parametrize(
    "changed",
    [pytest.param(changed, marks=[] if changed == ASCII_ONLY else pytest.mark.long) for changed in LOCALES],
    ids=str,
)
def test_doctor_finds_every_table_and_shows_its_name(config: str, changed: dict[str, str]) -> None:
    done = db2cdc(changed, "doctor", "-c", config)
    assert (done.returncode, b"0 failed" in done.stderr) == (0, True), done.stdout + done.stderr
    assert [name for name in NAMES if not is_shown(name, done.stdout)] == []


@pytest.mark.parametrize("changed", LOCALES, ids=str)
def test_an_error_shows_a_name_or_its_escapes(sandbox: Sandbox, changed: dict[str, str]) -> None:
    done = db2cdc(changed, "sandbox", "addtable", "--dir", str(sandbox.folder), 'S."Ş"')
    assert done.returncode == 1
    assert b"there is no table S." in done.stderr or b"half a character" in done.stderr
    assert b"Traceback" not in done.stderr
