"""Snapshot modes over several ticks: how a table begins, what is pulled, and what a snapshot repairs."""

from __future__ import annotations

import logging

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.memory_source import lsn
from support.request import execute

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint

A, B = TableId("S", "A"), TableId("S", "B")


def in_mode(mode: str, *tables: TableId, rows: int = 3) -> MemoryPipeline:
    pipeline = filled(*tables, rows=rows)
    pipeline.mode = MODES[mode]
    return pipeline


def register_again(pipeline: MemoryPipeline, table: TableId) -> None:
    """Create the change table again. What it held is lost."""
    pipeline.source.created[table] = "2027"
    pipeline.source.prune()


def notified(result: JobResult) -> list[tuple[str, str]]:
    return [(note.type, note.additional_data.get("data_collections", "")) for note in result.notifications]


def test_table_without_a_snapshot_gets_its_rows_once_they_are_requested() -> None:
    pipeline = in_mode("no_data", A)
    assert notified(pipeline.passed()) == [("SKIPPED", str(A))]
    pipeline.change(A, 1, 5)
    pipeline.change(A, 2, None)
    assert notified(pipeline.passed()) == []
    assert (pipeline.state(A), pipeline.reads(A)) == ({1: 5}, {})
    with once("catch_up", "after", lambda: pipeline.change(A, 0, 6)):
        pipeline.passed(execute("ask", A))
    pipeline.finish()


@pytest.mark.parametrize("point", ["commit_batch", "write_journal"])
def test_skipped_snapshot_is_reported_once_after_a_death(point: Failpoint) -> None:
    pipeline = in_mode("no_data", A)
    with killed(point, "before"):
        pipeline.run(pipeline.plan())
    assert notified(pipeline.passed()) == [("SKIPPED", str(A))]
    assert notified(pipeline.passed()) == []


def test_skipped_snapshot_is_not_reported_once_the_table_is_snapshotted() -> None:
    pipeline = in_mode("no_data", A)
    with killed("write_journal", "before"):
        pipeline.run(pipeline.plan())
    pipeline.offsets.put(Offset(A, lsn(0), 0, restart=True))
    assert "SKIPPED" not in [type_ for type_, _ in notified(pipeline.passed())]
    pipeline.finish()


def test_mode_without_streaming_pulls_changes_only_for_a_snapshot() -> None:
    """Only a snapshot misses changes that no tick pulls: it does not know which rows they moved."""
    pipeline = in_mode("initial_only", A)
    pipeline.passed()
    pipeline.change(A, 9, 5)
    assert [line.status for line in pipeline.passed().tables] == ["unchanged"]
    assert 9 not in pipeline.state(A)
    pipeline.passed(execute("ask", A))
    assert pipeline.state(A) == pipeline.source.rows[A]
    pipeline.change(A, 9, 6)
    pipeline.source.prune()
    pipeline.passed()
    assert "pruned" in pipeline.failure(A, execute("late", A))


def test_snapshot_without_streaming_leaves_other_tables_unmoved() -> None:
    pipeline = in_mode("initial_only", A, B)
    pipeline.passed()
    kept = pipeline.offsets.get(A)

    def change() -> None:
        pipeline.source.commit({(A, 1): 5, (B, 1): 5})
        pipeline.source.capture()

    with once("catch_up", "after", change):
        pipeline.passed(execute("ask", B))
    assert pipeline.state(B) == pipeline.source.rows[B]
    assert {event.op for _, _, event in pipeline.target.log[A]} == {"r"}
    assert pipeline.offsets.get(A) == kept


def test_table_included_later_is_snapshotted_and_no_other() -> None:
    pipeline = in_mode("initial", A, B)
    pipeline.tables = [A]
    pipeline.passed()
    pipeline.change(A, 9, 5)
    pipeline.change(B, 9, 5)
    pipeline.tables = [A, B]
    pipeline.passed()
    assert (pipeline.reads(A), pipeline.reads(B)) == (dict.fromkeys(range(3), 1), dict.fromkeys((0, 1, 2, 9), 1))
    pipeline.finish()


def test_mode_always_reads_each_table_in_each_tick() -> None:
    """A death after rows were published makes the retry read them once more. A snapshot repairs what is lost."""
    pipeline = in_mode("always", A, rows=2)
    pipeline.passed()
    pipeline.change(A, 0, None)
    pipeline.change(A, 3, 5)
    pipeline.change(A, 3, None)
    spec = pipeline.plan()
    with killed("append_changes", "after", 2):
        pipeline.run(spec)
    pipeline.commit(pipeline.run(spec))
    assert pipeline.state(A) == pipeline.source.rows[A] == {1: 0}
    assert pipeline.reads(A) == {0: 1, 1: 3}
    changes = [(event.op, event.key) for _, step, event in pipeline.target.log[A] if step == "changes"]
    assert changes == [("d", (0,)), ("c", (3,)), ("d", (3,))], (
        "rows inserted and deleted between two ticks are in the log"
    )
    register_again(pipeline, A)
    pipeline.change(A, 4, 5)
    pipeline.passed()
    assert pipeline.reads(A) == {0: 1, 1: 4, 4: 1}
    pipeline.finish()


def test_mode_that_repairs_a_gap_snapshots_the_table_again() -> None:
    pipeline = in_mode("when_needed", A)
    pipeline.passed()
    pipeline.change(A, 0, None)
    register_again(pipeline, A)
    pipeline.change(A, 4, 5)
    pipeline.passed()
    assert pipeline.state(A) == pipeline.source.rows[A] == {1: 0, 2: 0, 4: 5}


def test_mode_that_repairs_no_gap_stops_the_table_until_a_restart() -> None:
    pipeline = in_mode("initial", A)
    pipeline.passed()
    pipeline.change(A, 0, None)
    register_again(pipeline, A)
    for _ in range(2):
        assert "was created again at 2027" in pipeline.failure(A)
    pipeline.restart(A)
    pipeline.finish()


def test_missing_offset_stops_its_table_until_it_is_recovered(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = in_mode("initial", A, B)
    pipeline.passed()
    pipeline.change(A, 1, 5)
    pipeline.passed()
    pipeline.offsets.lose(A)
    for _ in range(2):
        error = pipeline.failure(A)
        assert "its offset is missing" in error
        assert f"db2cdc offset restart {A}" in error
        assert pipeline.offsets.get(A) is None, "only an operator decides"
    pipeline.mode = MODES["recovery"]
    with caplog.at_level(logging.WARNING):
        pipeline.passed()
    assert f"the offset of {A} was missing" in caplog.text
    assert pipeline.offsets.get(A) is not None
    pipeline.finish()


def test_a_second_try_of_mode_always_continues_its_snapshot() -> None:
    pipeline = in_mode("always", A, rows=9)
    pipeline.passed()
    pipeline.set(snapshot_group_chunks=1)
    spec, before = pipeline.plan(), pipeline.reads(A)
    with killed("publish_group", "after", at=2):
        pipeline.run(spec)
    pipeline.commit(pipeline.run(spec))
    assert pipeline.reads(A) - before == dict.fromkeys(range(9), 1), "each row was published once more"
