"""Batches that a restart leaves when the change log has them already: in the end it tells what became of their rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log
from support.pipeline import Pipeline
from support.writing import beside, in_window

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import Failpoint, When
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def told(pipeline: Pipeline, *statements: str) -> TableId:
    """Return a table of nine rows, of whose next changes the change log was told by a tick that died behind that."""
    table = filled(pipeline, 9)
    pipeline.to_its_end()
    changed(pipeline, *(statement.format(table) for statement in statements))
    dies_behind_its_append(pipeline)
    return table


def is_right(pipeline: Pipeline, table: TableId) -> None:
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def dies_behind_its_append(pipeline: Pipeline, *signals: Signal) -> None:
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
def test_a_row_that_is_gone_by_the_snapshot_is_deleted_in_the_change_log(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, is_sorted_alike: bool
) -> None:
    """100 comes and goes, 104 once the snapshot has begun; 101 comes and stays.

    1 is updated and goes; 2 goes and comes; 3 is 103 for a while.
    """
    if not is_sorted_alike:
        monkeypatch.setattr("airflow_provider_db2cdc.cdc.types.SORTED_ALIKE", set())
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 4})
    table = told(
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
    is_right(pipeline, table)
    assert deleted(pipeline, table) == [1, 2, 3, 100, 103, 104], "2 and 3 by the batch that was left"


@pytest.mark.long
def test_what_a_snapshot_has_told_that_was_left_itself(new_pipeline: Callable[..., Pipeline]) -> None:
    """A restart dies behind the `r` rows of its snapshot, and one more restart leaves that, too."""
    pipeline = new_pipeline()
    table = told(pipeline, "INSERT INTO {} VALUES (100, 'new')")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100", f"INSERT INTO {table} VALUES (200, 'read')")
    pipeline.restart(table)
    dies_behind_its_append(pipeline)
    assert {row["key"]["ID"] for row in pipeline.changes(table).where("op = 'r'").collect()} >= {200}
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 200")
    pipeline.restart(table)
    is_right(pipeline, table)
    assert deleted(pipeline, table) == [100, 200]


@pytest.mark.long
def test_what_is_looked_for_by_the_next_snapshot_where_one_was_given_up_behind_a_group(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(
        **{"incremental.snapshot.chunk.size": 4, "snapshot.group.chunks": 1, "snapshot.budget.s": 0}
    )
    table = told(pipeline, "INSERT INTO {} VALUES (100, 'new')")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100")
    for _ in range(2):
        pipeline.restart(table)
        result = pipeline.passed()
        assert (result.snapshots[-1].status, result.snapshots[-1].done) == ("running", 1)
    is_right(pipeline, table)
    assert deleted(pipeline, table) == [100]


@pytest.mark.long
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
    [line] = job.run(spec).failed
    assert "were pruned before they were read" in line.error
    assert [row["key"]["ID"] for row in pipeline.changes(table).where("op = 'c'").collect()] == [101]
    changed(pipeline, f"DELETE FROM {table} WHERE ID >= 100")
    is_right(pipeline, table)
    assert deleted(pipeline, table) == [101]


@pytest.mark.long
def test_what_was_told_before_a_column_came(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = told(pipeline, "INSERT INTO {} VALUES (100, 'new'), (101, 'new')")
    pipeline.gain(table, "B")
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 100", f"UPDATE {table} SET B = 5 WHERE ID = 101")
    pipeline.restart(table)
    is_right(pipeline, table)
    assert deleted(pipeline, table) == [100]


@pytest.mark.long
@pytest.mark.parametrize("is_held", [True, pytest.param(False, marks=pytest.mark.long)], ids=["asked for", "its first"])
def test_what_a_snapshot_has_told_before_a_column_came(new_pipeline: Callable[..., Pipeline], is_held: bool) -> None:
    """Its group is left out when its batch is redone, and what it told of was deleted unseen meanwhile."""
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    if is_held:
        pipeline.passed()
    pipeline.unseen(table, f"INSERT INTO {table} VALUES (7, 'new'), (8, 'new')", f"DELETE FROM {table} WHERE ID = 1")
    dies_behind_its_append(pipeline, *([ask(table)] if is_held else []))
    assert {row["key"]["ID"] for row in pipeline.changes(table).where("op = 'r'").collect()} >= {7, 8}
    pipeline.gain(table, "B")
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 7")
    is_right(pipeline, table)
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
def test_who_hangs_tells_nothing_of_a_group_that_another_run_has_left_out(
    new_pipeline: Callable[..., Pipeline], is_held: bool, step: Failpoint, when: When
) -> None:
    """A hangs before its `r` rows; B leaves them out for a column that came, goes on or not, and dies."""
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

    with beside("append_changes", another), pytest.raises(ConcurrentRunError):
        job.run(a)
    is_right(pipeline, table)
    assert pipeline.changes(table).where("key.ID = 7").isEmpty()


@pytest.mark.long
def test_what_was_left_out_once_is_left_out_though_its_columns_are_back(new_pipeline: Callable[..., Pipeline]) -> None:
    """B leaves it out for a column that grew, and dies; A, whose plan knows the column as it was, is cleared."""
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
    is_right(pipeline, table)
    assert pipeline.changes(table).where("key.ID = 7 AND op = 'r'").count() == 1
