"""Batches that a restart leaves when the change log has them already: in the end it tells what became of their rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed
from support.filled import changed, filled
from support.log import change_rows, check_log
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox import faults
from airflow_provider_db2cdc.spark import jobs
from airflow_provider_db2cdc.spark.target import Target

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def dies_behind_its_append(pipeline: Pipeline, at: int = 1) -> None:
    spec = pipeline.plan()
    assert spec is not None
    with killed(Target, "append_changes", "after", at):
        jobs.run(spec)


def to_its_end(pipeline: Pipeline) -> None:
    pipeline.captured()
    while (result := pipeline.tick()) is not None:
        assert not result.failed, result.failed
        pipeline.captured()


def deleted(pipeline: Pipeline, table: TableId) -> list[int]:
    rows = pipeline.changes(table).where("op = 'd'").collect()
    return sorted(row["key"]["ID"] for row in rows)


@pytest.mark.parametrize("is_sorted_alike", [True, False], ids=["chunk by chunk", "at the table's end"])
def test_a_row_that_is_gone_by_the_snapshot_is_deleted_in_the_change_log(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, is_sorted_alike: bool
) -> None:
    """100 comes and goes; 101 comes and stays; 1 is updated and goes; 2 goes and comes; 3 is 103 for a while."""
    if not is_sorted_alike:
        monkeypatch.setattr("airflow_provider_db2cdc.cdc.types.SORTED_ALIKE", set())
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 4})
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(
        pipeline,
        f"INSERT INTO {table} VALUES (100, 'new'), (101, 'new')",
        f"UPDATE {table} SET A = 'told' WHERE ID = 1",
        f"DELETE FROM {table} WHERE ID = 2",
        f"UPDATE {table} SET ID = 103 WHERE ID = 3",
    )
    dies_behind_its_append(pipeline)
    changed(
        pipeline,
        f"DELETE FROM {table} WHERE ID IN (100, 1)",
        f"INSERT INTO {table} VALUES (2, 'back')",
        f"UPDATE {table} SET ID = 3 WHERE ID = 103",
    )
    pipeline.restart(table)
    to_its_end(pipeline)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
    assert deleted(pipeline, table) == [1, 2, 3, 100, 103], "2 and 3 by the batch that was left"


def test_what_a_snapshot_has_told_that_was_left_itself(new_pipeline: Callable[..., Pipeline]) -> None:
    """A restart dies behind the `r` rows of its snapshot, and one more restart leaves that, too."""
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"INSERT INTO {table} VALUES (100, 'new')")
    dies_behind_its_append(pipeline)
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100", f"INSERT INTO {table} VALUES (200, 'read')")
    pipeline.restart(table)
    dies_behind_its_append(pipeline)
    assert {row["key"]["ID"] for row in pipeline.changes(table).where("op = 'r'").collect()} >= {200}
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 200")
    pipeline.restart(table)
    to_its_end(pipeline)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
    assert deleted(pipeline, table) == [100, 200]


def test_what_was_read_of_a_range_with_a_gap_stays_and_is_told_to_be_gone(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Who follows the change log as a stream sees nothing vanish from it."""
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table = filled(pipeline, 9)
    pipeline.passed()
    pruned = changed(pipeline, f"INSERT INTO {table} VALUES (100, 'lost')")
    changed(pipeline, f"INSERT INTO {table} VALUES (101, 'told')")
    spec = pipeline.plan()
    assert spec is not None
    faults.prune(pipeline.writer, upto=pruned.raw)
    [line] = jobs.run(spec).failed
    assert "were pruned before they were read" in line.error
    assert [row["key"]["ID"] for row in pipeline.changes(table).where("op = 'c'").collect()] == [101]
    changed(pipeline, f"DELETE FROM {table} WHERE ID >= 100")
    assert len(change_rows(pipeline, table)) > 1
    to_its_end(pipeline)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
    assert deleted(pipeline, table) == [101]


def test_what_was_told_before_a_column_came(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"INSERT INTO {table} VALUES (100, 'new'), (101, 'new')")
    dies_behind_its_append(pipeline)
    pipeline.gain(table, "B")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100", f"UPDATE {table} SET B = 5 WHERE ID = 101")
    pipeline.restart(table)
    to_its_end(pipeline)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
    assert deleted(pipeline, table) == [100]
