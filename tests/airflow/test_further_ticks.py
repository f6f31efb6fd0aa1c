"""Several ticks of one apply task. Plans and commits are real, Db2 is the sandbox, Spark is a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException
from support.airflow_fixtures import Inside, RunDag
from support.captured_shop import Captured
from support.fake_spark import FakeSpark
from support.variable_offsets import VariableOffsets

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.repair.repair import RepairOrder, Replay
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.channels.channel import AIRFLOW_CHANNEL
from airflow_provider_db2cdc.errors import Db2CdcError
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.offsets import repetition
from airflow_provider_db2cdc.operators.apply import Db2CdcApplyOperator, FurtherTicks
from airflow_provider_db2cdc.operators.plan import read_config

pytestmark = [pytest.mark.airflow, pytest.mark.sandbox]

REPEAT_S = 8
DAG_FILE = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcTaskGroup

with DAG("{dag_id}"):
    Db2CdcTaskGroup("tick", db2_conn_id="db2_sandbox", spark_conn_id="spark_test", spark_submit={spark!r}, **{config!r})
"""


def config_of(pipeline: str, captured: Captured, repeat_s: float = REPEAT_S, **more: Any) -> dict[str, Any]:
    own = {"pipeline": pipeline, "target": "/nowhere", "table.include.list": rf"{captured.schema}\..*"}
    return {**own, "tick.repeat.s": repeat_s, **more}


def spark_of(fake_spark: FakeSpark) -> dict[str, Any]:
    return {"spark_binary": str(fake_spark.binary), "jars": ""}


def offset(inside: Inside, pipeline: str, table: TableId) -> Offset:
    found = inside(lambda: VariableOffsets(pipeline).get(table))
    assert found is not None
    return found


def task_of(spec: Any) -> Any:
    """Return what a spec has to do on ORDERS."""
    [task] = [task for task in spec["tables"] if task["schema"]["table"]["name"] == "ORDERS"]
    return task


def at_call(number: int, action: Callable[[], object]) -> Callable[[ReachedFailpoint], None]:
    """Act at the call of a failpoint with this number."""
    calls: list[ReachedFailpoint] = []

    def act(reached: ReachedFailpoint) -> None:
        calls.append(reached)
        if len(calls) == number:
            action()

    return act


def events(dag_id: str) -> list[dict[str, Any]]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter(AssetEvent.source_dag_id == dag_id).order_by(AssetEvent.id)
        return [event.extra for event in found if event.asset.uri.endswith("/ORDERS")]


def test_a_run_does_one_tick_after_another_and_emits_one_event(
    captured: Captured, run_dag: RunDag, inside: Inside, fake_spark: FakeSpark
) -> None:
    dag_id, orders = "repeated", captured.table("ORDERS")
    text = DAG_FILE.format(dag_id=dag_id, spark=spark_of(fake_spark), config=config_of(dag_id, captured))
    with failpoint_action("commit_offsets", before=at_call(1, lambda: captured.insert(orders))):
        state, tasks = run_dag(dag_id, text)
    assert (state, set(tasks.values())) == ("success", {"success"})
    first, second = fake_spark.specs()
    assert first["run_id"] == second["run_id"] == fake_spark.call()["spec"]["run_id"]
    assert [task["stored_lsn"] for task in second["tables"]] == [task["upto"] for task in first["tables"]]
    kept = offset(inside, dag_id, orders)
    assert (str(kept.lsn), kept.batch) == (task_of(second)["upto"], 2)
    rows = sum(task_of(spec)["rows"] + 2 for spec in (first, second))
    [event] = events(dag_id)
    assert (event["from_batch"], event["to_batch"], event["rows"]) == (0, 2, rows)
    assert run_dag(dag_id, text)[1]["tick.plan"] == "skipped"


