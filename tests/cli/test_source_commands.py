"""The commands that read the source, against the sandbox. Most have a script for spark-submit: a JVM takes seconds."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command_line import Command
from support.fake_spark import FakeSpark
from support.memory_offsets import FileOffsets

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.pipeline import open_store
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.sandbox.capture import control_tables, faults
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).parents[2]
JARS = str(ROOT / "build" / "jars")


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox.start(tmp_path_factory.mktemp("sandbox")) as running:
        connection = running.connect()
        cursor = connection.cursor()
        for statement in (
            "CREATE SCHEMA SALES",
            "CREATE TABLE SALES.T (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(9))",
            "INSERT INTO SALES.T VALUES (1, 'a')",
        ):
            cursor.execute(statement)
        connection.commit()
        control_tables.addtable(connection, "SALES", "T")
        connection.close()
        yield running


def write_config(folder: Path, sandbox: Sandbox, **changed: str) -> str:
    pipeline = {"pipeline": "p", "target": "./lake", "table.include.list": "SALES\\..*", "poll.interval.ms": 500}
    spark = {"spark.jars": JARS, "spark.binary": str(FakeSpark(folder).binary)}
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**pipeline, "database": {**sandbox.state.settings, **changed}, **spark}))
    return str(path)


def change_config(path: Path, changed: Mapping[str, object]) -> None:
    """Set properties of a configuration. None removes one."""
    properties = {**yaml.safe_load(path.read_text()), **changed}
    path.write_text(yaml.safe_dump({name: value for name, value in properties.items() if value is not None}))


def use_spark(path: Path) -> None:
    """Have a configuration use the installed Spark."""
    change_config(path, {"spark.binary": None})


@pytest.fixture
def config(tmp_path: Path, sandbox: Sandbox) -> str:
    return write_config(tmp_path, sandbox)


def test_doctor_passes_and_says_why_a_property_is_ignored(db2cdc: Command, config: str) -> None:
    done = db2cdc("doctor", "--config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SALES.T" in done.stdout
    assert "poll.interval.ms is ignored" in done.stderr
    checks = json.loads(db2cdc("doctor", "--config", config, "--json").stdout)
    bad = sum(not check["ok"] for check in checks)
    assert bad, "there is one, which does not keep the pipeline from running"
    assert f"{len(checks)} checks, 0 failed, {bad} warnings" in done.stderr


def test_doctor_refuses_a_local_target_on_a_cluster(db2cdc: Command, tmp_path: Path, sandbox: Sandbox) -> None:
    path, target = Path(write_config(tmp_path, sandbox)), str(tmp_path / "lake")
    change_config(path, {"spark.master": "spark://127.0.0.1:1", "offsets.file": str(tmp_path / "offsets.json")})

    def problem(**changed: object) -> str:
        change_config(path, changed)
        found = json.loads(db2cdc("doctor", "--config", str(path), "--json").stdout)
        return next(str(check["problem"]) for check in found if check["name"] == "target")

    refused = "is a local path, and Spark runs on spark://127.0.0.1:1"
    assert refused in problem(target=f"file:{target}")
    assert not problem(target=target), "the configuration of that spark-submit says where it lies"
    assert refused in problem(**{"spark.conf": {"spark.hadoop.fs.defaultFS": "file:///"}})
    assert not problem(**{"spark.conf": {"spark.hadoop.fs.defaultFS": "hdfs://namenode"}})
    assert not problem(**{"target": f"file:{target}", "target.shared.mount": True})


def test_connector_is_taken_as_it_was_pasted(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the target stands what Kafka Connect has, with a list that a variable leaves empty."""
    login = {f"database.{name}": value for name, value in sandbox.state.settings.items() if name != "options"}
    connector = {
        "connector.class": "io.debezium.connector.db2.Db2Connector",
        **login,
        "database.cdcschema": "ASNCDC",
        "database.server.name": "old",
        "topic.prefix": "new",
        "table.exclude.list": "${env:DB2CDC_TEST_LEFT_OUT}",
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    }
    above = yaml.safe_dump({"target": "./lake", "database.options": sandbox.state.settings["options"]})
    path = tmp_path / "pipeline.yaml"
    spark = f"spark.jars: {JARS}\nspark.binary: {FakeSpark(tmp_path).binary}\n"
    path.write_text(above + spark + json.dumps({"name": "c", "config": connector}, indent="\t"))
    monkeypatch.setenv("DB2CDC_TEST_LEFT_OUT", "")
    done = db2cdc("doctor", "--config", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "table.exclude.list is given, but empty: no table is excluded" in done.stdout
    assert "transforms.route is ignored: RegexRouter" in done.stderr
    assert "database.server.name is ignored: topic.prefix is given" in done.stderr
    path.write_text(path.read_text().replace('"sandbox"', '"${vault:db2}"'))
    refused = db2cdc("tick", "--config", str(path))
    assert refused.returncode == 1
    assert "error: database.password: write ${env:NAME}" in refused.stderr


def test_doctor_looks_at_channels_and_notifiers(db2cdc: Command, tmp_path: Path, sandbox: Sandbox) -> None:
    path = Path(write_config(tmp_path, sandbox))
    more = {
        "signal.enabled.channels": "airflow, file, json:Nothing",
        "signal.file": str(tmp_path),
        "notification.enabled.channels": "log, json:Nothing",
    }
    change_config(path, more)
    done = db2cdc("doctor", "--config", str(path), "--json")
    errors = [check for check in json.loads(done.stdout) if not check["ok"] and check["level"] == "error"]
    assert [(check["name"], check["subject"]) for check in errors] == [
        ("notifications", "notification.enabled.channels"),
        ("signals", "channel file"),
        ("signals", "channel json:Nothing"),
    ]


def test_doctor_connects_as_spark_does(db2cdc: Command, tmp_path: Path, sandbox: Sandbox) -> None:
    path = Path(write_config(tmp_path, sandbox))
    use_spark(path)
    checks = json.loads(db2cdc("doctor", "--config", str(path), "--json").stdout)
    assert [check["ok"] for check in checks if check["name"] == "JDBC connection"] == [True]
    change_config(path, {"driver.securityMechanism": "11"})
    done = db2cdc("doctor", "--config", str(path), "--json")
    [check] = [check for check in json.loads(done.stdout) if check["name"] == "JDBC connection"]
    assert (done.returncode, check["ok"]) == (1, False)
    assert check["problem"].startswith("Spark's connection (JDBC): ")


@pytest.mark.parametrize("lacking", ["jcc", "delta"])
def test_jars_without_a_driver_or_delta_fail_before_spark_starts(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox, lacking: str
) -> None:
    path = Path(write_config(tmp_path, sandbox))
    (tmp_path / "jars").mkdir()
    for jar in Path(JARS, "spark").glob("*.jar"):
        if lacking not in jar.name:
            (tmp_path / "jars" / jar.name).symlink_to(jar)
    change_config(path, {"spark.jars": str(tmp_path / "jars")})
    done = db2cdc("doctor", "--config", str(path), "--json")
    checks = json.loads(done.stdout)
    assert done.returncode == 1
    [failed] = [check for check in checks if not check["ok"] and check["level"] == "error"]
    assert failed["name"] == "jars"
    assert "JDBC connection" not in {check["name"] for check in checks}, "it cannot be tried"
    done = db2cdc("tick", "--config", str(path))
    assert done.returncode == 1
    assert failed["problem"] in " ".join(done.stderr.split())
    assert f"db2cdc jars --into {tmp_path / 'jars'}" in " ".join(done.stderr.split())


def test_doctor_names_every_failure_and_exits_with_an_error(db2cdc: Command, tmp_path: Path, sandbox: Sandbox) -> None:
    config = write_config(tmp_path, sandbox, password="wrong")
    offsets = tmp_path / "lake" / "_db2cdc" / "offsets.json"
    offsets.parent.mkdir(parents=True)
    offsets.write_text("damaged")
    done = db2cdc("doctor", "--config", config, "--json")
    assert done.returncode == 1
    assert {check["name"] for check in json.loads(done.stdout) if not check["ok"]} == {"offsets", "connection"}
    assert "wrong" not in done.stdout + done.stderr


def test_doctor_checks_the_offset_folder_and_the_java_of_spark(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(write_config(tmp_path, sandbox))
    use_spark(path)
    java = shutil.which("java")
    assert java is not None
    # All other commands stay: spark-submit is a script of the shell.
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "env", "dirname", "python3"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not Path(folder, "java").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), *folders]))
    monkeypatch.setenv("JAVA_HOME", str(Path(java).resolve().parents[1]))
    (tmp_path / "file").write_text("")
    more = {"offsets.file": str(tmp_path / "file" / "offsets.json")}
    change_config(path, more)
    done = db2cdc("doctor", "--config", str(path), "--json")
    errors = [check for check in json.loads(done.stdout) if not check["ok"] and check["level"] == "error"]
    assert [(check["name"], check["subject"]) for check in errors] == [("offsets", more["offsets.file"])]
    assert "is not a folder that this user may write to" in errors[0]["problem"]


