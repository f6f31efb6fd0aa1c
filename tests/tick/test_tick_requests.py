"""Signals from their request to their outcome: order, pauses, stops, failures and refusals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from support.memory_pipeline import SETTINGS, MemoryPipeline
from support.memory_source import MemorySource

from airflow_provider_db2cdc.cdc.job import ApplySettings, JobResult
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.failpoint import Action, ReachedFailpoint, failpoint_action

A, B = TableId("S", "A"), TableId("S", "B")
ONE_GROUP_A_TICK = replace(SETTINGS, snapshot_budget_s=0)


def begun(settings: ApplySettings = SETTINGS, rows: int = 9) -> MemoryPipeline:
    """Return a pipeline of two tables which the target holds. Three rows are a chunk."""
    source = MemorySource([A, B])
    source.commit({(table, key): 0 for table in (A, B) for key in range(rows)})
    source.capture()
    pipeline = MemoryPipeline(source, settings)
    while any(one.status == "running" for one in pipeline.tick().snapshots):
        pass
    return pipeline


def execute(id_: str, *tables: TableId, kind: str = "incremental") -> Signal:
    """Return a request for a snapshot."""
    data = {"data-collections": [str(table) for table in tables], "type": kind}
    return Signal(id_, "execute-snapshot", json.dumps(data), "airflow")


def signal(id_: str, kind: str, **data: Any) -> Signal:
    """Return a signal of any type."""
    return Signal(id_, kind, json.dumps(data), "airflow")


def outcomes(result: JobResult) -> dict[str, str]:
    """Return the status of each signal."""
    return {one.id: one.status for one in result.signals}


def reason(result: JobResult, id_: str) -> str:
    """Return the reason of a signal's outcome."""
    return next(one.reason for one in result.signals if one.id == id_)


def shown(result: JobResult, id_: str) -> SnapshotProgress:
    """Return the progress of a snapshot."""
    return next(one for one in result.snapshots if one.id == id_)


def reads(pipeline: MemoryPipeline, table: TableId) -> set[int]:
    """Return how often snapshots have published the keys of a table."""
    return {*Counter(event.key for _, step, event in pipeline.target.log[table] if step == "reads").values()}


def fails_for(table: TableId) -> Action:
    """Return an action that fails for one table."""

    def fail(reached: ReachedFailpoint) -> None:
        found = reached.arguments.get("table", getattr(reached.arguments.get("task"), "table", None))
        if found == table:
            raise OSError("the disk is full")

    return fail


def test_a_snapshot_is_paused_resumed_and_stopped() -> None:
    pipeline = begun(ONE_GROUP_A_TICK, rows=21)
    first = pipeline.tick(execute("go", A))
    assert (outcomes(first)["go"], shown(first, "go").done) == ("accepted", 2)
    paused = pipeline.tick(signal("wait", "pause-snapshot"))
    assert (outcomes(paused)["wait"], shown(paused, "go").status, shown(paused, "go").done) == ("done", "paused", 2)
    assert shown(pipeline.tick(signal("on", "resume-snapshot")), "go").done == 4
    again = [signal(f"{kind} again", kind) for kind in ("pause-snapshot", "resume-snapshot")]
    ended = pipeline.tick(*again, signal("end", "stop-snapshot"))
    assert (outcomes(ended)["go"], shown(ended, "go").done) == ("stopped", 4)
    assert reason(ended, "go") == f"stopped: {A} (stopped by a signal)"
    types = [note.type for note in ended.notifications if note.type != "TABLE_SCAN_COMPLETED"]
    assert types[-3:] == ["PAUSED", "RESUMED", "ABORTED"], "each, though all were handled in one tick"


def test_a_signal_that_comes_again_is_answered_and_not_repeated() -> None:
    pipeline = begun()
    for _ in range(2):
        assert outcomes(pipeline.tick(execute("go", A)))["go"] == "done"
    assert reads(pipeline, A) == {2}
    again = pipeline.tick(execute("go", B))
    [refused] = [one for one in again.signals if one.id.startswith("go #")]
    assert refused.status == "refused"
    assert reads(pipeline, B) == {1}


