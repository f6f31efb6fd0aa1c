import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from support.airflow_fixtures import Inside, RunDag
from support.captured_shop import Captured
from support.fake_spark import FakeSpark
from support.variable_offsets import VariableOffsets

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.operators.task_group import Db2CdcTaskGroup

pytestmark = pytest.mark.airflow


def group(dag_arguments: dict[str, Any] | None = None, /, **arguments: Any) -> dict[str, Any]:
    with DAG("d", **(dag_arguments or {})) as dag:
        Db2CdcTaskGroup("sales", **{"target": "/lake/sales", **arguments})
    return {task.task_id: task for task in dag.tasks}


def test_tasks_follow_one_another_and_one_run_at_a_time_does_each() -> None:
    tasks = group()
    assert list(tasks) == ["sales.plan", "sales.apply", "sales.commit", "sales.outcome"]
    assert tasks["sales.apply"].upstream_task_ids == {"sales.plan"}
    assert tasks["sales.commit"].upstream_task_ids == {"sales.apply"}
    assert "sales.commit" in tasks["sales.outcome"].upstream_task_ids
    assert {task.max_active_tis_per_dag for task in tasks.values()} == {1}


def test_pipeline_is_named_after_the_group_by_default() -> None:
    assert group()["sales.plan"].config["pipeline"] == "sales"
    assert group(pipeline="other")["sales.plan"].config["pipeline"] == "other"
    assert group(name="other")["sales.plan"].config == {"name": "other", "target": "/lake/sales"}


