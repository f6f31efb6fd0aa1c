"""Snapshot modes, from a table's first tick on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log, reads
from support.pipeline import Pipeline
from support.writing import after_each, in_window

from airflow_provider_db2cdc.cdc.snapshot.mode import CUSTOM
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


class OnlyNamedKnown:
    """A custom snapshotter: data for new tables, and no streaming."""

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        return not known and not in_progress

    def stream(self) -> bool:
        return False

    def snapshot_on_gap(self) -> bool:
        return False

    def recover_offset(self) -> bool:
        return False


class Mending(OnlyNamedKnown):
    """A custom snapshotter that pulls changes, and repairs lost changes by a snapshot."""

    def stream(self) -> bool:
        return True

    def snapshot_on_gap(self) -> bool:
        return True


SWITCHES = {"snapshot.mode": "configuration_based"} | {
    f"snapshot.mode.configuration.based.{name}": True
    for name in ("snapshot.data", "start.stream", "snapshot.on.data.error")
}


def table_of(pipeline: Pipeline, name: str = "T") -> TableId:
    ddl = f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))'
    table = pipeline.create(ddl, name)
    insert(pipeline, 1, name)
    return table


def insert(pipeline: Pipeline, number: int, name: str = "T") -> None:
    pipeline.execute(f'INSERT INTO "{pipeline.schema}"."{name}" VALUES (?, ?)', number, "a")
    pipeline.writer.commit()
    pipeline.captured()


def test_no_data_reads_rows_on_request_and_recovery_finds_an_offset(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Changes before the request are in the log, also those of rows that the state never had."""
    pipeline = new_pipeline(**{"snapshot.mode": "no_data", "incremental.snapshot.chunk.size": 2})
    table = filled(pipeline, 6)
    [note] = pipeline.passed().notifications
    assert (note.aggregate_type, note.type) == ("Initial Snapshot", "SKIPPED")
    assert note.additional_data["data_collections"] == str(table)
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID IN (1, 5)", f"DELETE FROM {table} WHERE ID = 2")
    pipeline.passed()
    assert pipeline.rows(table) == {(1, "b"), (5, "b")}
    assert not reads(pipeline, table)
    pipeline.offsets.lose(table)
    lost = pipeline.tick()
    assert lost is not None
    assert "missing" in lost.failed[0].error
    pipeline.properties = {**pipeline.properties, "snapshot.mode": "recovery"}
    with in_window(pipeline, f"UPDATE {table} SET ID = 9 WHERE ID = 0", f"DELETE FROM {table} WHERE ID = 5"):
        pipeline.passed(ask(table))
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.long
def test_custom_mode_without_streaming_pulls_nothing_after_the_snapshot(new_pipeline: Callable[..., Pipeline]) -> None:
    own = {"snapshot.mode": "custom", CUSTOM: f"{__name__}:OnlyNamedKnown", "snapshot.isolation.mode": "exclusive"}
    pipeline = new_pipeline(**own)
    table = table_of(pipeline)
    pipeline.tick()
    insert(pipeline, 2)
    assert pipeline.tick() is None
    assert pipeline.rows(table) == {(1, "a")}
    faults.prune(pipeline.writer)
    result = pipeline.tick(ask(table))
    assert result is not None
    assert ["pruned" in line.error for line in result.failed] == [True], "only a snapshot misses them"


@pytest.mark.long
@pytest.mark.parametrize(
    "properties",
    [
        {"snapshot.mode": "when_needed"},
        SWITCHES,
        {"snapshot.mode": "custom", CUSTOM: f"{__name__}:Mending"},
    ],
    ids=["when_needed", "configuration_based", "custom"],
)
def test_a_mode_that_repairs_a_gap_does_so_by_itself(
    new_pipeline: Callable[..., Pipeline], properties: dict[str, Any]
) -> None:
    pipeline = new_pipeline(**properties)
    table = table_of(pipeline)
    pipeline.tick()
    insert(pipeline, 2)
    pipeline.execute(f'DELETE FROM "{pipeline.schema}"."T" WHERE ID = 1')
    pipeline.writer.commit()
    pipeline.captured()
    faults.reregister(pipeline.writer, pipeline.schema, "T")
    insert(pipeline, 3)
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table) == {(2, "a"), (3, "a")}


@pytest.mark.long
def test_rows_of_an_abandoned_first_batch_are_deleted(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table, _ = table_of(pipeline, "T"), table_of(pipeline, "U")
    spec = pipeline.plan()
    assert spec is not None
    insert(pipeline, 2, "U")
    with killed("commit_batch", "before"):
        job.run(spec)
    assert pipeline.rows(table) == {(1, "a")}, "the state is filled, and nothing says so"
    pipeline.execute(f"DELETE FROM {table} WHERE ID = 1")
    pipeline.writer.commit()
    pipeline.captured()
    faults.reregister(pipeline.writer, pipeline.schema, "T")
    insert(pipeline, 3, "T")
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table) == {(3, "a")}


def test_include_list_and_a_custom_select(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    one, two = table_of(pipeline, "T"), table_of(pipeline, "U")
    insert(pipeline, 2, "T")
    pipeline.properties = {
        "snapshot.include.collection.list": str(one),
        "snapshot.select.statement.overrides": str(one),
        f"snapshot.select.statement.overrides.{one}": "SELECT * FROM NO.SUCH",
    }
    wrong = pipeline.tick()
    assert wrong is not None
    assert f"Correct snapshot.select.statement.overrides.{one}" in wrong.failed[0].error
    pipeline.properties = {
        **pipeline.properties,
        f"snapshot.select.statement.overrides.{one}": f'SELECT * FROM "{one.schema}"."{one.name}" WHERE ID = 2',
    }

    def move(_: int) -> None:
        pipeline.execute(f"DELETE FROM {one} WHERE ID = 1")
        pipeline.execute(f"INSERT INTO {one} VALUES (1, 'a')")
        pipeline.writer.commit()

    with after_each("catch_up", move):
        pipeline.passed()
    assert set(reads(pipeline, one)) == {(2,)}
    assert pipeline.rows(one) == {(1, "a"), (2, "a")}, "a row is lost that was moved where no read had to find it"
    assert not reads(pipeline, two)


@pytest.mark.long
def test_when_needed_repairs_a_table_outside_the_snapshot_list(new_pipeline: Callable[..., Pipeline]) -> None:
    """Its offset was lost. To begin at the capture position would lose the changes since the target's position."""
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table, other = table_of(pipeline), table_of(pipeline, "U")
    pipeline.properties = {**pipeline.properties, "snapshot.include.collection.list": str(other)}
    pipeline.passed()
    insert(pipeline, 2)
    pipeline.passed()
    insert(pipeline, 3)
    pipeline.offsets.lose(table)

    pipeline.passed()

    # Rows from before the pipeline's first tick were not requested then. The repair reads all rows.
    assert pipeline.rows(table) == pipeline.source_rows(table)
