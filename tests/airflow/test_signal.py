import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_2_PLUS
from jinja2 import Template
from support.airflow_fixtures import Inside, RunDag
from support.job_samples import UNTOUCHED
from support.variable_offsets import VariableOffsets

from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import Condition
from airflow_provider_db2cdc.cdc.signal.request import (
    ChangeOffsets,
    ExecuteSnapshot,
    PauseSnapshot,
    ResumeSnapshot,
    StopSnapshot,
    parse,
)
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, SignalStatus
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Status
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.operators.plan import signals_of
from airflow_provider_db2cdc.operators.signal import OWN_ID, Db2CdcSignalOperator, form_data
from airflow_provider_db2cdc.sensors.snapshot import Db2CdcSnapshotSensor

pytestmark = pytest.mark.airflow

RUN = "manual__2026-01-01"


@pytest.mark.parametrize("conf", [None, {}, {"signals": []}, {"signals": None}, {"other": 1}], ids=str)
def test_run_without_signals_has_none(conf: dict[str, Any] | None) -> None:
    assert signals_of(conf, RUN) == []


def test_signals_of_a_run_come_in_their_order_each_with_an_id() -> None:
    data = {"data-collections": ["S.T"]}
    conf = {
        "signals": [
            {"id": "mine", "type": "execute-snapshot", "data": data},
            {"type": "log", "data": '{"message": "m"}'},
            {"id": 7, "type": "pause-snapshot"},
        ]
    }
    assert signals_of(conf, RUN) == [
        Signal("mine", "execute-snapshot", json.dumps(data), "airflow"),
        Signal(f"{RUN}/2", "log", '{"message": "m"}', "airflow"),
        Signal("7", "pause-snapshot", "{}", "airflow"),
    ]


def test_signal_without_an_id_has_the_runs_in_each_of_its_tries() -> None:
    conf = {"signals": [{"type": "pause-snapshot"}]}
    assert [signal.id for signal in signals_of(conf, RUN)] == [RUN]
    assert signals_of(conf, RUN) == signals_of(conf, RUN)
    assert signals_of(conf, RUN) != signals_of(conf, f"{RUN}_1")


@pytest.mark.parametrize("items", ["x", {"type": "log"}, ["pause-snapshot"], [["log"]], 5], ids=str)
def test_what_is_no_list_of_objects_is_an_error(items: object) -> None:
    with pytest.raises(SignalError, match=r"no list of objects in 'signals'\. Write \["):
        signals_of({"signals": items}, RUN)


@pytest.mark.parametrize(
    ("item", "reason"),
    [({}, "it has no type"), ({"type": "log"}, "no message"), ({"type": "log", "data": [1]}, "not a JSON object")],
    ids=str,
)
def test_what_is_no_signal_is_left_to_be_refused(item: dict[str, Any], reason: str) -> None:
    [signal] = signals_of({"signals": [item]}, RUN)
    with pytest.raises(SignalError, match=reason):
        parse(signal)


