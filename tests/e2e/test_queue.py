"""A request for two tables, one of them always busy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.log import reads
from support.pipeline import Pipeline
from support.request import execute
from support.writing import after_each

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.table import TableId

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]


def outcomes(result: JobResult) -> dict[str, tuple[str, str]]:
    return {one.id: (one.status, one.reason) for one in result.signals}


def keyed(pipeline: Pipeline, name: str, rows: int) -> TableId:
    table = pipeline.create(f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY)', name)
    pipeline.many(f"INSERT INTO {table} VALUES (?)", [(at,) for at in range(rows)])
    return table


def test_a_busy_table_does_not_delay_the_other_table_of_its_signal(
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
    with after_each("stage_rows", write):
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
    assert [(found,)] == pipeline.query(f"SELECT COUNT(*) FROM {busy}"), "its initial snapshot completes in the end"
