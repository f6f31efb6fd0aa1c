"""The command line on what Airflow keeps. Two tests run it in a process: no task, no supervisor, Airflow's own log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.command_line import Command
from support.memory_offsets import MemoryOffsets

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.stored import entry_name
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.offsets.variable import variable_key
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.airflow

SEVERAL = """
import json, sys
from airflow_provider_db2cdc.cli.main import main

codes = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["db2cdc", *arguments, "--airflow"]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code or 0)
sys.exit(codes[0] if len(set(codes)) == 1 else 99)
"""
ORDERS, ITEMS = TableId("SHOP", "ORDERS"), TableId("SHOP", "Items")


def keep(*documents: tuple[str, str]) -> None:
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session

    with create_session() as session:
        for key, text in documents:
            session.add(Variable(key=key, val=text))  # type: ignore[no-untyped-call]


def kept(key: str) -> str | None:
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session

    with create_session() as session:
        row = session.query(Variable).filter(Variable.key == key).one_or_none()
        return None if row is None else row.val


def offset(table: TableId, number: int) -> Offset:
    return Offset(table, Lsn(number.to_bytes(16, "big")), 3, 1_700_000_000_000)


def in_a_process(*commands: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run commands in one process, which imports Airflow for seconds. Its code is theirs, or 99 if they differ."""
    command = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "pipeline.yaml"
    path.write_text("pipeline: seen\ntarget: ./lake\n")
    return str(path)


def offsets(*given: Offset) -> str:
    return MemoryOffsets(*given).read_texts()["offsets"] or ""


def requested(pipeline: str, table: TableId) -> dict[str, object]:
    """Return what is requested of a table in Airflow's Variable."""
    entries = json.loads(kept(variable_key(pipeline, "requests")) or '{"tables": {}}')["tables"]
    request = entries.get(entry_name(table), {}).get("request", {})
    return {name: value for name, value in request.items() if name not in ("revision", "set_at_ms")}


def test_offsets_that_airflow_keeps_are_shown_and_repaired(db2cdc: Command, airflow_db: None, config: str) -> None:
    key = variable_key("seen", "offsets")
    keep(
        (key, offsets(offset(ORDERS, 5), offset(ITEMS, 6))),
        (variable_key("seen.more", "offsets"), offsets(offset(ORDERS, 9))),
        ("db2cdc.seen.note", "of somebody else"),
    )

    def shown() -> dict[str, str]:
        rows = json.loads(db2cdc("offset", "show", "-c", config, "--json", "--airflow").stdout)
        return {row["table"]["name"]: row["lsn"] for row in rows}

    before = kept(key)
    assert shown() == {"ORDERS": str(offset(ORDERS, 5).lsn), "Items": str(offset(ITEMS, 6).lsn)}
    assert db2cdc("offset", "restart", "-c", config, "SHOP.ORDERS", "--airflow").returncode == 0
    assert requested("seen", ORDERS) == {"type": "restart"}
    back = db2cdc("offset", "set", "-c", config, "SHOP.ORDERS", str(offset(ORDERS, 2).lsn), "--airflow")
    assert back.returncode == 0, back.stderr
    assert "in Airflow's Variables" in back.stderr
    assert requested("seen", ORDERS) == {"type": "set", "lsn": str(offset(ORDERS, 2).lsn), "batch": 3}
    assert shown()["ORDERS"] == str(offset(ORDERS, 2).lsn)
    assert db2cdc("offset", "remove", "-c", config, "SHOP.Items", "--airflow").returncode == 0
    assert requested("seen", ITEMS) == {"type": "remove"}
    assert kept(key) == before, "only commits write it"
    unknown = db2cdc("offset", "restart", "-c", config, "SHOP.OTHER", "--airflow")
    assert (unknown.returncode, "SHOP.OTHER has no offset in Airflow's Variables" in unknown.stderr) == (1, True)
    other = TableId("SHOP", "OTHER")
    keep((variable_key("seen", "summary"), PipelineSummary(tables=(other,)).to_json()))
    assert db2cdc("offset", "restart", "-c", config, "SHOP.OTHER", "--airflow").returncode == 0
    assert requested("seen", other) == {"type": "restart"}


def test_document_that_cannot_be_read_is_named_and_replaced(db2cdc: Command, airflow_db: None, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("pipeline: spoilt\ntarget: ./lake\n")
    key = variable_key("spoilt", "offsets")
    keep((key, "{oops"), (variable_key("spoilt", "summary"), PipelineSummary(tables=(ORDERS,)).to_json()))
    shown = db2cdc("offset", "show", "-c", str(path), "--airflow")
    assert (shown.returncode, f"the Airflow Variable {key} cannot be read" in shown.stderr) == (1, True)
    restored = db2cdc("offset", "restore", "-c", str(path), "--all-failed", "--airflow")
    assert (restored.returncode, requested("spoilt", ORDERS)) == (0, {"type": "restore"}), restored.stderr
    assert "trigger a run of the DAG" in restored.stderr
    mended = str(offset(ORDERS, 1).lsn)
    assert db2cdc("offset", "set", "-c", str(path), str(ORDERS), mended, "--airflow").returncode == 0
    assert requested("spoilt", ORDERS) == {"type": "set", "lsn": mended, "batch": 0}
    assert kept(key) == "{oops", "a person may mend it"


def test_missing_database_is_reported_with_a_remedy(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    commands = (("show",), ("restart", "S.T"), ("set", "S.T", str(offset(ORDERS, 1).lsn)))
    shown = in_a_process(*(("offset", *command, "-c", config) for command in commands))
    assert shown.returncode == 1
    assert shown.stderr.count("Airflow's database cannot be read") == len(commands)
    assert shown.stderr.count("airflow variables list") == len(commands)


@pytest.mark.sandbox
def test_status_shows_what_airflow_knows(
    airflow_db: None, capturing_sandbox: tuple[Sandbox, object], tmp_path: Path
) -> None:
    sandbox, _ = capturing_sandbox
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "pipeline": "told",
                "target": "./lake",
                "table.include.list": "SHOP.ORDERS",
                "database": sandbox.state.settings,
            }
        )
    )
    part = TableSnapshotProgress(ORDERS, "reading", 1, 4, 10)
    snapshot = SnapshotProgress("77", "incremental", "running", (part,), 5, remaining_s=30)
    keep((variable_key("told", "summary"), PipelineSummary((snapshot,), tables=(ORDERS,)).to_json()))
    lsn = str(offset(ORDERS, 1).lsn)
    done = in_a_process(("offset", "set", "-c", str(path), str(ORDERS), lsn), ("status", "-c", str(path), "--json"))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    [table] = shown["tables"]
    assert table["offset"]["lsn"] == lsn
    assert (shown["snapshots"][0]["id"], shown["snapshots"][0]["remaining_s"]) == ("77", 30)
    assert "new: the next tick" not in done.stdout
    assert "[info" not in done.stderr, "Airflow's own log is not what was asked for"
