"""Requests by a file of signals and by Airflow's runs, from the request to its outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.filled import ask, filled
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.channels.channel import acknowledge_channels, read_channels

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def by_run(kind: str) -> Signal:
    """Return what `Db2CdcSignalOperator` has a run carry."""
    return Signal(f"run/{kind}", kind, "{}", "airflow")


@pytest.mark.long
def test_a_snapshot_from_a_file_is_paused_resumed_and_stopped(
    new_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    path = tmp_path / "signals.jsonl"
    small = {"incremental.snapshot.chunk.size": 12, "snapshot.group.chunks": 2, "snapshot.budget.s": 0}
    pipeline = new_pipeline(**small, **{"signal.enabled.channels": "airflow,file", "signal.file": str(path)})
    table = filled(pipeline, 55)
    pipeline.to_its_end()

    def in_file(id_: str, kind: str, data: object) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": id_, "type": kind, "data": data}) + "\n")

    def tick(*of_the_run: Signal) -> JobResult:
        result = pipeline.passed(*of_the_run, *read_channels(pipeline.config))
        acknowledge_channels(pipeline.config, result.signals)
        return result

    def state(result: JobResult, id_: str = "by file") -> tuple[str, int]:
        [snapshot] = [one for one in result.snapshots if one.id == id_]
        return snapshot.status, snapshot.done

    in_file("by file", "execute-snapshot", {"data-collections": [str(table)]})
    assert state(tick()) == ("running", 2)
    assert path.read_text() == "", "it is accepted, and has not ended yet"
    assert state(tick(by_run("pause-snapshot"))) == ("paused", 2)
    assert pipeline.tick() is None
    assert state(tick(by_run("resume-snapshot"))) == ("running", 4)
    in_file("end", "stop-snapshot", {"data-collections": [str(table)]})
    ended = tick()
    assert state(ended) == ("stopped", 4)
    assert {one.id: one.status for one in ended.signals} == {"end": "done", "by file": "stopped"}
    told = [json.loads(line) for line in path.with_name("signals.jsonl.outcomes").read_text().splitlines()]
    assert [(one["id"], one["status"]) for one in told] == [
        ("by file", "accepted"), ("end", "done"), ("by file", "stopped")
    ]  # fmt: skip

    in_file("whole", "execute-snapshot", {"data-collections": [str(table)], "type": "blocking"})
    assert state(tick(), "whole") == ("completed", 5)
    assert pipeline.tick(ask(table, "last")) is not None
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