def test_the_event_has_changes_of_tables_that_the_last_tick_left_unchanged(
    captured: Captured, run_dag: RunDag, fake_spark: FakeSpark
) -> None:
    dag_id, orders, items = "unchanged", captured.table("ORDERS"), captured.table("ITEMS")
    text = DAG_FILE.format(dag_id=dag_id, spark=spark_of(fake_spark), config=config_of(dag_id, captured))
    assert run_dag(dag_id, text.replace(f"'tick.repeat.s': {REPEAT_S}", "'tick.repeat.s': 0"))[0] == "success"
    captured.insert(orders)
    with failpoint_action("commit_offsets", before=at_call(1, lambda: captured.insert(items))):
        assert run_dag(dag_id, text)[0] == "success"
    assert [(event["from_batch"], event["to_batch"]) for event in events(dag_id)] == [(0, 1), (1, 2)]


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Let the job die of its spec with this number. The apply task in the block must fail with the reason."""
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_DEATH_AT", str(number))
        with pytest.raises(AirflowException, match="no space left"):
            yield


def apply(captured: Captured, fake_spark: FakeSpark, pipeline: str, spec: str, **values: Any) -> str:
    """Run the apply task on a plan. Call it inside a task."""
    operator = Db2CdcApplyOperator(
        task_id="apply",
        spec=spec,
        config=config_of(pipeline, captured, **values),
        db2_conn_id="db2_sandbox",
        spark_conn_id="spark_test",
        **spark_of(fake_spark),
    )
    return operator.execute({})


def plan(captured: Captured, pipeline: str) -> str:
    """Return the plan of a run. Call it inside a task."""
    spec = FurtherTicks(read_config(config_of(pipeline, captured)), "db2_sandbox", "dag/run").plan()
    assert spec is not None
    return spec.to_json()


def test_a_retry_continues_after_the_ticks_that_were_committed(
    captured: Captured, inside: Inside, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, orders = "retried", captured.table("ORDERS")
    spec = inside(lambda: plan(captured, pipeline))
    inserting = failpoint_action("commit_offsets", before=at_call(1, lambda: captured.insert(orders)))
    with inserting, dying_at(monkeypatch, 2):
        inside(lambda: apply(captured, fake_spark, pipeline, spec))
    result = inside(lambda: apply(captured, fake_spark, pipeline, spec))
    first, second, third = fake_spark.specs()
    lost, again = task_of(second), task_of(third)
    assert (again["stored_lsn"], again["rows"]) == (lost["stored_lsn"], 1), "the retry has planned what was lost"
    assert first["plan_id"] < second["plan_id"] < third["plan_id"]
    assert JobResult.from_json(result).planned_at_ms == third["planned_at_ms"]
    assert str(offset(inside, pipeline, orders).lsn) == again["upto"]
    with pytest.raises(AirflowSkipException, match="nothing new"):
        inside(lambda: apply(captured, fake_spark, pipeline, spec))


def test_a_retry_of_the_first_tick_runs_the_same_plan(
    captured: Captured, inside: Inside, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = "first"
    spec = inside(lambda: plan(captured, pipeline))
    with dying_at(monkeypatch, 1):
        inside(lambda: apply(captured, fake_spark, pipeline, spec))
    inside(lambda: apply(captured, fake_spark, pipeline, spec, repeat_s=repetition.POLL_S))
    first, second = fake_spark.specs()
    assert first == second


def test_a_failed_table_ends_the_run_for_its_report(
    captured: Captured, inside: Inside, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = "failing"
    spec = inside(lambda: plan(captured, pipeline))
    monkeypatch.setenv("FAKE_FAIL", "ITEMS")
    result = inside(lambda: apply(captured, fake_spark, pipeline, spec))
    assert [table.table.name for table in JobResult.from_json(result).failed] == ["ITEMS"]
    assert len(fake_spark.specs()) == 1
    assert inside(lambda: VariableOffsets(pipeline).get(captured.table("ORDERS"))) is None, "commit moves it"


def test_signals_are_read_before_each_tick_and_their_outcome_ends_the_run(
    captured: Captured, inside: Inside, fake_spark: FakeSpark, tmp_path: Path
) -> None:
    pipeline, path = "signalled_between", tmp_path / "signals"
    path.touch()
    channel = {"signal.enabled.channels": "file", "signal.file": str(path)}
    spec = inside(lambda: plan(captured, pipeline))
    signal = '{"id": "f", "type": "pause-snapshot"}\n'
    with failpoint_action("commit_offsets", before=at_call(1, lambda: path.write_text(signal))):
        result = inside(lambda: apply(captured, fake_spark, pipeline, spec, **channel))
    assert [[signal["id"] for signal in spec["signals"]] for spec in fake_spark.specs()] == [[], ["f"]]
    assert [outcome.id for outcome in JobResult.from_json(result).signals] == ["f"]
    assert inside(lambda: VariableOffsets(pipeline).summary()).outcomes == (), "commit reports it"


def test_a_repair_does_one_tick(captured: Captured, inside: Inside, fake_spark: FakeSpark) -> None:
    pipeline = "repair_once"
    planned = JobSpec.from_json(inside(lambda: plan(captured, pipeline)))
    spec = replace(planned, repair=RepairOrder(Replay())).to_json()
    inside(lambda: apply(captured, fake_spark, pipeline, spec))
    assert "--repeat" not in fake_spark.call()["argv"]


def test_a_plan_with_signals_of_its_run_stays_after_a_later_run(
    captured: Captured, inside: Inside, fake_spark: FakeSpark
) -> None:
    """Its job refuses it if it comes too late. A new plan would lack the signals, and no task would report that."""
    pipeline, orders = "overtaken", captured.table("ORDERS")
    planned = JobSpec.from_json(inside(lambda: plan(captured, pipeline)))
    asked = Signal("manual__1", "pause-snapshot", "{}", AIRFLOW_CHANNEL)
    later = inside(lambda: plan(captured, pipeline))
    with failpoint_action("commit_offsets", before=at_call(1, lambda: captured.insert(orders))):
        inside(lambda: apply(captured, fake_spark, pipeline, later))
    inside(lambda: apply(captured, fake_spark, pipeline, replace(planned, signals=(asked,)).to_json()))
    last = fake_spark.specs()[-1]
    assert (last["plan_id"], [signal["id"] for signal in last["signals"]]) == (planned.plan_id, ["manual__1"])


def unanswered(_: ReachedFailpoint) -> None:
    raise AirflowException("Airflow's API could not be asked")


def test_a_run_ends_with_its_result_if_airflow_does_not_answer(
    captured: Captured, inside: Inside, fake_spark: FakeSpark
) -> None:
    spec = inside(lambda: plan(captured, "unplanned"))
    with failpoint_action("connect_source", before=unanswered):
        result = inside(lambda: apply(captured, fake_spark, "unplanned", spec))
    assert JobResult.from_json(result).planned_at_ms == JobSpec.from_json(spec).planned_at_ms


def test_a_commit_between_ticks_that_fails_is_the_error_of_the_task(
    captured: Captured, inside: Inside, fake_spark: FakeSpark
) -> None:
    spec = inside(lambda: plan(captured, "uncommitted"))
    failing = failpoint_action("commit_offsets", before=unanswered)
    with failing, pytest.raises(Db2CdcError, match="API could not be asked"):
        inside(lambda: apply(captured, fake_spark, "uncommitted", spec))
    # A process that ends meanwhile has no command line.
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(fake_spark.binary) in command], "the job has ended"
