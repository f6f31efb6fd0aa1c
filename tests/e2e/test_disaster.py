"""The procedures of docs/how-to/recover-from-a-disaster.md, with real Delta tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import Command
from support.filled import ask, changed, filled
from support.pipeline import Pipeline
from support.shared_spark import forget_delta_logs
from support.submitted import config_file

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.read import BatchRange, last_batch, read_changes
from airflow_provider_db2cdc.sandbox.capture import faults

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline]) -> Iterator[Pipeline]:
    """A pipeline with two tables, whose target can be replaced: Delta keeps nothing of it in memory afterwards."""
    made = new_pipeline(**{"incremental.snapshot.chunk.size": 10, "snapshot.group.chunks": 1, "snapshot.budget.s": 1})
    yield made
    forget_delta_logs(made.spark)


def two_tables(pipeline: Pipeline) -> list[TableId]:
    tables = [filled(pipeline, 20, "T"), filled(pipeline, 3, "U")]
    pipeline.to_its_end()
    changed(pipeline, *(f"UPDATE {table} SET A = 'b' WHERE ID = 1" for table in tables))
    pipeline.passed()
    return tables


def failed_tables(pipeline: Pipeline) -> dict[TableId, str]:
    result = pipeline.tick()
    assert result is not None
    return {line.table: line.error for line in result.failed}


def restore_all(pipeline: Pipeline, db2cdc: Command, action: str = "restore") -> None:
    done = db2cdc("offset", action, "--config", config_file(pipeline), "--all-failed")
    assert done.returncode == 0, done.stderr


def assert_complete(pipeline: Pipeline, tables: list[TableId], events: int) -> None:
    """Check states and logs: each table equals its source, and each change is in the change log once."""
    assert [pipeline.rows(table) for table in tables] == [pipeline.source_rows(table) for table in tables]
    for table in tables:
        assert pipeline.changes(table).where("op IN ('c', 'u', 'd')").count() == events


def test_lost_offsets_of_all_tables_are_restored_from_the_target(pipeline: Pipeline, db2cdc: Command) -> None:
    """A snapshot that was under way continues, too: the target knows it."""
    tables = two_tables(pipeline)
    assert pipeline.passed(ask(tables[0])).snapshots[-1].status == "running"
    changed(pipeline, *(f"UPDATE {table} SET A = 'c' WHERE ID = 2" for table in tables))
    for path in pipeline.folder.glob("offsets*.json"):
        path.unlink()
    failures = failed_tables(pipeline)
    assert failures.keys() == {*tables}
    assert all("its offset is missing" in error for error in failures.values()), failures
    restore_all(pipeline, db2cdc)
    statuses = []
    while (result := pipeline.tick()) is not None:
        assert not result.failed, result.failed
        statuses += [snapshot.status for snapshot in result.snapshots]
        pipeline.captured()
    assert statuses[-1] == "completed"
    assert_complete(pipeline, tables, events=2)


def test_an_older_copy_of_the_target_continues_where_it_ends(pipeline: Pipeline, db2cdc: Command) -> None:
    tables = two_tables(pipeline)
    target, copy = Path(pipeline.target), pipeline.folder / "copy"
    shutil.copytree(target, copy)
    for value in ("c", "d"):
        changed(pipeline, *(f"UPDATE {table} SET A = '{value}' WHERE ID = 2" for table in tables))
        pipeline.passed()
    newest = last_batch(pipeline.spark, pipeline.target, str(tables[0]))
    shutil.rmtree(target)
    copy.rename(target)
    forget_delta_logs(pipeline.spark)
    changed(pipeline, *(f"UPDATE {table} SET A = 'e' WHERE ID = 1" for table in tables))
    failures = failed_tables(pipeline)
    assert failures.keys() == {*tables}
    assert all("ahead of the target" in error for error in failures.values()), failures
    restore_all(pipeline, db2cdc)
    pipeline.to_its_end()
    assert_complete(pipeline, tables, events=4)
    unread = read_changes(pipeline.spark, pipeline.target, str(tables[0]), BatchRange(newest))
    assert unread.count() == 3, "a consumer that knows the lost target gets what came after the copy"


@pytest.mark.long
def test_an_older_copy_whose_changes_are_pruned_begins_again(pipeline: Pipeline, db2cdc: Command) -> None:
    tables = two_tables(pipeline)
    target, copy = Path(pipeline.target), pipeline.folder / "copy"
    shutil.copytree(target, copy)
    changed(pipeline, *(f"UPDATE {table} SET A = 'c' WHERE ID = 2" for table in tables))
    pipeline.to_its_end()
    faults.prune(pipeline.writer)
    shutil.rmtree(target)
    copy.rename(target)
    forget_delta_logs(pipeline.spark)
    changed(pipeline, *(f"UPDATE {table} SET A = 'e' WHERE ID = 1" for table in tables))
    assert failed_tables(pipeline).keys() == {*tables}
    restore_all(pipeline, db2cdc)
    failures = failed_tables(pipeline)
    assert all("pruned" in error for error in failures.values()), failures
    assert failures.keys() == {*tables}
    restore_all(pipeline, db2cdc, "restart")
    pipeline.to_its_end()
    assert [pipeline.rows(table) for table in tables] == [pipeline.source_rows(table) for table in tables]
