"""Heals in a tick: from the signal to a state that equals the source, with other writers, kills, stops and gaps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.crash import killed, once
from support.memory_pipeline import SETTINGS, MemoryPipeline, filled
from support.memory_source import MemorySource
from support.request import execute, stop

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, When

A, B = TableId("S", "A"), TableId("S", "B")


def heal(id_: str, *tables: TableId, **data: object) -> Signal:
    """Return a request for a heal."""
    return execute(id_, *tables, type="heal", **data)


def begun(rows: int = 9, **settings: Any) -> MemoryPipeline:
    """Return a pipeline of two tables which the target holds."""
    pipeline = filled(A, B, rows=rows, **settings)
    pipeline.finish()
    return pipeline


def status(result: JobResult, id_: str) -> str:
    """Return the outcome of a signal."""
    return next(one.status for one in result.signals if one.id == id_)


def newest_events(pipeline: MemoryPipeline, after: int) -> list[tuple[str, int]]:
    """Return op and key of the events that the change log of A has gained after a number of them."""
    return sorted((event.op, event.key[0]) for _, _, event in pipeline.target.log[A][after:])  # type: ignore[index]


def test_a_heal_publishes_only_what_differs() -> None:
    pipeline = begun()
    for key, value in ((2, 5), (4, None), (20, 7)):
        pipeline.source.load(A, key, value)
    logged = len(pipeline.target.log[A])
    result = pipeline.passed(heal("go", A, B))
    assert status(result, "go") == "done"
    assert newest_events(pipeline, logged) == [("d", 4), ("r", 2), ("r", 20)]
    assert {line.table: line.reads for line in result.tables} == {A: 2, B: 0}
    [shown] = [snapshot for snapshot in result.snapshots if snapshot.id == "go"]
    assert (shown.kind, shown.rows, shown.done) == ("heal", 2, 6)
    pipeline.finish()
    pipeline.passed(heal("again", A, B))
    assert newest_events(pipeline, logged + 3) == []


def test_a_heal_is_stopped_paused_and_resumed_by_its_kind() -> None:
    pipeline = begun(rows=21, snapshot_budget_s=0)
    pipeline.source.load(A, 20, 5)
    pipeline.passed(heal("go", A))
    for kind, wanted in (("incremental", "refused"), ("heal", "done")):
        result = pipeline.tick(Signal(f"wait {kind}", "pause-snapshot", json.dumps({"type": kind}), "airflow"))
        assert status(result, f"wait {kind}") == wanted
    assert pipeline.state(A)[20] == 0
    pipeline.passed(Signal("on", "resume-snapshot", '{"type": "heal"}', "airflow"))
    pipeline.passed(stop("end", A, type="heal"), heal("more", A))
    pipeline.finish()
    assert pipeline.state(A)[20] == 5


def test_a_surrogate_key_compares_the_table_as_one_group() -> None:
    """A chunk's ends do not bound the rows of the state then. A group is not divided by the tick's limit of chunks."""
    pipeline = begun(rows=21)
    pipeline.source.load(A, 3, None)
    pipeline.source.load(A, 15, 5)
    batches, logged = pipeline.target.applied[-1].batch, len(pipeline.target.log[A])
    result = pipeline.passed(heal("go", A, **{"surrogate-key": "A"}))
    assert status(result, "go") == "done"
    ranges = [one.chunk_range for one in pipeline.target.applied if one.batch > batches and one.chunk_range]
    assert [(part.first, part.last) for part in ranges] == [(0, 6)]
    assert newest_events(pipeline, logged) == [("d", 3), ("r", 15)]
    pipeline.finish()


def test_a_heal_with_a_condition_keeps_rows_that_are_gone() -> None:
    pipeline = begun()
    pipeline.source.load(A, 2, 5)
    pipeline.source.load(A, 4, None)
    pipeline.passed(heal("go", A, **{"additional-condition": "ID < 9"}))
    assert (pipeline.state(A)[2], pipeline.state(A)[4]) == (5, 0)


def change_state(pipeline: MemoryPipeline) -> None:
    """Let another writer delete row 1, change row 2 and add row 99."""
    pipeline.target.put_rows(A, {(1,): None, (2,): ((2, 7), 0), (99,): ((99, 9), 0)}, is_own=False)


def test_a_heal_mends_a_state_that_another_writer_has_changed() -> None:
    pipeline = begun()
    change_state(pipeline)
    pipeline.change(A, 3, 5)
    assert "somebody else" in pipeline.failure(A)
    result = pipeline.passed(heal("go", A))
    assert status(result, "go") == "done"
    pipeline.finish()


def test_a_change_that_the_heal_itself_finds_is_mended() -> None:
    pipeline = begun()
    change_state(pipeline)
    pipeline.passed(heal("go", A))
    pipeline.change(A, 3, 5)
    pipeline.passed()
    pipeline.finish()


def test_a_change_is_found_again_if_its_heal_is_stopped() -> None:
    pipeline = begun(rows=21, snapshot_budget_s=0)
    change_state(pipeline)
    pipeline.change(A, 3, 5)
    manifests = len(pipeline.target.manifest)
    pipeline.passed(heal("go", A))
    pipeline.change(A, 3, 6)
    pipeline.passed(stop("end", A))
    for value in (7, 8):
        pipeline.change(A, 3, value)
        assert "somebody else" in pipeline.failure(A)
    assert len(pipeline.target.manifest) == manifests, "no manifest names a state that is wrong"
    pipeline.passed(heal("once more", A))
    pipeline.finish()
    assert len(pipeline.target.manifest) > manifests


def test_a_refused_heal_accepts_a_change_for_one_tick_only() -> None:
    pipeline = begun()
    pipeline.passed(heal("go", B))
    change_state(pipeline)
    pipeline.change(A, 3, 5)
    result = pipeline.passed(heal("go", A))
    assert status(result, "go #" + heal("go", A).asked) == "refused"
    pipeline.change(A, 3, 6)
    assert "somebody else" in pipeline.failure(A)


def test_a_heal_with_a_condition_accepts_no_change() -> None:
    pipeline = begun()
    change_state(pipeline)
    assert "somebody else" in pipeline.failure(A, heal("go", A, **{"additional-condition": "ID < 9"}))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "point", ["plan_batch", "append_changes", "merge_state", "commit_batch", "write_journal", "stage_chunks"]
)
def test_a_heal_survives_a_kill(point: Failpoint, when: When) -> None:
    pipeline = begun()
    change_state(pipeline)
    pipeline.source.load(A, 5, 5)
    pipeline.change(A, 3, 5)
    spec = pipeline.plan([heal("go", A)])
    with killed(point, when, at=2):
        pipeline.run(spec)
    pipeline.commit(pipeline.run(spec))
    result = pipeline.tick(heal("go", A))
    if result.failed:
        pipeline.passed(heal("once more", A))
    pipeline.finish()


def lost(pipeline: MemoryPipeline) -> None:
    """Lose changes of A: one of a key, one deletion, one new row."""
    for key, value in ((1, 5), (2, None), (30, 5)):
        pipeline.change(A, key, value)
    pipeline.source.prune()
    del pipeline.source.pruned[B]


def healing(**settings: Any) -> MemoryPipeline:
    """Return a pipeline that heals gaps."""
    pipeline = begun(**settings, gap_repair="heal")
    pipeline.mode = MODES["when_needed"]
    return pipeline


def test_a_gap_is_healed_without_publishing_every_row() -> None:
    pipeline = healing()
    logged = len(pipeline.target.log[A])
    lost(pipeline)
    result = pipeline.passed()
    assert newest_events(pipeline, logged) == [("d", 2), ("r", 1), ("r", 30)]
    [shown] = [snapshot for snapshot in result.snapshots if snapshot.tables[0].table == A]
    assert (shown.kind, shown.status) == ("initial", "completed")
    assert [line.reinitialized for line in result.tables] == [False, False]
    pipeline.change(A, 4, 8)
    pipeline.finish()
    assert newest_events(pipeline, logged + 3) == [("u", 4)]


def test_a_gap_is_mended_by_all_rows_unless_a_heal_is_configured() -> None:
    pipeline = begun()
    pipeline.mode = MODES["when_needed"]
    lost(pipeline)
    pipeline.passed()
    assert pipeline.reads(A)[5] == 2
    pipeline.finish()


def test_a_gap_of_a_table_in_a_mode_that_stops_stays_an_error() -> None:
    pipeline = begun(gap_repair="heal")
    lost(pipeline)
    assert "are pruned" in pipeline.failure(A)


def test_no_manifest_is_written_before_a_gap_is_healed() -> None:
    pipeline = healing(rows=21, snapshot_budget_s=0)
    manifests = len(pipeline.target.manifest)
    lost(pipeline)
    result = pipeline.passed()
    assert len(pipeline.target.manifest) == manifests
    assert pipeline.offsets.summary().initially_loading == {A}
    refused = pipeline.tick(stop("end", A), Signal("wait", "pause-snapshot", "{}", "airflow"))
    assert (status(refused, "end"), status(refused, "wait")) == ("refused", "refused")
    assert any(snapshot.open_table_ids for snapshot in result.snapshots)
    pipeline.finish()
    assert len(pipeline.target.manifest) > manifests


def test_a_gap_found_over_an_unfinished_batch_is_healed() -> None:
    """The change log has a row of the abandoned batch which is not in the source. The state has it, too, by then."""
    pipeline = healing()
    pipeline.change(A, 40, 1)
    pipeline.change(A, 41, 1)
    with killed("append_changes", "after"):
        pipeline.run(pipeline.plan())
    del pipeline.target.log[A][-1]
    pipeline.source.load(A, 40, None)
    pipeline.source.prune()
    pipeline.passed()
    assert pipeline.reads(A)[5] == 1, "row 41"
    pipeline.finish()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "point", ["plan_batch", "append_changes", "merge_state", "commit_batch", "write_journal", "stage_chunks"]
)
def test_a_heal_of_a_gap_survives_a_kill(point: Failpoint, when: When) -> None:
    pipeline = healing(rows=21)
    logged = len(pipeline.target.log[A])
    lost(pipeline)
    with killed(point, when):
        pipeline.run(pipeline.plan())
    pipeline.finish()
    assert len(pipeline.target.log[A]) == logged + 3


def test_a_gap_within_the_snapshot_of_a_new_table_is_healed() -> None:
    """Of the half-loaded table the heal publishes what is not there yet."""
    pipeline = filled(A, B, rows=21, snapshot_budget_s=0, gap_repair="heal")
    pipeline.mode = MODES["when_needed"]
    pipeline.passed()
    lost(pipeline)
    pipeline.finish()
    assert pipeline.reads(A)[3] == 1


def test_a_table_without_a_key_is_healed() -> None:
    source = MemorySource([A], keyless={A})
    source.commit({(A, key): key for key in range(9)})
    source.capture()
    pipeline = MemoryPipeline(source, SETTINGS)
    pipeline.passed()
    logged = len(pipeline.target.log[A])
    source.load(A, 0, None)
    source.load(A, 20, 1)
    with once("stage_chunks", "after", lambda: pipeline.change(A, 21, 2)):
        result = pipeline.passed(heal("go", A))
    while status(result, "go") != "done":
        result = pipeline.passed()
    assert pipeline.images(A) == pipeline.folded_images(A) == source.images(A)
    assert all(event.key != (3,) for _, _, event in pipeline.target.log[A][logged:]), "its count was right"
