"""Columns that are added and altered during snapshots: rows of two schemas are never mixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import rebuilt
from support.pipeline import Pipeline, use_signal_table
from support.writing import after_each

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.sandbox.capture import control_tables
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

TWO_OF_THREE_CHUNKS = {
    "incremental.snapshot.chunk.size": 4, "snapshot.group.chunks": 2, "snapshot.budget.s": 0
}  # fmt: skip


def initial(pipeline: Pipeline) -> SnapshotProgress:
    """Do a tick and return how far its snapshot is."""
    result = pipeline.passed()
    return result.snapshots[-1]


def test_columns_that_change_during_a_snapshot(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**TWO_OF_THREE_CHUNKS)
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))"
    table = pipeline.create(ddl, "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at, "a") for at in range(11)])
    pipeline.captured()
    assert initial(pipeline).done == 2

    pipeline.gain(table, "new. col", "INTEGER DEFAULT 7")
    pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    pipeline.writer.commit()
    pipeline.captured()
    assert initial(pipeline).done == 2, "what was read without the new column counts no more"

    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    pipeline.execute(f"ALTER TABLE {table} ALTER COLUMN A SET DATA TYPE VARCHAR(20)")
    pipeline.writer.commit()
    result = job.run(spec)
    pipeline.commit(result)
    assert "columns A changed, or came, while" in result.failed[0].error
    assert result.snapshots[0].done == 2

    pipeline.captured()
    assert [initial(pipeline).done for _ in range(2)] == [2, 3]
    assert pipeline.rows(table) == pipeline.source_rows(table) == rebuilt(pipeline, table)
    assert {row[2] for row in pipeline.rows(table)} == {7}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["when_needed", "initial"])
def test_a_snapshot_restarted_after_a_gap_finds_deleted_rows(new_pipeline: Callable[..., Pipeline], mode: str) -> None:
    pipeline = new_pipeline(**TWO_OF_THREE_CHUNKS, **{"snapshot.mode": mode})
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))"
    table = pipeline.create(ddl, "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at, "a") for at in range(11)])
    pipeline.captured()
    assert initial(pipeline).done == 2

    control_tables.removetable(pipeline.writer, table.schema, table.name)
    pipeline.execute(f"ALTER TABLE {table} ADD COLUMN B INTEGER DEFAULT 7")
    pipeline.execute(f"DELETE FROM {table} WHERE ID IN (1, 2)")
    pipeline.writer.commit()
    control_tables.addtable(pipeline.writer, table.schema, table.name)
    pipeline.captured()
    if mode == "initial":
        stopped = pipeline.tick()
        assert stopped is not None
        assert "created again" in stopped.failed[0].error
        pipeline.restart(table)
        pipeline.captured()
    assert [initial(pipeline).done for _ in range(2)] == [2, 3]
    assert pipeline.rows(table) == pipeline.source_rows(table)


def gaining(pipeline: Pipeline, table: TableId) -> AbstractContextManager[None]:
    """A block in which the table gets a column with a value, while the first group is read of any table."""

    def gain(number: int) -> None:
        if number == 1:
            pipeline.gain(table, "B")
            changed(pipeline, f"UPDATE {table} SET B = 5 WHERE ID = 1")

    return after_each("stage_rows", gain)


@pytest.mark.long
@pytest.mark.parametrize("read", [pytest.param("T", marks=pytest.mark.long), "O"])
def test_a_column_added_while_a_tick_reads_a_snapshot_loses_no_value(
    new_pipeline: Callable[..., Pipeline], read: str
) -> None:
    """The tick pulls beyond the capture position of its plan: in its window, or to align the tables."""
    pipeline = new_pipeline()
    tables = {name: filled(pipeline, 9, name) for name in ("T", "O")}
    pipeline.passed()
    table = tables["T"]

    with gaining(pipeline, table):
        result = pipeline.tick(ask(tables[read]))
    assert result is not None
    [line] = result.failed
    assert f"{table}: columns B changed, or came, while this tick was under way" in line.error
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert pipeline.rows(tables["O"]) == pipeline.source_rows(tables["O"])


@pytest.mark.long
def test_an_excluded_column_is_not_an_added_column(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"column.exclude.list": r".*\.A"})
    table = filled(pipeline, 9)
    pipeline.passed()
    with after_each("stage_rows", lambda _: changed(pipeline, f"UPDATE {table} SET ID = 100 WHERE ID = 1")):
        pipeline.passed(ask(table))
    assert pipeline.rows(table) == {(id_,) for id_, _ in pipeline.source_rows(table)}


@pytest.mark.long
def test_a_column_added_to_the_change_table_first_loses_no_value(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table, other = filled(pipeline, 9), filled(pipeline, 9, "O")
    pipeline.passed()
    spec = pipeline.plan(signals=[ask(other)])
    assert spec is not None

    def early(task: TableTask) -> TableTask:
        """Return the task as a plan finds it where the change table was altered first."""
        columns = (*task.capture.cd_columns, Column("B", "INTEGER", 4))
        return replace(task, capture=replace(task.capture, cd_columns=columns)) if task.table == table else task

    with gaining(pipeline, table):
        pipeline.commit(job.run(replace(spec, tables=tuple(map(early, spec.tables)))))
    pipeline.captured()
    while pipeline.tick() is not None:
        pipeline.captured()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_a_snapshot_requested_for_a_new_column_has_its_values(new_pipeline: Callable[..., Pipeline]) -> None:
    """Each row has its default, which is not captured. The running tick reads the signal table."""
    pipeline = new_pipeline()
    signals = use_signal_table(pipeline)
    table, other = filled(pipeline, 9, "T1"), filled(pipeline, 9, "T2")
    pipeline.passed()

    def add(number: int) -> None:
        if number == 1:
            pipeline.unseen(table, f"ALTER TABLE {table} ADD COLUMN B INTEGER", f"UPDATE {table} SET B = 7")
            control_tables.addcolumn(pipeline.writer, table.schema, table.name, "B")
            data = json.dumps({"data-collections": [str(table)]})
            changed(pipeline, f"INSERT INTO {signals} VALUES ('b', 'execute-snapshot', '{data}')")

    with after_each("stage_rows", add):
        pipeline.tick(ask(other))
    pipeline.captured()
    while pipeline.tick() is not None:
        pipeline.captured()
    assert {row[2] for row in pipeline.rows(table)} == {7}


@pytest.mark.long
def test_rows_staged_before_a_column_was_added_are_read_again(new_pipeline: Callable[..., Pipeline]) -> None:
    # With the new column a row has 4 + 1 + 4 bytes: two of them fill a chunk.
    pipeline = new_pipeline(**{"snapshot.chunk.bytes": 18})
    table = pipeline.create(f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))", "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at, "a") for at in range(5)])
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    with killed("plan_batch", "after"):
        job.run(spec)

    pipeline.gain(table, "B", "INTEGER DEFAULT 7")
    pipeline.captured()
    assert initial(pipeline).rows == 5
    assert pipeline.rows(table) == {(at, "a", 7) for at in range(5)} == pipeline.source_rows(table)
    certificates = pipeline.spark.read.format("delta").load(Layout(pipeline.target).internal("commits").name)
    published = [[chunk["rows_published"] for chunk in row.chunks] for row in certificates.collect() if row.chunks]
    assert published == [[2, 2, 1]], "only what was published has a certificate"


@pytest.mark.long
def test_a_group_that_died_after_its_merge_is_recounted_with_new_columns(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Its redo excludes the rows that it read, but the state has them already."""
    pipeline = new_pipeline()
    table = filled(pipeline, 5)
    pipeline.passed()
    pipeline.unseen(table, f"INSERT INTO {table} VALUES (7, 'new'), (8, 'new')", f"DELETE FROM {table} WHERE ID = 1")
    spec = pipeline.plan(signals=[ask(table)])
    assert spec is not None
    with killed("merge_state", "after"):
        job.run(spec)

    pipeline.gain(table, "B", "INTEGER DEFAULT 7")
    pipeline.captured()
    [line] = pipeline.passed().tables
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert line.rows == len(pipeline.rows(table)) == 6
    deleted = pipeline.changes(table).where("op = 'd'").select("key.ID").collect()
    assert [id_ for (id_,) in deleted] == [1], "logged once"
