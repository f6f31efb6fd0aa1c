"""What happens beside a snapshot: changes, pruning, rows that are moved, columns that turn and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log, reads
from support.pipeline import Pipeline, use_signal_table
from support.writing import behind, beside

from airflow_provider_db2cdc.cdc.capture import CaptureInstance
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.sandbox import faults
from airflow_provider_db2cdc.spark import jobs, pull, reader
from airflow_provider_db2cdc.spark.groups import Groups
from airflow_provider_db2cdc.spark.journal import Journal
from airflow_provider_db2cdc.spark.mark import ReadOnlyMark
from airflow_provider_db2cdc.spark.staging import Staging
from airflow_provider_db2cdc.spark.target import Target

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


@pytest.mark.long
def test_a_table_cut_anew_under_its_first_columns_is_read_from_its_beginning(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    small = {"incremental.snapshot.chunk.size": 10, "snapshot.group.chunks": 1, "snapshot.budget.s": 0}
    pipeline = new_pipeline(**small)
    table = filled(pipeline, 30)
    assert pipeline.passed().snapshots[0].done == 1
    changed(pipeline, f"DELETE FROM {table} WHERE ID < 15")
    pipeline.properties = {**small, "column.exclude.list": rf"{table.schema}\.T\.A"}
    turned = pipeline.tick()
    assert turned is not None
    assert "needs column" in turned.failed[0].error
    pipeline.properties = small
    spec = pipeline.plan()
    assert spec is not None
    with killed(Journal, "write", "after"):
        jobs.run(spec)
    while (result := pipeline.tick()) is not None and result.snapshots[0].status != "completed":
        pipeline.captured()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.parametrize("prefix", ["", "X"], ids=["bare", "with before images"])
def test_a_row_deleted_and_inserted_again_is_no_gap_in_what_a_death_left(
    new_pipeline: Callable[..., Pipeline], prefix: str
) -> None:
    """Of a registration with update rows: these two are change rows of their own."""
    pipeline = new_pipeline(**{"accept.update.rows": True})
    table = filled(pipeline, 9, update_as="U", before_img_prefix=prefix)
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 1", f"INSERT INTO {table} VALUES (1, 'b')")
    spec = pipeline.plan()
    assert spec is not None
    with killed(Target, "append_changes", "after"):
        jobs.run(spec)
    result = jobs.run(spec)
    assert not result.failed, result.failed
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.parametrize("marks", ["read_only", "insert_insert", pytest.param("insert_delete", marks=pytest.mark.long)])
def test_nothing_is_published_before_capture_has_passed_its_read(
    new_pipeline: Callable[..., Pipeline], marks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture stands still while a chunk is read, which sees what is not captured yet."""
    pipeline = new_pipeline(**{"incremental.snapshot.watermarking.strategy": marks})
    use_signal_table(pipeline)
    table = filled(pipeline, 9)
    pipeline.passed()
    real = Groups._await

    def await_(self: Groups, closed: str) -> Lsn:
        assert self.marks.reached(closed) is None
        faults.resume(pipeline.writer)
        return real(self, closed)

    def lag(_: int) -> None:
        faults.pause(pipeline.writer)
        pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID = 1")
        pipeline.writer.commit()

    monkeypatch.setattr(Groups, "_await", await_)
    try:
        with behind(Groups, "_catch_up", lag):
            pipeline.passed(ask(table))
    finally:
        faults.resume(pipeline.writer)
    log = pipeline.changes(table).where("key.ID = 1").collect()
    assert [row["op"] for row in log] == ["r", "u"], "the staged row would be older than its event"


