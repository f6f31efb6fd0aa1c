"""Events during a snapshot: changes, pruning, moved rows, columns that change and change back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log, reads
from support.pipeline import Pipeline, use_signal_table
from support.writing import after_each, once_before

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.apply.staged_rows import StagedRows
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import TableSessions
from airflow_provider_db2cdc.tick.snapshot.publisher import GroupPublisher

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]


def move_clock(pipeline: Pipeline) -> None:
    """Have the source say that capture has passed this moment, without any change."""
    pipeline.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHTIME = CURRENT_TIMESTAMP WHERE GLOBAL_RECORD = 'Y'")
    pipeline.writer.commit()


def test_a_table_whose_columns_changed_back_is_read_from_its_beginning(
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
    with killed("write_journal", "after"):
        job.run(spec)
    while (result := pipeline.tick()) is not None and result.snapshots[0].status != "completed":
        pipeline.captured()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.parametrize("prefix", ["", "X"], ids=["bare", "with before images"])
def test_a_row_deleted_and_inserted_again_is_not_a_gap_after_a_death(
    new_pipeline: Callable[..., Pipeline], prefix: str
) -> None:
    """The registration has update rows, so these two are separate change rows."""
    pipeline = new_pipeline(**{"accept.update.rows": True})
    table = filled(pipeline, 9, update_as="U", before_img_prefix=prefix)
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 1", f"INSERT INTO {table} VALUES (1, 'b')")
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)
    result = job.run(spec)
    assert not result.failed, result.failed
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.parametrize("marks", ["read_only", "insert_insert", "insert_delete"])
def test_nothing_is_published_before_capture_has_passed_its_read(
    new_pipeline: Callable[..., Pipeline], marks: str
) -> None:
    """Capture is paused while a chunk is read. The read sees changes that are not captured yet."""
    pipeline = new_pipeline(**{"incremental.snapshot.watermarking.strategy": marks})
    use_signal_table(pipeline)
    table = filled(pipeline, 9)
    pipeline.passed()

    def resume(reached: ReachedFailpoint) -> None:
        groups: GroupPublisher = reached.arguments["self"]
        assert groups.watermark.reached(reached.arguments["closed"]) is None
        faults.resume(pipeline.writer)

    def lag(_: int) -> None:
        faults.pause(pipeline.writer)
        pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID = 1")
        pipeline.writer.commit()

    try:
        with failpoint_action("await_high_mark", before=resume), after_each("catch_up", lag):
            pipeline.passed(ask(table))
    finally:
        faults.resume(pipeline.writer)
    log = pipeline.changes(table).where("key.ID = 1").collect()
    assert [row["op"] for row in log] == ["r", "u"], "the staged row would be older than its event"


def test_rows_missing_in_a_group_read_ahead_are_deleted_after_a_death(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """The rows are in the second group of a quiet table: its window is not the range of its batch."""
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
        after_each("stage_rows", lambda number: changed(pipeline, f"INSERT INTO {other} VALUES ({number}, 'x')")),
        killed("merge_state", "before"),
    ):
        job.run(spec)
    assert pipeline.changes(table).where("op = 'd' AND key.ID = 45").count() == 1
    pipeline.commit(job.run(spec))
    assert pipeline.tick() is None
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert pipeline.changes(table).where("op = 'd' AND key.ID = 45").count() == 1


def test_rows_missing_in_a_quiet_range_are_deleted_after_a_death(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Its window is the range of its batch, which was empty before the first try logged the deletions."""
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 5")
    spec = pipeline.plan(signals=[ask(table)])
    assert spec is not None
    with killed("merge_state", "before"):
        job.run(spec)
    result = job.run(spec)
    assert not result.failed, result.failed
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert pipeline.changes(table).where("op = 'd'").count() == 1


def test_a_key_that_a_scan_has_read_twice_is_once_in_a_compared_state(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 7")
    pipeline.passed()
    layout = Layout(pipeline.target)
    # By a session of the pipeline: a deletion by another writer would stop the table.
    own = TableSessions(pipeline.spark, BatchLog(pipeline.spark, layout, "test").prepare().mark).session(table, 0)
    own.sql(f"DELETE FROM delta.`{layout.state(table).name}` WHERE ID = 5")
    real = StagedRows.add

    def twice(self: StagedRows, rows: Any, is_few: bool, read_id: str = "") -> str:
        return real(self, rows.unionAll(rows.where("row.ID = 5")), is_few, read_id)

    monkeypatch.setattr(StagedRows, "add", twice)
    with after_each(
        "stage_rows", lambda _: changed(pipeline, f"UPDATE {table} SET ID = ID + 1 WHERE ID BETWEEN 4 AND 6")
    ):
        pipeline.passed(ask(table))
    found = [row["ID"] for row in pipeline.state(table).collect()]
    assert sorted(found) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert reads(pipeline, table)[(5,)] == 2, "one a snapshot"


def test_effects_of_a_group_have_unique_keys_if_a_missing_row_returns(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 20)
    pipeline.passed()
    pipeline.unseen(table, f"DELETE FROM {table} WHERE ID = 1")
    pipeline.properties = {"incremental.snapshot.chunk.size": 10, "snapshot.group.chunks": 1}
    staged, calls, doubled = threading.Event(), [], []

    def capture(_: ReachedFailpoint) -> None:
        """Leave SYNCHPOINT unchanged while the first group is published."""
        calls.append(1)
        if len(calls) == 1:
            assert staged.wait(300)
            move_clock(pipeline)
        else:
            faults.resume(pipeline.writer)
            changed(pipeline, f"INSERT INTO {table} VALUES (1, 'b')")

    def count(reached: ReachedFailpoint) -> None:
        effects = reached.arguments["effects"]
        doubled.append([row["ID"] for row in effects.groupBy("ID").count().where("count > 1").collect()])

    faults.pause(pipeline.writer)
    try:
        with (
            once_before("await_low_mark", lambda: move_clock(pipeline)),
            after_each("stage_rows", lambda number: staged.set() if number == 2 else None),
            failpoint_action("await_high_mark", before=capture),
            failpoint_action("merge_state", before=count),
        ):
            pipeline.passed(ask(table))
    finally:
        faults.resume(pipeline.writer)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert len(calls) == 2
    assert doubled == [[], []], doubled


def test_a_window_of_many_changes_is_read_by_several_readers(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(**{"rows.per.read": 3})
    table = filled(pipeline, 9)
    pipeline.passed()
    selects: list[str] = []

    def write(number: int) -> None:
        for at in range(9) if number == 1 else ():
            pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID = {at}")
            pipeline.writer.commit()
        pipeline.captured()

    def note(reached: ReachedFailpoint) -> None:
        if "CDC_" in (select := reached.arguments["select"]):
            selects.append(select)

    with after_each("catch_up", write), failpoint_action("read_frame", before=note):
        pipeline.passed(ask(table))
    assert len(selects) >= 3, "at most three rows each but for what a commit holds"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