FORMS = [
    ({"tables": ["S.T"]}, ExecuteSnapshot(("S.T",))),
    (
        {"tables": ["S.T", r"S\..*"], "type": "blocking", "conditions": ["S.T: ID > 5"], "surrogate_key": "ID"},
        ExecuteSnapshot(("S.T", r"S\..*"), "blocking", (Condition("S.T", "ID > 5"),), "ID"),
    ),
    ({"tables": ["S.T", ""]}, ExecuteSnapshot(("S.T",))),
    ({"known_tables": ['"S"."U "'], "tables": [" ", " S.T\r"]}, ExecuteSnapshot(('"S"."U "', "S.T"))),
    ({"action": "stop-snapshot", "tables": ["S.T", ""]}, StopSnapshot(("S.T",))),
    ({"tables": ["S.T"], "conditions": None, "surrogate_key": None}, ExecuteSnapshot(("S.T",))),
    ({"known_tables": ['"S"."U"'], "tables": ["S.T"]}, ExecuteSnapshot(('"S"."U"', "S.T"))),
    ({"known_tables": ['"S"."U"'], "tables": None}, ExecuteSnapshot(('"S"."U"',))),
    ({"action": "stop-snapshot"}, StopSnapshot()),
    ({"action": "stop-snapshot", "tables": None}, StopSnapshot()),
    ({"action": "stop-snapshot", "type": "blocking"}, StopSnapshot((), "blocking")),
    ({"action": "stop-snapshot", "tables": ["S.T"], "type": "blocking"}, StopSnapshot(("S.T",), "blocking")),
    ({"action": "pause-snapshot", "conditions": None, "surrogate_key": " ", "tables": None}, PauseSnapshot()),
    ({"action": "pause-snapshot", "type": "incremental"}, PauseSnapshot("incremental")),
    ({"action": "resume-snapshot"}, ResumeSnapshot()),
    ({"action": "resume-snapshot", "type": "blocking"}, ResumeSnapshot("blocking")),
    ({"action": "restart-table", "tables": [r"S\..*"]}, ChangeOffsets("restart", (r"S\..*",))),
    ({"action": "restart-table", "all_failed": True}, ChangeOffsets("restart", (), True)),
    ({"action": "restore-offset", "known_tables": ['"S"."U"']}, ChangeOffsets("restore", ('"S"."U"',))),
]


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"action": "stop-snapshot", "table": ["S.T"]}, "no field 'table'"),
        ({"action": "pause-snapshot", "tables": ["S.T"]}, "pause-snapshot does not use the field tables"),
        ({"action": "resume-snapshot", "known_tables": ["S.T"]}, "resume-snapshot does not use the field known_tables"),
        ({"action": "pause-snapshot", "conditions": ["S.T: ID > 5"]}, "pause-snapshot does not use the field cond"),
        ({"action": "stop-snapshot", "conditions": ["S.T: ID > 5"]}, "stop-snapshot does not use the field conditions"),
        ({"action": "stop-snapshot", "surrogate_key": "ID"}, "stop-snapshot does not use the field surrogate_key"),
        ({"action": "stop-snapshot", "all_failed": True}, "stop-snapshot does not use the field all_failed"),
        ({"action": "restart-table", "type": "blocking"}, "restart-table does not use the field type"),
    ],
)
def test_form_does_nothing_to_more_than_was_named(form: dict[str, Any], says: str) -> None:
    with pytest.raises(SignalError, match=says):
        form_data({"params": {**UNTOUCHED, **form}})


@pytest.mark.parametrize(("form", "asked"), FORMS, ids=str)
def test_form_becomes_the_data_of_its_action(form: dict[str, Any], asked: object) -> None:
    params = {**UNTOUCHED, **form}
    data = form_data({"params": params}, jinja_env=None)
    assert parse(Signal("1", params["action"], json.dumps(data), "airflow")) == asked


@pytest.mark.parametrize("action", ["execute-snapshot", "stop-snapshot"])
def test_a_form_of_blank_lines_is_refused(action: str) -> None:
    data = form_data({"params": {**UNTOUCHED, "action": action, "tables": [" ", ""]}})
    with pytest.raises(SignalError, match="not a list of names"):
        parse(Signal("1", action, json.dumps(data), "airflow"))


CONDITIONS = [
    (["S.T: ID > 5"], [("S.T", "ID > 5")]),
    ([" S.T :  ID > 5 ", "", "\r"], [("S.T", "ID > 5")]),
    (["S.T: NOTE = 'a: b'", "S.U: A = 1\n OR B = 2"], [("S.T", "NOTE = 'a: b'"), ("S.U", "A = 1\n OR B = 2")]),
    ([r"(?:S|T)\..*: ID > 5"], [(r"(?:S|T)\..*", "ID > 5")]),
    (['"a: b"."c ""d: e""": X = 1'], [('"a: b"."c ""d: e"""', "X = 1")]),
    ([" ", ""], []),
    (None, []),
]


@pytest.mark.parametrize(("lines", "found"), CONDITIONS, ids=str)
def test_forms_conditions_follow_their_tables(lines: list[str] | None, found: list[tuple[str, str]]) -> None:
    data = form_data({"params": {**UNTOUCHED, "tables": ["S.T"], "conditions": lines}})
    assert [(one["data-collection"], one["filter"]) for one in data.get("additional-conditions", [])] == found


@pytest.mark.parametrize(
    "line",
    [
        "S.T:",
        "S.T: ",
        '"S"."T":',
        "ID > 5",
        "X = 'a: b'",
        "S.T:ID > 5",
        "S.T:NOTE = 'a: b'",
        ": ID > 5",
        '"S.T: ID > 5',
        5,
        {"S.T": "ID > 5"},
    ],
    ids=str,
)
def test_a_line_of_the_form_that_is_no_condition_is_refused(line: object) -> None:
    with pytest.raises(SignalError, match=r"is not a table and its condition.*\n?.*SALES\.ORDERS: STATUS = 1"):
        form_data({"params": {**UNTOUCHED, "tables": ["S.T"], "conditions": [line]}})


