"""Several ticks in one Spark application that `db2cdc tick` starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Command
from support.pipeline import Pipeline
from support.submitted import config_file

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

LONG_S = 3600


def documents(text: str) -> Iterator[Any]:
    """Return the JSON documents of a text."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        found, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        yield found


def counted(pipeline: Pipeline, table: TableId) -> dict[str, int]:
    """Return the number of a table's events by op, without those of snapshots."""
    rows = pipeline.changes(table).where("op <> 'r'").groupBy("op").count().collect()
    return {row["op"]: row["count"] for row in rows}


def test_one_application_carries_the_changes_between_its_ticks(
    new_pipeline: Callable[..., Pipeline], db2cdc: Command, tmp_path: Path
) -> None:
    signals = tmp_path / "signals"
    signals.touch()
    pipeline = new_pipeline(**{"signal.enabled.channels": "file", "signal.file": str(signals)})
    ddl = f"CREATE TABLE {pipeline.schema}.{{}} (ID INTEGER NOT NULL PRIMARY KEY, N INTEGER)"
    tables = [pipeline.create(ddl.format(name), name) for name in ("A", "B")]
    for table in tables:
        pipeline.many(f"INSERT INTO {table} VALUES (?, 0)", [(number,) for number in range(20)])
    pipeline.captured()
    pipeline.passed()
    a, b = tables
    steps: list[tuple[str, ...]] = [
        (f"UPDATE {a} SET N = N + 1 WHERE ID < 10", f"DELETE FROM {b} WHERE ID = 1"),
        (f"UPDATE {a} SET ID = ID + 100 WHERE ID = 3", f"INSERT INTO {b} VALUES (1, 7)"),
        (f"INSERT INTO {a} VALUES (3, 9)",),
    ]

    def change(reached: ReachedFailpoint | None = None) -> None:
        """Commit the next step between two ticks. The last one asks for something to report, which ends the run."""
        if not steps:
            signals.write_text('{"id": "end", "type": "log", "data": {"message": "m"}}\n')
            return
        for statement in steps.pop(0):
            pipeline.execute(statement)
        pipeline.writer.commit()
        pipeline.captured()

    change()
    logs = tmp_path / "events"
    logs.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(logs)}
    with failpoint_action("commit_offsets", before=change):
        config = config_file(pipeline, **{"tick.repeat.s": LONG_S, "spark.conf": conf})
        done = db2cdc("tick", "--config", config, "--json")
    assert done.returncode == 0, done.stderr
    results = list(documents(done.stdout))
    assert len(results) == 4
    assert [outcome["id"] for outcome in results[-1]["signals"]] == ["end"]
    for table in tables:
        assert pipeline.rows(table) == pipeline.source_rows(table)
    assert [counted(pipeline, table) for table in tables] == [{"u": 10, "d": 1, "c": 2}, {"d": 1, "c": 1}]
    assert len(list(logs.iterdir())) == 1, "there was one application"
    assert pipeline.tick() is None, "everything is committed"