def test_debeziums_own_names_are_taken() -> None:
    assert group(**{"table.include.list": "A.B"})["sales.plan"].config["table.include.list"] == "A.B"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"tabel_include_list": "x"}, "tabel_include_list: did you mean"),
        ({"target": "/lake/${vault:x}"}, r"target: give the value or a template"),
        ({"topic_prefix": "${env:STAGE}"}, r"topic_prefix: read the variable in the DAG"),
        ({"tabel_include_list": "x", "max_rows_per_batch": 0}, r"2 mistakes.*\n.*tabel.*\n.*max\.rows"),
        ({"signal.kafka.topic": "a", "signal": {"kafka.topic": "b"}}, r"signal\.kafka\.topic: leave one"),
        ({"target": "not a path"}, "neither a path nor a catalog"),
        ({"config": PipelineConfig(pipeline="p", target="/t")}, "config and target are both given"),
        ({"max_rows_per_batch": 0}, "max.rows.per.batch"),
        ({"driver.currentLockTimeout": 5}, r"driver\.currentLockTimeout has no meaning .* extras of the connection"),
    ],
)
def test_wrong_property_breaks_the_dag_while_it_is_parsed(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        group(**arguments)


def test_template_is_checked_when_it_has_a_value() -> None:
    tasks = group(target="{{ var.value.lake }}", max_rows_per_batch="{{ params.rows }}")
    assert tasks["sales.plan"].config["max_rows_per_batch"] == "{{ params.rows }}"


def test_sparks_settings_reach_the_job_with_their_templates() -> None:
    conf = {"spark.driver.memory": "8g", "spark.hadoop.fs.s3a.endpoint": "{{ var.value.s3 }}"}
    jars = {"spark_packages": ["{{ var.value.delta }}", "x:y:1"], "spark.jars": "{{ var.value.jars }}"}
    apply = group(spark_conf=conf, **jars)["sales.apply"]
    assert (apply.conf, apply.packages, apply.jars_folder) == (
        conf,
        "{{ var.value.delta }},x:y:1",
        "{{ var.value.jars }}",
    )


def test_nested_settings_are_as_good_as_dotted_ones() -> None:
    apply = group(spark={"conf": {"a": "{{ ds }}"}, "packages": ["x:y:1"]})["sales.apply"]
    assert (apply.conf, apply.packages) == ({"a": "{{ ds }}"}, "x:y:1")
    with pytest.raises(ConfigurationError, match=r"spark\.binary has a template"):
        group(spark={"binary": "{{ ds }}"})


@pytest.mark.parametrize("name", ["pipeline", "name", "spark_binary", "spark.binary"])
def test_what_is_needed_while_the_dag_is_parsed_takes_no_template(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} has a template"):
        group(**{name: "{{ var.value.x }}"})


def test_selects_are_checked_with_their_list_when_all_of_them_have_values() -> None:
    selects = {"snapshot.select.statement.overrides": "S.T", "snapshot.select.statement.overrides.S.T": "{{ ds }}"}
    assert group(**selects)["sales.plan"].config["snapshot.select.statement.overrides.S.T"] == "{{ ds }}"
    with pytest.raises(ConfigurationError, match="is missing"):
        group(**{"snapshot.select.statement.overrides": "S.T"})


def test_address_and_password_of_a_connector_come_from_the_connection() -> None:
    tasks = group(**{"database.hostname": "h", "database.password": "s3cret", "database.server.name": "srv"})
    assert tasks["sales.plan"].config == {"target": "/lake/sales", "database.server.name": "srv", "pipeline": "sales"}


def test_retries_give_way_to_the_dags_and_the_groups() -> None:
    assert (group()["sales.plan"].retries, group()["sales.plan"].retry_delay) == (2, timedelta(seconds=30))
    assert group({"default_args": {"retries": 5}})["sales.apply"].retries == 5
    assert group({"default_args": {"retries": 5}}, default_args={"retries": 0})["sales.apply"].retries == 0


def test_spark_settings_of_the_configuration_give_way_to_the_groups() -> None:
    config = PipelineConfig.from_properties(
        {"pipeline": "p", "target": "/t", "spark.conf": {"a": "1"}, "spark.packages": "x:y:1", "spark.binary": "/s"}
    )
    with DAG("d") as dag:
        Db2CdcTaskGroup("g", config=config, spark_submit={"spark_binary": "/mine", "driver_memory": "1g"})
    apply: Any = dag.get_task("g.apply")
    assert (apply.conf, apply.packages, apply._spark_binary, apply._driver_memory) == (
        {"a": "1"},
        "x:y:1",
        "/mine",
        "1g",
    )


DAG_FILE = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcTaskGroup

with DAG("{dag_id}"):
    Db2CdcTaskGroup(
        "tick",
        pipeline="{dag_id}",
        db2_conn_id="db2_sandbox",
        spark_conn_id="spark_test",
        target="/nowhere/{dag_id}",
        signal_enabled_channels={channels!r},
        signal_file={signal_file!r},
        table_include_list=[r"{schema}\\..*"],
        default_args={{"retries": 0}},
        spark_submit={{"spark_binary": {binary!r}, "jars": ""}},
    )
"""


def dag_file(
    dag_id: str,
    captured: Captured,
    fake_spark: FakeSpark,
    channels: tuple[str, ...] = ("source", "airflow"),
    signal_file: str | None = None,
) -> str:
    values = {"schema": captured.schema, "binary": str(fake_spark.binary)}
    return DAG_FILE.format(dag_id=dag_id, channels=[*channels], signal_file=signal_file, **values)


@pytest.mark.sandbox
def test_ticks_from_the_first_snapshot_over_a_failing_table_to_idleness(
    captured: Captured,
    run_dag: RunDag,
    inside: Inside,
    fake_spark: FakeSpark,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plan and commit are real, Db2 is the sandbox, Spark is a script that reports each table as applied."""
    dag_id = "ticks"
    orders, items = captured.table("ORDERS"), captured.table("ITEMS")
    text = dag_file(dag_id, captured, fake_spark)

    def tick() -> tuple[str, dict[str, str]]:
        state, tasks = run_dag(dag_id, text)
        return state, {task.split(".")[1]: state for task, state in tasks.items()}

    def offset(table: TableId) -> Offset:
        found = inside(lambda: VariableOffsets(dag_id).get(table))
        assert found is not None
        return found

    state, tasks = tick()
    assert (state, set(tasks.values())) == ("success", {"success"})
    first = offset(orders)
    assert first.lsn == offset(items).lsn

    state, tasks = tick()
    assert state == "success"
    assert tasks == {"plan": "skipped", "apply": "skipped", "commit": "skipped", "outcome": "skipped"}

    captured.insert(orders)
    captured.insert(items)
    monkeypatch.setenv("FAKE_FAIL", "ITEMS")
    state, tasks = tick()
    assert state == "failed"
    assert tasks == {"plan": "success", "apply": "success", "commit": "success", "outcome": "failed"}
    assert first.lsn < offset(orders).lsn
    assert offset(items).lsn == first.lsn
    call = fake_spark.call()
    assert call["env"]["DB2CDC_PASSWORD"] == captured.password
    assert call["spec"]["run_id"].startswith(f"{dag_id}/manual__")
    assert json.dumps(call["spec"]).find(captured.password) < 0

    monkeypatch.delenv("FAKE_FAIL")
    state, _ = tick()
    assert state == "success"
    assert offset(items).lsn == offset(orders).lsn


@pytest.mark.sandbox
def test_plan_that_meets_an_inactive_registration_tells_the_offset(
    captured: Captured, run_dag: RunDag, inside: Inside, fake_spark: FakeSpark
) -> None:
    dag_id, orders = "suspended", captured.table("ORDERS")
    text = dag_file(dag_id, captured, fake_spark)
    assert run_dag(dag_id, text)[0] == "success"
    captured.set_state(orders, "S")
    state, tasks = run_dag(dag_id, text)
    captured.set_state(orders, "A")
    assert (state, tasks["tick.plan"], tasks["tick.apply"]) == ("failed", "failed", "upstream_failed")
    kept = inside(lambda: VariableOffsets(dag_id).get(orders))
    assert kept is not None
    assert kept.capture_interrupted


@pytest.mark.sandbox
def test_signals_go_from_where_they_are_given_to_the_job_and_back(
    captured: Captured,
    run_dag: RunDag,
    inside: Inside,
    fake_spark: FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle tick that was asked for something starts Spark, and each channel hears of its own signals."""
    dag_id, path = "signalled", tmp_path / "signals"
    text = dag_file(dag_id, captured, fake_spark, ("file", "airflow"), str(path))
    asked = {"signals": [{"type": "log", "data": {"message": "m"}}, {"id": "77", "type": "pause-snapshot"}]}
    assert run_dag(dag_id, text)[0] == "success"
    assert run_dag(dag_id, text)[1]["tick.plan"] == "skipped"

    path.write_text('{"id": "f", "type": "pause-snapshot"}\n', encoding="utf-8")
    assert run_dag(dag_id, text, asked)[0] == "success"
    spec = fake_spark.call()["spec"]
    run = spec["run_id"].removeprefix(f"{dag_id}/")
    assert [(one["id"], one["type"], one["channel"]) for one in spec["signals"]] == [
        (f"{run}/1", "log", "airflow"),
        ("77", "pause-snapshot", "airflow"),
        ("f", "pause-snapshot", "file"),
    ]
    assert path.read_text(encoding="utf-8") == ""
    outcomes = inside(lambda: VariableOffsets(dag_id).summary()).outcomes
    assert [(one.id, one.status) for one in outcomes] == [(f"{run}/1", "done"), ("77", "done"), ("f", "done")]

    monkeypatch.setenv("FAKE_REFUSE", "88 g")
    path.write_text('{"id": "g", "type": "pause-snapshot"}\n', encoding="utf-8")
    assert run_dag(dag_id, text)[0] == "success", "what a file asked for does not fail the run"
    assert '"g", "status": "refused"' in path.with_name("signals.outcomes").read_text(encoding="utf-8")
    state, tasks = run_dag(dag_id, text, {"signals": [{"id": "88", "type": "pause-snapshot"}]})
    assert (state, tasks["tick.commit"], tasks["tick.outcome"]) == ("failed", "success", "failed")


@pytest.mark.sandbox
def test_run_that_carries_a_restart_or_a_restore_does_it(
    captured: Captured, run_dag: RunDag, inside: Inside, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str]
) -> None:
    dag_id, (orders, items) = "repaired", (captured.table("ORDERS"), captured.table("ITEMS"))
    text = dag_file(dag_id, captured, fake_spark)
    assert run_dag(dag_id, text)[0] == "success"
    assert run_dag(dag_id, text)[1]["tick.plan"] == "skipped"

    def conf(type_: str, id_: str, pattern: str) -> dict[str, Any]:
        return {"signals": [{"id": id_, "type": type_, "data": {"data-collections": [pattern]}}]}

    def acted(type_: str, id_: str, pattern: str) -> dict[str, str]:
        """Run the DAG with a signal; return what its job was to do with each table."""
        assert run_dag(dag_id, text, conf(type_, id_, pattern))[0] == "success"
        spec = fake_spark.call()["spec"]
        assert spec["signals"] == [], "the plan has acted on it"
        return {task["schema"]["table"]["name"]: task["action"] for task in spec["tables"]}

    restart = "restart-table", "1", rf"{orders.schema}\.{orders.name}"
    assert acted(*restart) == {orders.name: "restart", items.name: "pull"}
    both = {orders.name: "restore", items.name: "restore"}
    assert acted("restore-offset", "2", rf"{captured.schema}\..*") == both
    kept = inside(lambda: [VariableOffsets(dag_id).get(table) for table in (orders, items)])
    assert [(offset.restart, offset.restore) for offset in kept if offset] == [(False, False)] * 2, "they are consumed"
    outcomes = inside(lambda: VariableOffsets(dag_id).summary()).outcomes
    assert [(one.id, one.status) for one in outcomes] == [("1", "done"), ("2", "done")]
    assert run_dag(dag_id, text, conf(*restart))[1]["tick.plan"] == "skipped", "a cleared run requests nothing again"
    state, tasks = run_dag(dag_id, text, conf("restart-table", "3", "S.TYPO"))
    assert (state, tasks["tick.plan"]) == ("failed", "failed")
    assert "'S.TYPO' matches no table of this pipeline" in "".join(capfd.readouterr())


@pytest.mark.sandbox
def test_a_job_that_dies_with_signals_is_followed_by_one_that_tells(
    captured: Captured, run_dag: RunDag, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have begun what they asked for, and the run that carried them does not come again."""
    dag_id, text = "dies", dag_file("dies", captured, fake_spark)
    assert run_dag(dag_id, text)[0] == "success"
    monkeypatch.setenv("FAKE_DEATH", "no space left")
    assert run_dag(dag_id, text, {"signals": [{"id": "99", "type": "pause-snapshot"}]})[0] == "failed"
    monkeypatch.delenv("FAKE_DEATH")
    assert run_dag(dag_id, text)[1]["tick.apply"] == "success"
    assert run_dag(dag_id, text)[1]["tick.plan"] == "skipped"