def kept_offsets(config: str | Path) -> FileOffsets:
    return FileOffsets(open_store(load_config(Path(config))).path)


def test_a_table_is_new_then_waits_then_is_up_to_date(db2cdc: Command, config: str, sandbox: Sandbox) -> None:
    assert standing(db2cdc, config)["verdict"] == "new: the next tick begins it"
    db2cdc("offset", "set", "-c", config, "SALES.T", fence(db2cdc, config))
    assert standing(db2cdc, config)["verdict"] == "up to date"
    connection = sandbox.connect()
    connection.cursor().execute("UPDATE SALES.T SET NAME = 'b'")
    connection.commit()
    connection.close()
    deadline = time.monotonic() + 60
    while standing(db2cdc, config)["pending"] == 0 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert standing(db2cdc, config)["verdict"] == "2 change rows wait"
    assert "SALES.T" in db2cdc("status", "-c", config).stdout
    store, table = kept_offsets(config), TableId("SALES", "T")
    offset = store.get(table)
    assert offset is not None
    store.put(replace(offset, capture_interrupted=True))
    assert standing(db2cdc, config)["verdict"].startswith("stopped: its registration was not active for a while")
    db2cdc("offset", "set", "-c", config, "SALES.T", str(offset.lsn))
    assert standing(db2cdc, config)["verdict"] == "2 change rows wait"
    store.put(replace(offset, capture="of before"))
    assert standing(db2cdc, config)["verdict"].startswith("stopped: its capture was replaced since its offset")
    db2cdc("offset", "set", "-c", config, "SALES.T", "01" * 10)
    assert standing(db2cdc, config)["verdict"].startswith("stopped: LSNs of 16 and 10 bytes cannot be compared")
    [check] = [one for one in json.loads(db2cdc("doctor", "-c", config, "--json").stdout) if one["name"] == "offset"]
    assert "LSNs of 16 and 10 bytes" in check["problem"]
    db2cdc("offset", "restart", "-c", config, "SALES.T")
    assert standing(db2cdc, config)["verdict"] == "begins again with the next tick"


