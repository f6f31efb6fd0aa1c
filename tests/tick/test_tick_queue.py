"""Requests for snapshots over several ticks: their order, their outcomes, and tables that keep no other waiting."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.request import execute, in_signal_table, stop

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshotStatus
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action

A, B, C = (TableId("S", name) for name in "ABC")
MOST_TICKS = 20


def one_group_a_tick(*tables: TableId) -> MemoryPipeline:
    """Return a pipeline that holds its tables, and whose next ticks publish one chunk each."""
    pipeline = filled(*tables)
    pipeline.passed()
    pipeline.set(snapshot_group_chunks=1, snapshot_budget_s=0.0)
    return pipeline


def outcomes(result: JobResult) -> dict[str, tuple[str, str]]:
    return {outcome.id: (outcome.status, outcome.reason) for outcome in result.signals}


def until_ended(pipeline: MemoryPipeline, id_: str) -> JobResult:
    """Do ticks until a request has ended, and return the last result."""
    for _ in range(MOST_TICKS):
        if id_ in outcomes(result := pipeline.passed()):
            return result
    raise AssertionError(f"{id_} never ends")


def statuses(result: JobResult, snapshot: str) -> Mapping[TableId, TableSnapshotStatus]:
    [shown] = [shown for shown in result.snapshots if shown.id == snapshot]
    return {table.table: table.status for table in shown.tables}


def test_requests_for_one_table_are_done_in_their_order() -> None:
    """Three requests come in one tick. A later tick dies within the second one's first group."""
    pipeline = one_group_a_tick(A, B)
    first = pipeline.passed(execute("a", A), execute("b", A, B), execute("c", A, type="blocking"))
    assert outcomes(first) == {
        "a": ("accepted", ""),
        "b": ("accepted", f"{A} waits for snapshot 'a'"),
        "c": ("accepted", f"{A} waits for snapshot 'a'"),
    }
    pipeline.change(A, 7, None)
    assert outcomes(until_ended(pipeline, "a")) == {"a": ("done", "")}
    with killed("append_changes", "after"):
        pipeline.run(pipeline.plan())
    assert outcomes(until_ended(pipeline, "b")) == {"b": ("done", "")}
    assert outcomes(until_ended(pipeline, "c")) == {"c": ("done", "")}
    assert not pipeline.offsets.summary().has_snapshot_work({A, B})
    assert pipeline.reads(A)[4] == 4, "each of the three has read it once, after the first snapshot"
    pipeline.finish()


def test_table_released_within_a_tick_waits_for_the_next_one() -> None:
    """This tick has not waited for capture to pass the moment that this table would begin after."""
    pipeline = one_group_a_tick(A, B)
    pipeline.set(snapshot_budget_s=900.0)
    pipeline.passed(execute("a", A, type="blocking"), Signal("wait", "pause-snapshot", "{}", "airflow"))
    halt = in_signal_table(Signal("halt", "stop-snapshot", json.dumps({"type": "blocking"}), ""))
    with once("stage_chunks", "after", lambda: pipeline.source.signals.append(halt)):
        result = pipeline.passed(execute("b", A, B))
    assert outcomes(result)["a"][0] == "stopped"
    assert outcomes(result)["b"] == ("accepted", f"{A} waits for snapshot 'a'")
    assert statuses(result, "b") == {A: "waiting", B: "completed"}
    assert outcomes(pipeline.passed())["b"] == ("done", "")
    assert pipeline.reads(A)[3] == pipeline.reads(B)[3] == 2
    pipeline.finish()