def test_a_signal_from_before_the_first_tick_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By every tick that reads it: the broker was away in the first one, or the channel is new and its topic old."""
    pipeline = begun()
    first_ms = 1
    while pipeline.tick().planned_at_ms <= first_ms + 1:
        pass
    given = [
        replace(signal(id_, "log", message="x"), channel="kafka", at_ms=first_ms + at)
        for id_, at in (("early", -1), ("late", 1))
    ]
    for repeated in ("", "came again: "):
        result = pipeline.tick(*given)
        assert outcomes(result) == {"early": "refused", "late": "done"}
        assert "first tick" in reason(result, "early")
        line = f"signal: channel=kafka id=early type=log {repeated}refused it was given before"
        assert line in capsys.readouterr().out


def test_a_log_signal_shows_the_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = begun()
    pipeline.tick(signal("note", "log", message="at {}"))
    assert f"signal note: at {A} {pipeline.offsets.all()[A].lsn}" in capsys.readouterr().out


def test_blocking_snapshots_are_done_in_the_order_of_their_requests() -> None:
    pipeline = begun(ONE_GROUP_A_TICK)
    first = pipeline.tick(execute("zz", B, kind="blocking"), execute("aa", A, kind="blocking"))
    assert (outcomes(first)["zz"], outcomes(first)["aa"]) == ("done", "accepted")
    assert outcomes(pipeline.tick())["aa"] == "done"
    assert reads(pipeline, A) == reads(pipeline, B) == {2}


def test_a_blocking_snapshot_reads_all_tables_at_one_position() -> None:
    pipeline = begun()
    known = max(batch for batch, _, _ in pipeline.target.log[B])
    with failpoint_action("stage_chunks", after=lambda _: pipeline.source.commit({(A, 20): 1, (B, 20): 1})):
        result = pipeline.tick(execute("go", A, B, kind="blocking"))
    assert outcomes(result)["go"] == "done"
    logged = [pipeline.target.log[table] for table in (A, B)]
    assert len({batch for log in logged for batch, step, _ in log if step == "reads" and batch > known}) == 1
    assert len({line.lsn for line in result.tables}) == 1


def test_a_blocking_snapshot_waits_for_a_table_until_it_fails_for_good() -> None:
    pipeline = begun()
    with failpoint_action("stage_chunks", before=fails_for(A)):
        first = pipeline.tick(execute("go", A, B, kind="blocking"))
        assert [line.table for line in first.failed] == [A]
        assert (outcomes(first)["go"], reads(pipeline, B)) == ("accepted", {1})
        pipeline.source.commit({(A, 1): 5})
        pipeline.source.capture()
        pipeline.tick()
        assert pipeline.state(A) == pipeline.source.rows[A], "its changes do not wait"
        last = pipeline.tick()
    assert outcomes(last)["go"] == "failed"
    assert reason(last, "go").startswith(f"failed: {A}")
    assert (reads(pipeline, A), reads(pipeline, B)) == ({1}, {2})


def test_a_table_whose_changes_cannot_be_pulled_fails_its_snapshot() -> None:
    pipeline = begun()
    ends: list[dict[TableId, str]] = []
    with failpoint_action("append_changes", before=fails_for(A)):
        for signals in ([execute("go", A, B, kind="blocking")], [], []):
            pipeline.source.commit({(A, 1): len(ends)})
            pipeline.source.capture()
            result = pipeline.tick(*signals)
            ends.append({part.table: part.status for part in shown(result, "go").tables})
    assert [end[A] for end in ends] == ["waiting", "waiting", "failed"]
    assert ends[-1][B] == "completed"
    assert outcomes(result)["go"] == "failed"


def test_a_published_group_counts_even_if_the_next_one_cannot_be_read() -> None:
    pipeline, reads_begun, has_failed = begun(), [0], Event()

    def fail_second(_: ReachedFailpoint) -> None:
        reads_begun[0] += 1
        if reads_begun[0] == 2:
            has_failed.set()
            raise OSError("the disk is full")

    with (
        failpoint_action("stage_chunks", before=fail_second),
        failpoint_action("await_high_mark", before=lambda _: has_failed.wait(10)),
    ):
        first = pipeline.tick(execute("go", A))
    assert has_failed.is_set()
    assert [line.table for line in first.failed] == [A]
    assert (shown(first, "go").done, shown(first, "go").rows) == (2, 6)
    assert "OSError" in shown(first, "go").tables[0].reason
    last = pipeline.tick()
    assert (outcomes(last)["go"], shown(last, "go").rows, shown(last, "go").tables[0].reason) == ("done", 9, "")
    assert reads(pipeline, A) == {2}


def test_a_rejected_table_fails_and_is_refused_as_the_only_table() -> None:
    pipeline = begun()
    manifests = len(pipeline.target.manifest)
    spec = pipeline.plan([execute("both", A, B), execute("only", B)])
    tasks = tuple(task for task in spec.tables if task.table == A)
    result = pipeline.run(replace(spec, tables=tasks, rejected=(RejectedTable(B, "its registration is stopped"),)))
    assert outcomes(result) == {"both": "failed", "only": "refused"}
    assert reason(result, "both").startswith(f"failed: {B}")
    assert reason(result, "only").startswith("none of its tables can be read")
    assert {part.table: part.status for part in shown(result, "both").tables} == {A: "completed", B: "failed"}
    assert len(pipeline.target.manifest) == manifests, "one table would look like all"


def test_a_removed_table_ends_its_table_snapshot_with_a_reason() -> None:
    pipeline = begun()
    pipeline.tick(execute("go", A, B), signal("wait", "pause-snapshot"))
    spec = pipeline.plan([signal("on", "resume-snapshot")])
    result = pipeline.run(replace(spec, tables=tuple(task for task in spec.tables if task.table == A)))
    assert outcomes(result)["go"] == "done"
    assert reason(result, "go") == f"stopped: {B} (its table is no longer one of the pipeline's)"
    assert reads(pipeline, A) == {2}


def test_a_rejected_signal_table_has_a_result_and_blocks_no_table() -> None:
    pipeline = begun()
    pipeline.source.commit({(A, 1): 5})
    pipeline.source.capture()
    manifests = len(pipeline.target.manifest)
    rejected = RejectedTable(A, "it has no column type", is_replicated=False)
    result = pipeline.run(replace(pipeline.plan(), rejected=(rejected,)))
    assert [(line.table, line.is_replicated) for line in result.failed] == [(A, False)]
    assert pipeline.state(A) == pipeline.source.rows[A]
    assert len(pipeline.target.manifest) == manifests + 1