def test_a_pipeline_that_airflow_runs_is_not_called_new(db2cdc: Command, config: str) -> None:
    (Path(config).with_name("lake") / "_db2cdc" / "commits").mkdir(parents=True)
    assert standing(db2cdc, config)["verdict"] == "unknown: its offset is not in this file"
    assert "Airflow's Variables db2cdc.p~offsets" in db2cdc("status", "-c", config).stderr


def test_a_tick_without_changes_is_idle_and_starts_no_spark(db2cdc: Command, config: str) -> None:
    store, at = kept_offsets(config), Lsn.parse(fence(db2cdc, config))
    store.put(Offset(TableId("SALES", "T"), at, 1, planned_at_ms=time.time_ns() // 10**6, committed_lsn=at))
    store.put_summary(PipelineSummary(tables=(TableId("SALES", "T"),)))
    done = db2cdc("tick", "-c", config, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (
        0,
        {"status": "idle", "reason": "nothing new up to the capture position"},
    ), done.stderr
    assert "poll.interval.ms" in done.stderr


def test_repeated_ticks_end_with_their_time_and_each_result_is_shown_once(db2cdc: Command, config: str) -> None:
    change_config(Path(config), {"tick.repeat.s": 4})
    done = db2cdc("tick", "-c", config, "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "applied"), done.stderr


def test_a_tick_that_meets_an_inactive_registration_tells_the_offset(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox
) -> None:
    path = Path(write_config(tmp_path, sandbox))
    db2cdc("offset", "set", "-c", str(path), "SALES.T", fence(db2cdc, str(path)))
    connection = sandbox.connect()
    faults.set_state(connection, "SALES", "T", "S")
    done = db2cdc("tick", "-c", str(path))
    faults.set_state(connection, "SALES", "T", "A")
    connection.close()
    assert done.returncode == 1
    assert "registered in state 'S'" in done.stderr
    offset = kept_offsets(path).get(TableId("SALES", "T"))
    assert offset is not None
    assert offset.capture_interrupted
    assert "was inactive" in db2cdc("offset", "show", "-c", str(path)).stdout
    assert standing(db2cdc, str(path))["verdict"].startswith("stopped: its registration was not active")


def test_table_without_registration_is_shown_and_fails_the_tick(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox
) -> None:
    config = write_config(tmp_path, sandbox)
    gone = TableId("SALES", "GONE")
    kept_offsets(config).put_summary(PipelineSummary(tables=(TableId("SALES", "T"), gone)))
    lines = {line["table"]["name"]: line["verdict"] for line in status(db2cdc, config)["tables"]}
    assert lines["GONE"].startswith("not registered any more")
    done = db2cdc("tick", "-c", config)
    assert (done.returncode, "SALES.GONE" in done.stderr) == (1, True)


@pytest.mark.long
def test_tick_writes_the_target_with_the_installed_spark(db2cdc: Command, tmp_path: Path, sandbox: Sandbox) -> None:
    path = Path(write_config(tmp_path, sandbox))
    use_spark(path)
    done = db2cdc("tick", "-c", str(path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "applied"
    assert list((tmp_path / "lake").rglob("*.parquet"))


ODD_NAMES = ("a:warning:b", "t:x", "[bold]x", "B")
ODD_PATTERN = r"ODD\.(\[.*|[a-z]:.*|.:.*:b|B)"


def test_odd_names_and_patterns_are_printed_as_they_are(db2cdc: Command, tmp_path: Path, sandbox: Sandbox) -> None:
    folder, path = str(sandbox.folder), Path(write_config(tmp_path, sandbox))
    change_config(path, {"table.include.list": [ODD_PATTERN, "ODD.X$"]})
    connection = sandbox.connect()
    connection.cursor().execute("CREATE SCHEMA ODD")
    for name in ODD_NAMES:
        connection.cursor().execute(f'CREATE TABLE ODD."{name}" (ID INTEGER NOT NULL PRIMARY KEY)')
    connection.commit()
    connection.close()
    names = [f'ODD."{name}"' for name in ODD_NAMES]
    added = db2cdc("sandbox", "addtable", "--dir", folder, *names)
    shown = {
        "sandbox addtable": added.stdout,
        "sandbox status": db2cdc("sandbox", "status", "--dir", folder).stdout,
        "doctor": db2cdc("doctor", "-c", str(path)).stdout,
        "status": db2cdc("status", "-c", str(path)).stdout,
        "offset set": "".join(db2cdc("offset", "set", "-c", str(path), name, "0" * 32).stderr for name in names),
        "offset show": db2cdc("offset", "show", "-c", str(path)).stdout,
    }
    assert db2cdc("sandbox", "removetable", "--dir", folder, *names).returncode == 0
    lost = [(what, name) for what, text in shown.items() for name in ODD_NAMES if f"ODD.{name}" not in text]
    assert lost == []
    path.write_text(path.read_text().replace(r"ODD.X$", r"ODD\.(\[y.*|Z)"))
    done = db2cdc("doctor", "-c", str(path))
    assert r"table.include.list: 'ODD\.(\[y.*|Z)' matches no registered table" in done.stdout


CASES = {
    "a misspelt column to exclude": (
        {"column.exclude.list": "SALES.T.NAMM"},
        "column.exclude.list: 'SALES.T.NAMM' matches no column",
        "Near it: SALES.T.NAME",
    ),
    "a misspelt table": ({"table.include.list": "SALES.TT"}, "'SALES.TT' matches no registered table", "SALES.T"),
    "a class of Java": ({"table.exclude.list": r"BANK[A-Z&&[^X]]*\..*"}, "has && in a class", "(?=[^X])[A-Z]"),
    "a quote of Java": ({"table.include.list": r"\QSALES.T\E"}, r"has \Q...\E", r"Write SALES\.T instead"),
}


@pytest.mark.parametrize("case", CASES)
def test_lists_that_name_nothing_stop_the_tick_and_fail_the_doctor(
    db2cdc: Command, tmp_path: Path, sandbox: Sandbox, case: str
) -> None:
    changed, problem, remedy = CASES[case]
    path = Path(write_config(tmp_path, sandbox))
    change_config(path, {"table.include.list": None, **changed})
    for command in ("doctor", "tick"):
        done = db2cdc(command, "-c", str(path))
        assert done.returncode == 1
        assert problem in done.stdout + done.stderr
        assert remedy in done.stdout + done.stderr


def status(db2cdc: Command, config: str) -> Any:
    return json.loads(db2cdc("status", "--config", config, "--json").stdout)


def standing(db2cdc: Command, config: str) -> Any:
    [table] = status(db2cdc, config)["tables"]
    return table


def fence(db2cdc: Command, config: str) -> str:
    return str(status(db2cdc, config)["capture_position"]["lsn"])