def test_tables_that_a_signal_stops_end_begun_or_waiting() -> None:
    pipeline = one_group_a_tick(A, B, C)
    [first] = pipeline.passed(execute("ask", A, B, C)).snapshots[-1:]
    assert [table.published_chunks for table in first.tables] == [1, 0, 0]
    assert statuses(pipeline.passed(stop("1", A)), "ask")[A] == "stopped"
    pipeline.passed(stop("2", B))
    result = until_ended(pipeline, "ask")
    why = "stopped by a signal"
    assert outcomes(result)["ask"] == ("done", f"stopped: {A} ({why}); stopped: {B} ({why})")
    assert statuses(result, "ask") == {A: "stopped", B: "stopped", C: "completed"}
    assert sorted(pipeline.reads(A).values()) == [1] * 6 + [2] * 3, "what was published stays"
    assert {*pipeline.reads(C).values()} == {2}
    assert outcomes(pipeline.passed(execute("again", A)))["again"] == ("accepted", "")
    pipeline.finish()


@pytest.mark.parametrize("point", ["stage_chunks", "check_counts"], ids=["read", "published"])
def test_table_that_fails_does_not_delay_the_others(point: Failpoint) -> None:
    pipeline = filled(A, B, snapshot_group_chunks=1, snapshot_budget_s=0.0)

    def fail(reached: ReachedFailpoint) -> None:
        if reached.arguments["task"].table == A:
            raise OSError("the statement was killed")

    with failpoint_action(point, before=fail):
        for _ in range(3):
            assert "the statement was killed" in pipeline.failure(A)
    assert pipeline.state(B) == pipeline.source.rows[B]
    pipeline.finish()


def test_request_for_a_table_that_never_loads_fails_for_that_table() -> None:
    """Its initial snapshot fails in each tick. The other table of the request is read in the first one."""
    pipeline, ends = filled(A, B), list[tuple[str, str]]()

    def fail(reached: ReachedFailpoint) -> None:
        if reached.arguments["task"].table == A:
            raise OSError("the statement was killed")

    with failpoint_action("stage_chunks", before=fail):
        for tick in range(4):
            result = pipeline.tick(*([execute("ask", A, B)] if tick == 0 else []))
            assert [line.table for line in result.failed] == [A]
            assert pipeline.reads(B)[3] == 2, "by its initial snapshot, and as requested"
            ends += [outcomes(result)["ask"]] if "ask" in outcomes(result) else []
    assert ends[0] == ("accepted", f"{A} waits for snapshot 'initial-1'; {B} waits for snapshot 'initial-1'")
    assert ends[-1][0] == "failed"
    assert f"failed: {A} (its initial snapshot has failed 3 times: " in ends[-1][1]
    assert pipeline.finish().signals == (), "the request has ended, and the initial snapshot is retried"


def test_table_removed_within_its_initial_snapshot_does_not_delay_others() -> None:
    pipeline = filled(A, B, snapshot_group_chunks=1, snapshot_budget_s=0.0)
    pipeline.tables = [A]
    assert pipeline.passed().snapshots[-1].done == 1
    pipeline.tables = [B]
    pipeline.finish()
    pipeline.passed(execute("ask", B))
    pipeline.passed()
    assert outcomes(pipeline.passed()) == {"ask": ("done", "")}
    pipeline.tables = [A, B]
    pipeline.finish()


def test_signals_older_than_the_pipeline_are_refused_by_a_retry_too() -> None:
    pipeline = filled(A)
    pipeline.mode = MODES["no_data"]
    pipeline.source.signals.append(in_signal_table(execute("old", A)))
    spec = pipeline.plan()
    with killed("read_signals", "before"):
        pipeline.run(spec)
    assert outcomes(pipeline.run(spec))["old"][0] == "refused"


def test_outcome_of_a_repeated_signal_is_reported_last() -> None:
    """Then a reader that takes the newest outcome of an id does not find another signal's refusal."""
    pipeline = filled(A)
    pipeline.passed()
    one, other = (Signal("nightly", "log", json.dumps({"message": text}), "airflow") for text in ("one", "other"))
    result = pipeline.passed(one, other, one)
    assert [(outcome.id, outcome.status) for outcome in result.signals] == [
        (other.id_again, "refused"),
        ("nightly", "done"),
    ]
