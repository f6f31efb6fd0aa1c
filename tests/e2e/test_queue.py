"""Several snapshots of one table: they are taken one after the other, whatever dies or fails meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.crash import killed
from support.log import reads
from support.pipeline import Pipeline, use_signal_table
from support.writing import behind

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

SMALL = {"incremental.snapshot.chunk.size": 10, "snapshot.group.chunks": 1, "snapshot.budget.s": 0}


def execute(id_: str, *tables: TableId, **data: str) -> Signal:
    return Signal(
        id_, "execute-snapshot", json.dumps({"data-collections": [str(one) for one in tables], **data}), "airflow"
    )


def outcomes(result: JobResult) -> dict[str, tuple[str, str]]:
    return {one.id: (one.status, one.reason) for one in result.signals}


def keyed(pipeline: Pipeline, name: str, rows: int) -> TableId:
    table = pipeline.create(f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY)', name)
    pipeline.many(f"INSERT INTO {table} VALUES (?)", [(at,) for at in range(rows)])
    return table


def test_requests_for_one_table_are_taken_in_their_order(new_pipeline: Callable[..., Pipeline]) -> None:
    """Two in one tick, and a tick that is killed after the second one's first group."""
    pipeline = new_pipeline()
    one, other = keyed(pipeline, "T1", 30), keyed(pipeline, "T2", 5)
    pipeline.captured()
    pipeline.passed()
    pipeline.properties = SMALL
    asked = execute("a", one), execute("b", one, other), execute("c", one, type="blocking")
    found = outcomes(pipeline.passed(*asked))
    assert found == {
        "a": ("accepted", ""),
        "b": ("accepted", f"{one} waits for snapshot 'a'"),
        "c": ("accepted", f"{one} waits for snapshot 'a'"),
    }
    ends: dict[str, tuple[str, str]] = {}
    pipeline.execute(f"DELETE FROM {one} WHERE ID = 7")
    pipeline.writer.commit()
    pipeline.captured()
    while "a" not in ends or ends["a"][0] == "accepted":
        ends |= outcomes(pipeline.passed())
    assert {id_: ends[id_][0] for id_ in ends if id_ != "a"} in ({}, {"b": "accepted", "c": "accepted"})
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after", 1):
        job.run(spec)
    while (result := pipeline.tick()) is not None:
        assert not result.failed, result.failed
        ends |= outcomes(result)
    assert ends == dict.fromkeys("abc", ("done", ""))
    assert reads(pipeline, one)[(3,)] == 4, "each of the three has read it once, after the first snapshot"
    assert pipeline.rows(one) == pipeline.source_rows(one)
    assert pipeline.offsets.summary().has_snapshot_work({one, other}) is False


def test_a_table_that_becomes_free_within_a_tick_begins_with_its_own_turn(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Nothing has waited for capture to pass what this table is to begin with."""
    pipeline = new_pipeline(**{**SMALL, "snapshot.budget.s": 900})
    signals = use_signal_table(pipeline, f"{pipeline.schema}_SIGNALS")
    one, other = keyed(pipeline, "T1", 5), keyed(pipeline, "T2", 30)
    pipeline.captured()
    pipeline.passed()
    pipeline.passed(execute("a", one, type="blocking"), Signal("wait", "pause-snapshot", "{}", "airflow"))

    def write(read: int) -> None:
        if read == 1:
            pipeline.execute(f"INSERT INTO {signals} VALUES ('halt', 'stop-snapshot', '{{\"type\": \"blocking\"}}')")
            pipeline.writer.commit()
            pipeline.captured()

    with behind("stage_rows", write):
        result = pipeline.passed(execute("b", one, other))
    assert outcomes(result)["a"][0] == "stopped"
    assert outcomes(result)["b"] == ("accepted", f"{one} waits for snapshot 'a'")
    [snapshot] = [snapshot for snapshot in result.snapshots if snapshot.id == "b"]
    assert {part.table: part.status for part in snapshot.tables} == {one: "waiting", other: "completed"}
    assert outcomes(pipeline.passed())["b"] == ("done", "")
    assert reads(pipeline, one)[(3,)] == reads(pipeline, other)[(3,)] == 2


def test_a_table_that_never_rests_keeps_no_other_of_a_signal_waiting(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.tick.snapshot.publisher.MAX_READS", 2)
    pipeline = new_pipeline()
    quiet = keyed(pipeline, "T", 5)
    busy = pipeline.create(f'CREATE TABLE "{pipeline.schema}"."BUSY" (A INTEGER)', "BUSY")
    pipeline.many(f"INSERT INTO {busy} VALUES (?)", [(at,) for at in range(5)])
    pipeline.captured()

    def write(_: int) -> None:
        pipeline.execute(f"INSERT INTO {busy} VALUES (1)")
        pipeline.writer.commit()

    ends: list[tuple[str, str]] = []
    with behind("stage_rows", write):
        for tick in range(4):
            result = pipeline.tick(*([execute("asked", busy, quiet)] if tick == 0 else []))
            assert result is not None
            assert [line.table for line in result.failed] == [busy]
            ends += [outcomes(result)["asked"]] if "asked" in outcomes(result) else []
            assert reads(pipeline, quiet)[(3,)] == 2, "it was read by its first snapshot, and as it was asked for"
    assert ends[0] == ("accepted", f"{busy} waits for snapshot 'initial-1'; {quiet} waits for snapshot 'initial-1'")
    assert ends[-1][0] == "failed"
    assert f"failed: {busy} (its initial snapshot has failed 3 times: " in ends[-1][1]
    pipeline.to_its_end()
    found = pipeline.state(busy).count()
    assert [(found,)] == pipeline.query(f"SELECT COUNT(*) FROM {busy}"), "its initial snapshot comes through at last"