def test_form_without_tables_is_refused() -> None:
    data = form_data({"params": UNTOUCHED})
    with pytest.raises(SignalError, match="names no data-collections"):
        parse(Signal("1", "execute-snapshot", json.dumps(data), "airflow"))


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("execute-snapshot", {}, "names no data-collections"),
        ("execute-snapshot", {"data-collections": ["("]}, "not a regular expression"),
        ("snapshot", {}, "'snapshot' is unknown"),
        ("log", "{oops", "not JSON"),
        ("log", ["m"], "not a JSON object"),
        ("pause-snapshot", {"tables": ["S.T"]}, "takes no 'tables'"),
    ],
)
def test_what_is_no_signal_is_refused_before_anything_is_triggered(kind: str, data: Any, reason: str) -> None:
    pushed = []
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda **values: pushed.append(values))}
    operator = Db2CdcSignalOperator(task_id="t", trigger_dag_id="d", signal_type=kind, data=data, signal_id="1")
    with pytest.raises(AirflowFailException, match=reason):
        operator.execute(context)
    assert pushed == []


@pytest.mark.parametrize("conf", ["{oops", "[1]", "7", ["a"], 5], ids=str)
def test_conf_to_be_sent_along_that_is_no_object_is_refused(conf: object) -> None:
    operator = Db2CdcSignalOperator(
        task_id="t", trigger_dag_id="d", signal_type="pause-snapshot", signal_id="1", conf=conf
    )
    with pytest.raises(AirflowFailException, match="conf to be sent along is not a JSON object"):
        operator.execute({})


TARGET = """
from airflow.sdk import DAG, task
from airflow_provider_db2cdc.operators.plan import signals_of

with DAG("signal_target", schedule=None, is_paused_upon_creation=False):

    @task
    def read(dag_run=None):
        return [[signal.id, signal.type, signal.data] for signal in signals_of(dag_run.conf, dag_run.run_id)]

    read()
"""

SENDER = """
from airflow.sdk import DAG, task
from airflow_provider_db2cdc import Db2CdcSignalOperator
from airflow_provider_db2cdc.operators.signal import form_data

with DAG("signal_sender", schedule=None, render_template_as_native_obj={native}, params={params!r}):

    @task
    def hear(id_):
        return id_

    send = Db2CdcSignalOperator(task_id="send", trigger_dag_id="signal_target", {arguments})
    hear(send.output)
"""


def sent_conf(target: str = "signal_target") -> tuple[str, Any]:
    """Return the run and the conf of what was triggered last."""
    return sent_confs(1, target)[0]


def sent_confs(count: int, target: str = "signal_target") -> list[tuple[str, Any]]:
    """Return the runs and the confs of what was triggered last, the last first."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        runs = session.query(DagRun).filter(DagRun.dag_id == target).order_by(DagRun.id.desc()).limit(count)
        return [(run.run_id, run.conf) for run in runs]


def xcom(dag_id: str, task_id: str, key: str = "return_value") -> Any:
    """Return what a task's last run left."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(XComModel).filter_by(dag_id=dag_id, task_id=task_id, key=key)
        row = found.order_by(XComModel.dag_run_id.desc(), XComModel.map_index.desc()).first()
        return None if row is None else row.value


Send = Callable[..., tuple[str, Any, Any]]


@pytest.fixture
def send(run_dag: RunDag) -> Send:
    """Run a DAG that sends a signal; return its state, the last triggered run's conf and the id that came out."""
    run_dag("signal_target", TARGET)

    def run(
        arguments: str, params: dict[str, Any] | None = None, native: bool = False, form: dict[str, Any] | None = None
    ) -> tuple[str, Any, Any]:
        text = SENDER.format(arguments=arguments, params=params or {}, native=native)
        state, _ = run_dag("signal_sender", text, form)
        return state, sent_conf()[1], xcom("signal_sender", "hear")

    return run


@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
def test_the_operator_triggers_a_run_with_its_signal_and_returns_the_id(send: Send, native: bool) -> None:
    arguments = "signal_type='{{ params.kind }}', data={'data-collections': ['{{ params.table }}']}, conf={'mine': 1}"
    state, conf, heard = send(arguments, {"kind": "execute-snapshot", "table": "S.T"}, native)
    assert state == "success"
    [signal] = conf["signals"]
    assert conf["mine"] == 1
    assert (signal["type"], json.loads(signal["data"])) == ("execute-snapshot", {"data-collections": ["S.T"]})
    assert signal["id"].startswith("signal_sender/manual__")
    assert signal["id"].endswith("/send")
    assert heard == signal["id"]


