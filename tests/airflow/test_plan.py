from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from support.airflow_fixtures import Connect

from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import (
    CaptureStoppedError,
    ConfigurationError,
    Db2CdcError,
    DifferenceError,
    GapError,
    OffsetError,
    RegistrationError,
    SignalError,
    SourceError,
)
from airflow_provider_db2cdc.operators.apply import Db2CdcApplyOperator
from airflow_provider_db2cdc.operators.commit import Db2CdcCommitOperator
from airflow_provider_db2cdc.operators.failure import fail_at_once
from airflow_provider_db2cdc.operators.outcome import Db2CdcOutcomeOperator
from airflow_provider_db2cdc.operators.plan import Db2CdcPlanOperator
from airflow_provider_db2cdc.operators.signal import Db2CdcSignalOperator
from airflow_provider_db2cdc.sensors.change import Db2CdcChangeSensor
from airflow_provider_db2cdc.sensors.snapshot import Db2CdcSnapshotSensor

PROPERTIES = {"pipeline": "sales", "target": "{{ var.value.lake }}/sales"}


def context(run_type: str = "scheduled", conf: dict[str, Any] | None = None) -> Any:
    return {"dag_run": SimpleNamespace(run_type=run_type, dag_id="d", run_id="r", conf=conf)}


def test_wrong_property_is_named_and_not_retried() -> None:
    operator = Db2CdcPlanOperator(task_id="plan", config={"pipeline": "p", "target": "/t", "tabel.include.list": "x"})
    with pytest.raises(AirflowFailException, match=r"tabel\.include\.list.*did you mean"):
        operator.execute(context())


def test_run_with_something_else_than_signals_is_refused_and_not_retried() -> None:
    operator = Db2CdcPlanOperator(task_id="plan", config={"pipeline": "p", "target": "/t"})
    with pytest.raises(AirflowFailException, match="no list of objects in 'signals'"):
        operator.execute(context("manual", {"signals": "pause-snapshot"}))


def test_run_with_signals_is_refused_where_airflow_is_no_channel() -> None:
    properties = {"pipeline": "p", "target": "/t", "signal.enabled.channels": "source"}
    operator = Db2CdcPlanOperator(task_id="plan", config=properties)
    with pytest.raises(AirflowFailException, match=r"p does not listen to Airflow's\. Add airflow to"):
        operator.execute(context("manual", {"signals": [{"type": "pause-snapshot"}]}))


def test_unknown_notification_channel_is_refused_before_anything_is_done() -> None:
    properties = {"pipeline": "p", "target": "/t", "notification.enabled.channels": "log,json:Nothing"}
    operator = Db2CdcPlanOperator(task_id="plan", config=properties, db2_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match=r"notification\.enabled\.channels: 'json:Nothing' names no class"):
        operator.execute(context())


def test_properties_without_meaning_are_named_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    properties = {"pipeline": "p", "target": "/t", "poll.interval.ms": 500, "tasks.max": 1}
    operator = Db2CdcPlanOperator(task_id="plan", config=properties, db2_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match="no connection"):
        operator.execute(context())
    assert "properties without meaning here: poll.interval.ms, tasks.max" in "".join(capfd.readouterr())


def test_list_that_is_empty_is_warned_of_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    properties = {"pipeline": "p", "target": "/t", "table_include_list": ""}
    operator = Db2CdcPlanOperator(task_id="plan", config=properties, db2_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match="no connection"):
        operator.execute(context())
    assert "table_include_list is given, but empty: all tables are carried" in "".join(capfd.readouterr())


@pytest.mark.parametrize("form", ["${vault:x}", "${env:HOME}"])
def test_placeholder_is_refused_and_not_retried(form: str) -> None:
    properties = {"pipeline": "p", "target": "/t", "topic_prefix": form}
    operator = Db2CdcPlanOperator(task_id="plan", config=properties, db2_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match=r"^topic_prefix: "):
        operator.execute(context())


def test_missing_connection_is_named_and_not_retried() -> None:
    operator = Db2CdcPlanOperator(task_id="plan", config={"pipeline": "p", "target": "/t"}, db2_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match="no connection 'nowhere'"):
        operator.execute(context())


def test_source_out_of_reach_may_be_retried(connect: Connect) -> None:
    connect(host="127.0.0.1", port=1, extra={"ConnectTimeout": 2})
    operator = Db2CdcPlanOperator(task_id="plan", config={"pipeline": "p", "target": "/t"}, db2_conn_id="db2_test")
    with pytest.raises(SourceError, match="cannot be reached"):
        operator.execute(context())


@pytest.mark.parametrize(
    "kind", [ConfigurationError, DifferenceError, OffsetError, GapError, RegistrationError, SignalError]
)
def test_error_that_lasts_is_not_retried_and_keeps_its_remedy(kind: type[Db2CdcError]) -> None:
    with pytest.raises(AirflowFailException, match=r"what happened\. What to do\."), fail_at_once():
        raise kind("what happened", "What to do.")


@pytest.mark.parametrize("kind", [SourceError, CaptureStoppedError])
def test_error_of_a_source_that_may_come_back_is_retried(kind: type[Db2CdcError]) -> None:
    with pytest.raises(kind), fail_at_once():
        raise kind("what happened")


TASKS = [
    (Db2CdcPlanOperator, {"config": PROPERTIES, "db2_conn_id": "{{ conn }}"}),
    (
        Db2CdcApplyOperator,
        {"spec": "{{ spec }}", "db2_conn_id": "{{ conn }}", "jars_folder": "{{ jars }}", "conf": {"a": "{{ b }}"}},
    ),
    (Db2CdcCommitOperator, {"result": "{{ result }}", "config": PROPERTIES}),
    (Db2CdcOutcomeOperator, {"result": "{{ result }}", "unkept": "{{ unkept }}"}),
    (Db2CdcChangeSensor, {"config": PROPERTIES, "db2_conn_id": "{{ conn }}", "upto_time": "{{ data_interval_end }}"}),
    (
        Db2CdcSignalOperator,
        {
            "trigger_dag_id": "{{ d }}",
            "signal_type": "{{ t }}",
            "data": {"message": "{{ m }}"},
            "signal_id": "{{ id }}",
            "conf": {"a": "{{ b }}"},
        },
    ),
    (Db2CdcSnapshotSensor, {"pipeline": "{{ p }}", "signal_id": "{{ id }}"}),
]


@pytest.mark.parametrize(("kind", "arguments"), TASKS, ids=[kind.__name__ for kind, _ in TASKS])
def test_init_only_assigns(kind: type[Any], arguments: dict[str, Any]) -> None:
    task = kind(task_id="t", **arguments)
    for name, value in arguments.items():
        assert getattr(task, name) is value
    assert set(arguments) <= set(kind.template_fields)


def test_whole_configuration_is_taken_as_it_is() -> None:
    config = PipelineConfig(pipeline="p", target="/t")
    assert Db2CdcPlanOperator(task_id="plan", config=config).config is config
