"""`db2cdc tick --interval-end` against the sandbox. A script stands in for spark-submit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command_line import Command
from support.ended import end_capture
from support.fake_spark import FakeSpark

from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured
from airflow_provider_db2cdc.sandbox.server.service import Sandbox

pytestmark = pytest.mark.sandbox
SCHEMA = "BYINTERVAL"


@pytest.fixture
def connection(captured_sandbox: Sandbox) -> Iterator[Any]:
    """A connection to a source with one captured table. Its clock is ahead of UTC."""
    connection = captured_sandbox.connect()
    cursor = connection.cursor()
    cursor.execute(f"CREATE SCHEMA {SCHEMA}")
    cursor.execute(f"CREATE TABLE {SCHEMA}.T (ID INTEGER NOT NULL PRIMARY KEY)")
    connection.commit()
    control_tables.addtable(connection, SCHEMA, "T")
    yield connection
    end_capture(connection, SCHEMA)
    connection.close()


def insert(connection: Any, id_: int) -> None:
    """Commit a row, and wait until it is captured."""
    connection.cursor().execute(f"INSERT INTO {SCHEMA}.T VALUES ({id_})")
    connection.commit()
    await_captured(connection, 30.0)


def test_tick_carries_the_commits_up_to_its_end(
    connection: Any, captured_sandbox: Sandbox, db2cdc: Command, tmp_path: Path
) -> None:
    spark, path = FakeSpark(tmp_path), tmp_path / "pipeline.yaml"
    own = {"pipeline": "p", "target": "./lake", "table.include.list": f"{SCHEMA}\\..*", "end.at": "interval"}
    jars = {"spark.jars": str(Path(__file__).parents[2] / "build" / "jars"), "spark.binary": str(spark.binary)}
    path.write_text(yaml.safe_dump({**own, "database": captured_sandbox.state.settings, **jars}))
    command = ("tick", "--config", str(path))
    insert(connection, 1)
    first = db2cdc(*command)
    assert first.returncode == 0, first.stderr
    assert "there is no --interval-end: only snapshots are carried" in first.stderr
    insert(connection, 2)
    end = datetime.now(UTC)
    insert(connection, 3)

    done = db2cdc(*command, "--interval-end", end.isoformat())
    assert done.returncode == 0, done.stderr
    spec = spark.call()["spec"]
    assert spec["interval"] == {"start": "", "end": end.isoformat()}
    assert [(task["upto"], task["rows"]) for task in spec["tables"]] == [(spec["interval_end"], 1)]

    spark.binary.with_name("call.json").unlink()
    assert db2cdc(*command, "--interval-end", end.isoformat()).returncode == 0
    assert not spark.called, "the interval has no more commits"
    later = datetime.now(UTC) + timedelta(hours=1)
    refused = db2cdc(*command, "--interval-end", later.isoformat())
    assert refused.returncode == 1
    assert f"error: capture has not passed the end of the data interval, {later.isoformat()}" in refused.stderr
    assert not spark.called