def test_conf_may_be_a_signals_text(send: Send) -> None:
    state, conf, _ = send("signal_type='pause-snapshot', conf='{\"mine\": {{ 1 + 1 }}}'")
    assert state == "success"
    assert (conf["mine"], conf["signals"][0]["type"]) == (2, "pause-snapshot")


def test_triggered_run_hears_the_signal(send: Send, run_dag: RunDag) -> None:
    _, _, heard = send("signal_type='log', data={'message': 'm'}, signal_id='77'")
    run_id, conf = sent_conf()
    assert "manual__" in run_id
    assert run_dag("signal_target", TARGET, conf)[0] == "success"
    assert heard == "77"
    assert xcom("signal_target", "read") == [["77", "log", '{"message": "m"}']]


def test_form_of_the_dag_is_sent(send: Send) -> None:
    form = {"tables": ["S.T"], "conditions": ["S.T: ID > 5"], "type": "blocking"}
    state, conf, _ = send("signal_type='{{ params.action }}', data=form_data", UNTOUCHED, native=True, form=form)
    assert state == "success"
    assert parse(signals_of(conf, "r")[0]) == ExecuteSnapshot(("S.T",), "blocking", (Condition("S.T", "ID > 5"),))


def test_nothing_is_triggered_by_what_is_no_signal(send: Send) -> None:
    before = sent_conf()
    assert send("signal_type='execute-snapshot', data={}")[0] == "failed"
    assert sent_conf() == before


MAPPED = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcSignalOperator

with DAG("signal_mapped", schedule=None):
    Db2CdcSignalOperator.partial(task_id="send", trigger_dag_id="signal_target", signal_type="log").expand(
        data=[{"message": "a"}, {"message": "b"}]
    )
"""


def test_mapped_tasks_send_under_ids_of_their_own(send: Send, run_dag: RunDag) -> None:
    assert run_dag("signal_mapped", MAPPED)[0] == "success"
    ids = [conf["signals"][0]["id"] for _, conf in sent_confs(2)]
    # In which order they run is Airflow's affair.
    assert {id_.rsplit("/", 1)[1] for id_ in ids} == {"0", "1"}
    assert all("signal_mapped/" in id_ and "/send/" in id_ for id_ in ids)


CLEARED = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcSignalOperator

with DAG("signal_cleared", schedule=None):
    Db2CdcSignalOperator(task_id="send", trigger_dag_id="signal_target", signal_type="pause-snapshot", retries=3)
"""


def test_a_cleared_task_asks_again_and_each_run_of_it_asks_once(send: Send, run_dag: RunDag) -> None:
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.session import create_session

    assert run_dag("signal_cleared", CLEARED)[0] == "success"
    own = xcom("signal_cleared", "send")
    assert own.endswith("/send")
    ids = []
    with create_session() as session:
        ti = session.query(TaskInstance).filter_by(dag_id="signal_cleared").one()
        task = SimpleNamespace(retries=3)
        for tries in (1, 3, 1):
            clear_task_instances([ti], session)
            for _ in range(tries):
                ti.try_number += 1
                context = {"dag": ti, "run_id": ti.run_id, "ti": ti, "task": task}
                ids.append(Template(OWN_ID).render(context))
    assert own == ids[0].split("~")[0]
    assert [ids.count(id_) for id_ in dict.fromkeys(ids)] == [1, 3, 1]


def progress(status: Status, done: int = 1, id_: str = "77") -> SnapshotProgress:
    part = TableSnapshotProgress(
        TableId("S", "T"), "completed" if status == "completed" else "reading", done, 4, done * 10
    )
    return SnapshotProgress(id_, "incremental", status, (part,), 5)


def summary(status: SignalStatus, snapshot: Status = "running", reason: str = "", done: int = 1) -> PipelineSummary:
    return PipelineSummary((progress(snapshot, done),), (SignalOutcome("77", "airflow", status, reason),))


Look = Callable[..., tuple[bool, dict[str, Any]]]


