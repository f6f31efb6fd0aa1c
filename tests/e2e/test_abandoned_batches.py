"""Batches that a restart abandons after the change log has them: in the end the log has the fate of their rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log
from support.pipeline import Pipeline
from support.writing import in_window, once_before

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, When
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def abandoned_after_append(pipeline: Pipeline, *statements: str) -> TableId:
    """Return a table of nine rows. A tick logged its next changes and died after that."""
    table = filled(pipeline, 9)
    pipeline.to_its_end()
    changed(pipeline, *(statement.format(table) for statement in statements))
    die_after_append(pipeline)
    return table


def check(pipeline: Pipeline, table: TableId) -> None:
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def die_after_append(pipeline: Pipeline, *signals: Signal) -> None:
    spec = pipeline.plan(signals=signals)
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)


def deleted(pipeline: Pipeline, table: TableId) -> list[int]:
    rows = pipeline.changes(table).where("op = 'd'").collect()
    return sorted(row["key"]["ID"] for row in rows)


@pytest.mark.parametrize(
    "is_sorted_alike", [True, pytest.param(False, marks=pytest.mark.long)], ids=["chunk by chunk", "at the table's end"]
)
def test_rows_of_an_abandoned_batch_missing_in_the_snapshot_are_deleted(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, is_sorted_alike: bool
) -> None:
    """100 is inserted and deleted, 104 once the snapshot has begun. 101 is inserted.

    1 is updated and deleted. 2 is deleted and inserted. 3 is 103 for a while.
    """
    if not is_sorted_alike:
        monkeypatch.setattr("airflow_provider_db2cdc.cdc.types.SORTED_ALIKE", set())
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 4})
    table = abandoned_after_append(
        pipeline,
        "INSERT INTO {} VALUES (100, 'new'), (101, 'new'), (104, 'new')",
        "UPDATE {} SET A = 'told' WHERE ID = 1",
        "DELETE FROM {} WHERE ID = 2",
        "UPDATE {} SET ID = 103 WHERE ID = 3",
    )
    changed(
        pipeline,
        f"DELETE FROM {table} WHERE ID IN (100, 1)",
        f"INSERT INTO {table} VALUES (2, 'back')",
        f"UPDATE {table} SET ID = 3 WHERE ID = 103",
    )
    pipeline.restart(table)
    with in_window(pipeline, f"DELETE FROM {table} WHERE ID = 104"):
        pipeline.passed()
    check(pipeline, table)
    assert deleted(pipeline, table) == [1, 2, 3, 100, 103, 104], "2 and 3 by the abandoned batch"


@pytest.mark.long
def test_rows_logged_by_an_abandoned_snapshot_are_deleted(new_pipeline: Callable[..., Pipeline]) -> None:
    """A restart dies after the `r` rows of its snapshot, and one more restart abandons that batch, too."""
    pipeline = new_pipeline()
    table = abandoned_after_append(pipeline, "INSERT INTO {} VALUES (100, 'new')")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100", f"INSERT INTO {table} VALUES (200, 'read')")
    pipeline.restart(table)
    die_after_append(pipeline)
    assert {row["key"]["ID"] for row in pipeline.changes(table).where("op = 'r'").collect()} >= {200}
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 200")
    pipeline.restart(table)
    check(pipeline, table)
    assert deleted(pipeline, table) == [100, 200]


@pytest.mark.long
def test_the_snapshot_after_an_abandoned_one_deletes_the_missing_rows(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(
        **{"incremental.snapshot.chunk.size": 4, "snapshot.group.chunks": 1, "snapshot.budget.s": 0}
    )
    table = abandoned_after_append(pipeline, "INSERT INTO {} VALUES (100, 'new')")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100")
    for _ in range(2):
        pipeline.restart(table)
        result = pipeline.passed()
        assert (result.snapshots[-1].status, result.snapshots[-1].done) == ("running", 1)
    check(pipeline, table)
    assert deleted(pipeline, table) == [100]


@pytest.mark.long
def test_rows_logged_from_a_range_with_a_gap_are_deleted_by_an_event(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """A streaming reader of the change log never sees an event vanish from it."""
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table = filled(pipeline, 9)
    pipeline.passed()
    pruned = changed(pipeline, f"INSERT INTO {table} VALUES (100, 'lost')")
    changed(pipeline, f"INSERT INTO {table} VALUES (101, 'told')")
    spec = pipeline.plan()
    assert spec is not None
    faults.prune(pipeline.writer, upto=pruned.raw)
    [line] = job.run(spec).failed
    assert "were pruned before they were read" in line.error
    assert [row["key"]["ID"] for row in pipeline.changes(table).where("op = 'c'").collect()] == [101]
    changed(pipeline, f"DELETE FROM {table} WHERE ID >= 100")
    check(pipeline, table)
    assert deleted(pipeline, table) == [101]


@pytest.mark.long
def test_rows_logged_before_a_column_was_added_are_deleted(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = abandoned_after_append(pipeline, "INSERT INTO {} VALUES (100, 'new'), (101, 'new')")
    pipeline.gain(table, "B")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100", f"UPDATE {table} SET B = 5 WHERE ID = 101")
    pipeline.restart(table)
    check(pipeline, table)
    assert deleted(pipeline, table) == [100]


@pytest.mark.long
@pytest.mark.parametrize("is_held", [True, pytest.param(False, marks=pytest.mark.long)], ids=["asked for", "its first"])
def test_rows_snapshotted_before_a_column_was_added_are_deleted(
    new_pipeline: Callable[..., Pipeline], is_held: bool
) -> None:
    """The redo of its batch excludes its group, and the rows that it logged were deleted without a captured change."""
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    if is_held:
        pipeline.passed()
    pipeline.unseen(table, f"INSERT INTO {table} VALUES (7, 'new'), (8, 'new')", f"DELETE FROM {table} WHERE ID = 1")
    die_after_append(pipeline, *([ask(table)] if is_held else []))
    assert {row["key"]["ID"] for row in pipeline.changes(table).where("op = 'r'").collect()} >= {7, 8}
    pipeline.gain(table, "B")
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 7")
    check(pipeline, table)
    assert deleted(pipeline, table) == ([1, 7] if is_held else [7])
    commits = load(pipeline.spark, Layout(pipeline.target).internal("commits"))
    [(counted,)] = commits.agg({"reads": "sum"}).collect()
    assert counted == pipeline.changes(table).where("op = 'r'").count()


@pytest.mark.long
@pytest.mark.parametrize(
    ("is_held", "step", "when"),
    [
        (True, "await_high_mark", "before"),
        (False, "exclude_chunks", "after"),
        pytest.param(True, "exclude_chunks", "after", marks=pytest.mark.long),
        pytest.param(False, "commit_batch", "after", marks=pytest.mark.long),
    ],
    ids=["pulls", "its first, and dies at once", "dies at once", "its first, and finishes it"],
)
def test_a_hung_run_logs_nothing_of_a_group_that_another_run_excluded(
    new_pipeline: Callable[..., Pipeline], is_held: bool, step: Failpoint, when: When
) -> None:
    """A hangs before its `r` rows. B excludes them because of an added column, continues or not, and dies."""
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    if is_held:
        pipeline.passed()
    pipeline.unseen(table, f"INSERT INTO {table} VALUES (7, 'new'), (8, 'new')")
    a = pipeline.plan(signals=[ask(table)] if is_held else [])
    assert a is not None

    def another() -> None:
        pipeline.gain(table, "B")
        pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 7")
        changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 2")
        b = pipeline.plan()
        assert b is not None
        with killed(step, when):
            job.run(b)

    with once_before("append_changes", another), pytest.raises(ConcurrentRunError):
        job.run(a)
    check(pipeline, table)
    assert pipeline.changes(table).where("key.ID = 7").isEmpty()


@pytest.mark.long
def test_excluded_chunks_stay_excluded_if_their_columns_return(new_pipeline: Callable[..., Pipeline]) -> None:
    """B excludes them because of a widened column, and dies. A, whose plan has the old column, is cleared."""
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    pipeline.passed()
    pipeline.unseen(table, f"INSERT INTO {table} VALUES (7, 'new')")
    a = pipeline.plan(signals=[ask(table)])
    assert a is not None
    with killed("append_changes", "before"):
        job.run(a)
    pipeline.execute(f"ALTER TABLE {table} ALTER COLUMN A SET DATA TYPE VARCHAR(20)")
    pipeline.writer.commit()
    pipeline.captured()
    b = pipeline.plan()
    assert b is not None
    with killed("exclude_chunks", "after"):
        job.run(b)
    job.run(a)
    check(pipeline, table)
    assert pipeline.changes(table).where("key.ID = 7 AND op = 'r'").count() == 1