def test_a_window_that_holds_nothing_does_not_tell_that_somebody_captures(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """An agent that captures for nobody may move its clock alone; meanwhile a row moves into a chunk that was read."""
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    pipeline.properties = {"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 1}

    def move_clock(_: int = 0) -> None:
        pipeline.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHTIME = CURRENT_TIMESTAMP WHERE GLOBAL_RECORD = 'Y'")
        pipeline.writer.commit()

    def lose(number: int) -> None:
        if number == 1:
            pipeline.unseen(table, f"UPDATE {table} SET ID = -1 WHERE ID = 8")
            faults.set_state(pipeline.writer, table.schema, table.name, "S")

    faults.pause(pipeline.writer)
    try:
        with (
            beside(Groups, "_await_low", move_clock),
            behind(reader, "stage_chunks", lose),
            behind(ReadOnlyMark, "close", move_clock),
        ):
            result = pipeline.tick(ask(table))
    finally:
        faults.resume(pipeline.writer)
    assert result is not None
    [failed] = result.failed
    assert "registered in state 'S'" in failed.error


def test_changes_pruned_before_their_group_is_published_are_a_gap(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 30)
    pipeline.passed()
    pipeline.properties = {"incremental.snapshot.chunk.size": 12, "snapshot.group.chunks": 2}

    def change(read: int) -> None:
        if read == 1:
            changed(pipeline, f"UPDATE {table} SET A = 'new' WHERE ID = 1")
            faults.prune(pipeline.writer)

    with behind(Staging, "write", change):
        result = pipeline.tick(ask(table))
    assert result is not None
    assert "are pruned" in result.failed[0].error


def test_rows_that_a_group_read_ahead_has_found_gone_leave_the_state_though_it_dies_before_its_merge(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """The second group of a table that is quiet meanwhile: its window is not its batch's range."""
    pipeline = new_pipeline(**{"incremental.snapshot.chunk.size": 30, "snapshot.group.chunks": 1})
    pipeline.properties = {**pipeline.properties, "table.include.list": rf"{pipeline.schema}\.T"}
    table, other = filled(pipeline, 70), filled(pipeline, 1, "O")
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 45")
    faults.prune(pipeline.writer)
    pipeline.restart(table)
    spec = pipeline.plan()
    assert spec is not None
    with (
        behind(Staging, "write", lambda number: changed(pipeline, f"INSERT INTO {other} VALUES ({number}, 'x')")),
        killed(Target, "merge", "before"),
    ):
        jobs.run(spec)
    assert pipeline.changes(table).where("op = 'd' AND key.ID = 45").count() == 1
    pipeline.commit(jobs.run(spec))
    assert pipeline.tick() is None
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert pipeline.changes(table).where("op = 'd' AND key.ID = 45").count() == 1


@pytest.mark.long
def test_rows_found_gone_in_a_range_without_changes_leave_the_state_though_it_dies_before_its_merge(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Its window is its batch's own range, which held nothing before the first try told of them."""
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 5")
    spec = pipeline.plan(signals=[ask(table)])
    assert spec is not None
    with killed(Target, "merge", "before"):
        jobs.run(spec)
    result = jobs.run(spec)
    assert not result.failed, result.failed
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert pipeline.changes(table).where("op = 'd'").count() == 1


@pytest.mark.long
def test_a_key_that_a_scan_has_met_twice_comes_into_a_compared_state_once(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 7")
    pipeline.passed()
    pipeline.spark.sql(f"DELETE FROM delta.`{Layout(pipeline.target).state(table).name}` WHERE ID = 5")
    real = Staging.write

    def twice(self: Target, rows: Any) -> int:
        return real(self, rows.unionAll(rows.where("row.ID = 5")))

    monkeypatch.setattr(Staging, "write", twice)
    with behind(
        Staging, "write", lambda _: changed(pipeline, f"UPDATE {table} SET ID = ID + 1 WHERE ID BETWEEN 4 AND 6")
    ):
        pipeline.passed(ask(table))
    found = [row["ID"] for row in pipeline.state(table).collect()]
    assert sorted(found) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert reads(pipeline, table)[(5,)] == 2, "one a snapshot"


@pytest.mark.long
def test_effects_of_a_group_have_unique_keys_though_one_was_found_gone_before_and_came_back(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 20)
    pipeline.passed()
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 1")
    pipeline.properties = {"incremental.snapshot.chunk.size": 10, "snapshot.group.chunks": 1}
    staged, calls, doubled = threading.Event(), [], []
    real_await, real_merge = Groups._await, Target.merge

    def await_(self: Groups, closed: str) -> Lsn:
        calls.append(closed)
        if len(calls) == 1:
            assert staged.wait(300)
            return Lsn(bytes(16))  # SYNCHPOINT stands where it stood
        changed(pipeline, f"INSERT INTO {table} VALUES (1, 'b')")
        return real_await(self, closed)

    def merge(self: Target, effects: Any, *rest: Any) -> Any:
        doubled.append([row["ID"] for row in effects.groupBy("ID").count().where("count > 1").collect()])
        return real_merge(self, effects, *rest)

    monkeypatch.setattr(Groups, "_await", await_)
    monkeypatch.setattr(Target, "merge", merge)
    with behind(Staging, "write", lambda number: staged.set() if number == 2 else None):
        pipeline.passed(ask(table))
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert len(calls) == 2
    assert doubled == [[], []], doubled


@pytest.mark.long
def test_a_window_of_many_changes_is_read_by_several_readers_whatever_the_plan_has_counted(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline(**{"rows.per.read": 3})
    table = filled(pipeline, 9)
    pipeline.passed()
    spans: list[LsnRange] = []
    select = pull.change_rows

    def selected(schema: TableSchema, capture: CaptureInstance, span: LsnRange) -> str:
        spans.append(span)
        return select(schema, capture, span)

    def write(number: int) -> None:
        for at in range(9) if number == 1 else ():
            pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID = {at}")
            pipeline.writer.commit()
        pipeline.captured()

    monkeypatch.setattr(pull, "change_rows", selected)
    with behind(Groups, "_catch_up", write):
        pipeline.passed(ask(table))
    assert len(spans) >= 3, "at most three rows each but for what a commit holds"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