@pytest.fixture
def look(inside: Inside) -> Look:
    """Let the sensor look once at a summary; return what it says, and the progress it leaves."""

    def once(
        pipeline: str,
        kept: PipelineSummary | None = None,
        signal_id: object = "77",
        runs: dict[tuple[str, str], str] | None = None,
        paused: dict[str, bool] | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        pushed = {}
        states: dict[str, Any] = {"get_dagrun_state": lambda dag_id, run_id: (runs or {})[dag_id, run_id]}
        if paused is not None:
            states["get_dag"] = lambda dag_id: SimpleNamespace(is_paused=paused[dag_id])
        context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}), **states)}
        run = {"trigger_dag_id": "sales", "trigger_run_id": "r1"} if runs else {}

        def poke() -> bool:
            if kept is not None:
                VariableOffsets(pipeline).put_summary(kept)
            return Db2CdcSnapshotSensor(task_id="t", pipeline=pipeline, signal_id=signal_id, **run).poke(context)

        return inside(poke), pushed

    return once


def test_sensor_waits_for_a_tick_to_hear_the_signal(look: Look) -> None:
    assert look("sensor_unheard") == (False, {})
    assert look("sensor_unheard", PipelineSummary((progress("running", id_="other"),))) == (False, {})


def test_the_sensor_reports_the_progress_of_the_snapshot_it_awaits(look: Look) -> None:
    found, pushed = look("sensor_running", summary("accepted"))
    assert found is False
    told = pushed["progress"]
    assert (told["status"], told["tables"][0]["published_chunks"], told["tables"][0]["chunks"]) == ("running", 1, 4)
    assert json.loads(json.dumps(told)) == told
    assert look("sensor_running", summary("accepted", "paused"))[0] is False


def test_sensor_ends_when_the_signal_is_done(look: Look) -> None:
    found, pushed = look("sensor_done", summary("done", "completed", done=4))
    assert found is True
    assert pushed["progress"]["status"] == "completed"


def test_sensor_says_what_was_left_out_of_a_signal_that_is_done(look: Look, capfd: pytest.CaptureFixture[str]) -> None:
    done = SignalOutcome("77", "airflow", "done", "no snapshot of SALES.TYPO runs")
    assert look("sensor_partly", PipelineSummary((), (done,)))[0] is True
    assert "signal 77 done: no snapshot of SALES.TYPO runs" in capfd.readouterr().out


@pytest.mark.parametrize("status", ["refused", "failed", "stopped"])
def test_sensor_fails_at_once_when_the_signal_came_to_a_bad_end(look: Look, status: SignalStatus) -> None:
    with pytest.raises(AirflowFailException, match=f"signal 77 {status}: no such table"):
        look("sensor_bad", PipelineSummary((), (SignalOutcome("77", "airflow", status, "no such table"),)))


def test_the_sensor_tells_signals_of_the_same_id_apart(look: Look) -> None:
    first, other = (SignalOutcome(id_, "airflow", "done", asked="0a") for id_ in ("77", "77 #8"))
    again = SignalOutcome("77 #0b", "airflow", "refused", "its id was used before", "0b")
    assert look("sensor_reused", PipelineSummary((), (first, other)))[0] is True
    with pytest.raises(AirflowFailException, match="signal 77 #0b refused: its id was used before"):
        look("sensor_reused", PipelineSummary((), (first, again, other)))


@pytest.mark.parametrize("signal_id", [None, ""])
def test_sensor_without_a_signal_does_not_wait(look: Look, signal_id: object) -> None:
    with pytest.raises(AirflowFailException, match="no signal to wait for"):
        look("sensor_none", signal_id=signal_id)


@pytest.mark.parametrize("state", ["failed", "success"])
def test_sensor_does_not_wait_for_a_run_that_ended_without_an_outcome(look: Look, state: str) -> None:
    with pytest.raises(
        AirflowFailException, match=rf"run r1 of DAG sales is over \({state}\), and reported nothing on signal"
    ):
        look("sensor_over", runs={("sales", "r1"): state})
    assert look("sensor_over_2", summary("accepted"), runs={("sales", "r1"): state})[0] is False, "later runs go on"
    assert look("sensor_over_3", summary("done"), runs={("sales", "r1"): state})[0] is True


FOLLOWER = """
from airflow.sdk import DAG, task
from airflow_provider_db2cdc import Db2CdcSignalOperator, Db2CdcSnapshotSensor
from support.inside_task import CALLS
from support.variable_offsets import VariableOffsets

with DAG("signal_follower", schedule=None, render_template_as_native_obj=True):
    data = {{"message": "m"}}
    send = Db2CdcSignalOperator(task_id="send", trigger_dag_id="signal_target", signal_type="log", data=data)

    @task
    def meanwhile():
        CALLS.pop()()

    follow = Db2CdcSnapshotSensor(
        task_id="follow", pipeline="followed", signal_id=send.output, poke_interval=1, timeout={timeout},
        trigger_dag_id="signal_target", trigger_run_id=send.output["trigger_run_id"],
    )
    send >> meanwhile() >> follow
"""


def test_following_ends_with_a_run_that_fails_before_it_acts(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from support.inside_task import CALLS

    def fail() -> None:
        with create_session() as session:
            run = session.query(DagRun).filter_by(dag_id="signal_target", run_id=sent_conf()[0]).one()
            run.state = "failed"

    run_dag("signal_target", TARGET)
    CALLS.append(fail)
    state, tasks = run_dag("signal_follower", FOLLOWER.format(timeout=60))
    assert (state, tasks) == ("failed", {"send": "success", "meanwhile": "success", "follow": "failed"})
    assert "is over (failed), and reported nothing on signal" in capfd.readouterr().out, "not by its timeout"


def test_a_task_that_follows_a_run_of_a_paused_dag_says_so(run_dag: RunDag, capfd: pytest.CaptureFixture[str]) -> None:
    """Airflow's API reports it from 3.2 on. Before that, the task waits as for any run."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from support.inside_task import CALLS

    def pause(is_paused: bool = True) -> None:
        with create_session() as session:
            session.query(DagModel).filter_by(dag_id="signal_target").one().is_paused = is_paused

    run_dag("signal_target", TARGET)
    CALLS.append(pause)
    state, _ = run_dag("signal_follower", FOLLOWER.format(timeout=3))
    assert state == "failed", "by its timeout"
    is_told = "DAG signal_target is paused, so the run waits" in capfd.readouterr().out
    assert is_told is AIRFLOW_V_3_2_PLUS
    pause(False)


@pytest.mark.parametrize("state", ["queued", "running"])
def test_sensor_waits_for_its_run(look: Look, state: str) -> None:
    assert look("sensor_yet", runs={("sales", "r1"): state})[0] is False
    for older in ("done", "stopped"):
        assert look("sensor_older", summary(older), runs={("sales", "r1"): state})[0] is False, "another one's end"


def test_sensor_says_that_the_dag_which_is_to_run_is_paused(look: Look, capfd: pytest.CaptureFixture[str]) -> None:
    for paused, is_told in ((None, False), ({"sales": False}, False), ({"sales": True}, True)):
        assert look("sensor_paused", runs={("sales", "r1"): "queued"}, paused=paused)[0] is False
        assert ("DAG sales is paused" in capfd.readouterr().out) is is_told


def test_sensor_finds_a_signal_whose_id_was_rendered_to_a_number(look: Look) -> None:
    assert look("sensor_number", summary("done", "completed"), signal_id=77)[0] is True


FOLLOW = """
from airflow.sdk import DAG, task
from airflow_provider_db2cdc import Db2CdcSnapshotSensor
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from support.variable_offsets import VariableOffsets

with DAG("signal_follow", schedule=None):

    @task
    def keep(text):
        VariableOffsets("followed").put_summary(PipelineSummary.from_json(text, "here"))

    follow = Db2CdcSnapshotSensor(
        task_id="follow", pipeline="followed", signal_id="77", mode="reschedule", poke_interval=1, timeout=60, retries=3
    )
    begin = keep.override(task_id="begin")({begin!r})
    begin >> follow
    # The last tick comes a round later, so that the sensor has to wait for it.
    begin >> keep.override(task_id="tick")({begin!r}) >> keep.override(task_id="last_tick")({finish!r})
"""


@pytest.mark.parametrize(("finish", "state"), [("done", "success"), ("stopped", "failed")])
def test_sensor_follows_in_a_dag_from_tick_to_tick(run_dag: RunDag, finish: SignalStatus, state: str) -> None:
    begin = summary("accepted").to_json()
    end = summary(finish, "completed" if finish == "done" else "stopped", "asked for", done=4).to_json()
    found, tasks = run_dag("signal_follow", FOLLOW.format(begin=begin, finish=end))
    assert (found, tasks["follow"]) == (state, state), "what has failed is not tried again"
    assert xcom("signal_follow", "follow", "progress")["tables"][0]["published_chunks"] == 4
    assert waits("signal_follow") > 0


def waits(dag_id: str) -> int:
    """Return how often the sensor of a DAG's last run was put off."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskreschedule import TaskReschedule
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(TaskReschedule).join(TaskInstance, TaskInstance.id == TaskReschedule.ti_id)
        return found.filter(TaskInstance.dag_id == dag_id).count()
