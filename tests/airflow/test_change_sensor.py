import asyncio
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from support.airflow_fixtures import Connect, Inside, RunDag
from support.captured_shop import Captured
from support.job_samples import lsn
from support.memory_offsets import MemoryOffsets
from support.variable_offsets import VariableOffsets

from airflow_provider_db2cdc.cdc.capture.interval import CapturedTime
from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request_change import capture_interrupted
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.offsets.keyed import Document
from airflow_provider_db2cdc.sensors.change import Db2CdcChangeSensor
from airflow_provider_db2cdc.triggers.change import Db2CdcChangeTrigger, FrozenOffsets, passed, redact

STANDS = CapturedTime(CapturePosition(lsn(9), "2026-03-01T11:59:50", "2026-03-01T12:00:00", 10.0), SourceClock(-18_000))
AT = datetime(2026, 3, 1, 16, 59, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("upto", "expected"),
    [
        (datetime(2026, 3, 1, 11, 59, 50), True),
        (datetime(2026, 3, 1, 11, 59, 51), False),
        (AT - timedelta(seconds=1), True),
        (AT, False),
        ((AT - timedelta(seconds=1)).astimezone(timezone(timedelta(hours=7))), True),
    ],
    ids=["source's time", "after it", "zoned", "the same second, zoned", "another zone"],
)
def test_time_is_passed_when_capture_is_after_it(upto: datetime, expected: bool) -> None:
    assert passed(STANDS, upto) is expected


def test_offsets_are_remembered_as_they_were_first_seen() -> None:
    table = TableId("S", "A")
    store = MemoryOffsets(Offset(table, lsn(1), 1))
    first = FrozenOffsets(store.read_texts(), store)
    store.put(Offset(table, lsn(2), 2))
    for frozen in (first, FrozenOffsets(first.texts)):
        assert dict(frozen.read().all()) == {table: Offset(table, lsn(1), 1)}
        frozen.put_requests(lambda seen: seen.recorded("p", signals_in_flight_at_ms=5))
        assert frozen.summary() == PipelineSummary(), "the next plan records it"
        frozen.put_requests(capture_interrupted([table], "c"))
        assert frozen.inactive == [table]
        assert frozen.read().all()[table].capture_interrupted
    assert store.get(table) == Offset(table, lsn(2), 2, capture_interrupted=True, revision="c")
    assert store.summary() == PipelineSummary()


def texts_of(*offsets: Offset) -> dict[Document, str | None]:
    """Return the documents of a pipeline that has these offsets."""
    return MemoryOffsets(*offsets, summary=PipelineSummary(tables=tuple(each.table for each in offsets))).read_texts()


def in_run(run: SimpleNamespace) -> Any:
    """Return the context of a task in a run, which is all that is looked at."""
    return {"dag_run": run}


def sensor(**arguments: Any) -> Db2CdcChangeSensor:
    return Db2CdcChangeSensor(
        task_id="wait", config={"pipeline": "p", "target": "/t"}, db2_conn_id="db2_test", **arguments
    )


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"status": "timeout", "message": "it has not come"}, AirflowSensorTimeout),
        ({"status": "failed", "message": "m", "error": "RegistrationError"}, AirflowFailException),
        ({"status": "failed", "message": "m", "error": "CaptureStoppedError"}, AirflowException),
    ],
)
def test_event_ends_the_wait_as_it_says(event: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=event["message"]) as raised:
        sensor().resume({}, event)
    assert type(raised.value) is error


@pytest.mark.parametrize("deferrable", [True, False])
def test_run_that_was_triggered_with_signals_waits_for_nothing(deferrable: bool) -> None:
    """There is no such connection: a look at the source would fail."""
    run = SimpleNamespace(run_id="r", conf={"signals": [{"type": "log", "data": {"message": "m"}}]})
    sensor(deferrable=deferrable).execute(in_run(run))
    for waits in (sensor(upto_time="2026-03-01T12:00:00"), sensor()):
        with pytest.raises(AirflowFailException, match="no connection 'db2_test'"):
            waits.execute(in_run(run if waits.upto_time else SimpleNamespace(run_id="r", conf={})))


def test_a_captured_change_ends_the_wait() -> None:
    sensor().resume({}, {"status": "come", "message": "3 changes"})


def stands(table: TableId, at: Lsn, planned_at_ms: int = 0) -> Offset:
    """Return an offset as a result leaves it."""
    return Offset(table, at, 1, planned_at_ms=planned_at_ms, committed_lsn=at)


def trigger(deadline_s: float = 5.0, db2_conn_id: str = "db2_test", **arguments: Any) -> Db2CdcChangeTrigger:
    chosen = PipelineConfig(pipeline="p", target="/t", **arguments.pop("config", {}))
    config = redact(chosen)
    usual: dict[str, Any] = {"offsets": {}, "upto_time": None, "poll_s": 0.1, "deadline": time.time() + deadline_s}
    return Db2CdcChangeTrigger(db2_conn_id, config, **{**usual, **arguments})


def event_of(waiting: Db2CdcChangeTrigger) -> dict[str, Any]:
    """Return the trigger's event, after a way through what Airflow stores of it."""
    name, arguments = waiting.serialize()
    assert name == "airflow_provider_db2cdc.triggers.change.Db2CdcChangeTrigger"

    async def payloads() -> list[dict[str, Any]]:
        return [event.payload async for event in Db2CdcChangeTrigger(**arguments).run()]

    [payload] = asyncio.run(asyncio.wait_for(payloads(), 60))
    return payload


def test_source_out_of_reach_is_waited_for_until_the_time_is_over(connect: Connect) -> None:
    connect(host="127.0.0.1", port=1, extra={"ConnectTimeout": 1})
    event = event_of(trigger(deadline_s=1.0))
    assert event["status"] == "timeout"
    assert "127.0.0.1:1/SALES cannot be reached" in event["message"]


def test_source_out_of_reach_at_the_first_look_is_waited_for_too(connect: Connect, inside: Inside) -> None:
    connect(host="127.0.0.1", port=1, extra={"ConnectTimeout": 1})
    table = TableId("S", "T")

    def deferred() -> tuple[dict[Document, str | None], bool]:
        store = VariableOffsets("p")
        store.put(Offset(table, lsn(5), 1))
        store.put_summary(PipelineSummary(tables=(table,)))
        with pytest.raises(TaskDeferred) as raised:
            sensor().execute({})
        return raised.value.trigger.offsets, sensor(deferrable=False).poke({})

    offsets, is_done = inside(deferred)
    assert FrozenOffsets(offsets).read().all()[table].lsn == lsn(5), "else it would be taken for new"
    assert not is_done


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize(("softly", "ends"), [("soft_fail", False), ("never_fail", True), ("retries", False)])
def test_an_error_of_the_first_look_is_skipped_by_never_fail_only(
    softly: str, ends: bool, deferrable: bool, inside: Inside
) -> None:
    waiting = sensor(**{softly: True}, deferrable=deferrable)

    def looked() -> None:
        with pytest.raises(AirflowSkipException if ends else AirflowFailException) as raised:
            waiting.execute({})
        error = raised.value.__cause__ if ends and not deferrable else raised.value
        assert "no connection 'db2_test'" in str(error)

    inside(looked)


FAILED = {"status": "failed", "message": "capture stands still", "error": "CaptureStoppedError"}
TIMED_OUT = {"status": "timeout", "message": "no change has come"}


@pytest.mark.parametrize(
    ("softly", "event", "error"),
    [
        ("soft_fail", TIMED_OUT, AirflowSkipException),
        ("soft_fail", FAILED, AirflowException),
        ("never_fail", FAILED, AirflowSkipException),
        ("retries", TIMED_OUT, AirflowSensorTimeout),
    ],
)
def test_a_soft_sensor_skips_for_a_timeout_and_fails_for_an_error(
    softly: str, event: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        sensor(**{softly: True}).resume_execution("resume", {"event": event}, {})
    assert raised.type is error


@pytest.mark.parametrize(("softly", "error"), [("soft_fail", AirflowSkipException), ("retries", AirflowSensorTimeout)])
def test_a_soft_sensor_that_is_not_deferred_skips_for_a_timeout(
    softly: str, error: type[Exception], connect: Connect, inside: Inside
) -> None:
    connect(host="127.0.0.1", port=1, extra={"ConnectTimeout": 1})
    waiting = sensor(**{softly: True}, deferrable=False, timeout=0, poke_interval=0.1)

    def waited() -> None:
        with pytest.raises(error):
            waiting.execute({})

    inside(waited)


@pytest.mark.parametrize(("shows", "channels"), [(True, ["file"]), (False, ["file", "kafka"])])
def test_a_trigger_has_no_secret_that_airflow_shows(
    monkeypatch: pytest.MonkeyPatch, shows: bool, channels: list[str]
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.triggers.change.SHOWS_ARGUMENTS", shows)
    config = PipelineConfig.from_properties(
        {
            "pipeline": "p", "target": "/t", "spark.conf": {"spark.hadoop.fs.s3a.secret.key": "s3cret"},
            "signal.enabled.channels": "file, kafka", "signal.file": "/f", "signal.kafka.bootstrap.servers": "k:1",
            "signal.consumer.sasl.password": "kafkas",
        }
    )  # fmt: skip
    text = json.dumps(redact(config))
    assert "s3cret" not in text
    assert ("kafkas" in text) is not shows
    assert PipelineConfig.model_validate(redact(config)).signal_channels == tuple(channels)
    unheard = config.model_copy(update={"signal_channels": ("file",)})
    assert ("kafkas" in json.dumps(redact(unheard))) is not shows


def test_missing_connection_ends_the_wait() -> None:
    event = event_of(trigger(db2_conn_id="nowhere"))
    assert (event["status"], event["error"]) == ("failed", "ConfigurationError")
    assert "no connection 'nowhere'" in event["message"]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("text", "ends"), [("", "timeout"), ('{"type": "log", "id": "a", "data": {"message": "m"}}\n', "come")]
)
def test_a_channel_that_the_triggerer_lacks_ends_no_wait(
    captured: Captured, tmp_path: Path, text: str, ends: str
) -> None:
    orders = captured.table("ORDERS")
    (tmp_path / "signals.jsonl").write_text(text)
    settings = {
        "signal_channels": ("module_of_the_workers:Queue", "file"),
        "signal_file": str(tmp_path / "signals.jsonl"),
        "selection": {"table_include": [str(orders)]},
    }
    seen = texts_of(stands(orders, captured.synchpoint(), time.time_ns() // 10**6))
    assert event_of(trigger(0.5, "db2_sandbox", config=settings, offsets=seen))["status"] == ends


@pytest.mark.sandbox
def test_trigger_fires_when_a_change_is_captured(captured: Captured) -> None:
    orders = captured.table("ORDERS")
    settings = {"selection": {"table_include": [f"{captured.schema}\\.ORDERS"]}}
    here = stands(orders, captured.synchpoint())

    def wait(deadline_s: float, planned_at_ms: int) -> dict[str, Any]:
        documents = texts_of(replace(here, planned_at_ms=planned_at_ms))
        return event_of(trigger(deadline_s, "db2_sandbox", config=settings, offsets=documents))

    now_ms = time.time_ns() // 1_000_000
    assert wait(0.5, now_ms) == {"status": "timeout", "message": "it has not come", "inactive": []}
    captured.insert(orders)
    event = wait(20, now_ms)
    assert event["status"] == "come"
    assert event["message"].startswith("1 changes are waiting")


@pytest.mark.sandbox
def test_trigger_fires_where_offsets_have_stood_still_for_long(captured: Captured) -> None:
    orders = captured.table("ORDERS")
    settings = {"selection": {"table_include": [f"{captured.schema}\\.ORDERS"]}}
    long_ago = stands(orders, captured.synchpoint(), 1)
    event = event_of(trigger(20, "db2_sandbox", config=settings, offsets=texts_of(long_ago)))
    assert event["status"] == "come"
    assert event["message"].startswith("0 changes are waiting")


@pytest.mark.sandbox
def test_an_inactive_registration_found_by_the_trigger_is_stored(captured: Captured, inside: Inside) -> None:
    orders, items = captured.table("ORDERS"), captured.table("ITEMS")
    here, now_ms = captured.synchpoint(), time.time_ns() // 1_000_000
    documents = texts_of(*(stands(table, here, now_ms) for table in (orders, items)))
    settings = {"selection": {"table_include": [f"{captured.schema}\\..*"]}}
    captured.set_state(orders, "S")
    event = event_of(trigger(20, "db2_sandbox", config=settings, offsets=documents))
    captured.set_state(orders, "A")
    assert event["status"] == "failed"
    assert "registered in state 'S'" in event["message"]

    def resumed() -> Offset | None:
        store = VariableOffsets("p")
        store.put(Offset(orders, lsn(200), 3))
        with pytest.raises(AirflowException, match="registered in state 'S'"):
            sensor().resume({}, event)
        return store.get(orders)

    kept = inside(resumed)
    assert kept is not None
    assert (kept.lsn, kept.batch, kept.capture_interrupted) == (lsn(200), 3, True)


@pytest.mark.sandbox
@pytest.mark.parametrize("deferrable", [True, False])
def test_sensor_that_meets_an_inactive_registration_keeps_that(
    captured: Captured, inside: Inside, deferrable: bool
) -> None:
    orders = captured.table("ORDERS")
    config = {"pipeline": "met", "target": "/t", "table.include.list": rf"{captured.schema}\.ORDERS"}
    waiting = Db2CdcChangeSensor(task_id="wait", config=config, db2_conn_id="db2_sandbox", deferrable=deferrable)
    captured.set_state(orders, "S")

    def met() -> Offset | None:
        with pytest.raises(AirflowException, match="registered in state 'S'"):
            waiting.execute({}) if deferrable else waiting.poke({})
        return VariableOffsets("met").get(orders)

    kept = inside(met)
    assert kept is not None
    captured.set_state(orders, "A")
    assert (kept.has_position, kept.capture_interrupted) == (False, True)


def test_sensor_keeps_table_by_table_what_its_trigger_has_found(inside: Inside) -> None:
    tables = [TableId("S", name) for name in "AB"]
    found = [name_of(table) for table in tables]

    def resumed() -> Offset | None:
        VariableOffsets("p").damage(tables[0])
        with pytest.raises(AirflowException, match="why the wait ended"):
            sensor().resume({}, {"status": "failed", "message": "why the wait ended", "inactive": found})
        return VariableOffsets("p").get(tables[1])

    kept = inside(resumed)
    assert kept is not None
    assert kept.capture_interrupted


@pytest.mark.sandbox
def test_sensor_wakes_for_a_signal_in_a_file(captured: Captured, tmp_path: Path) -> None:
    orders = captured.table("ORDERS")
    path = tmp_path / "signals"
    path.write_text('{"id": "1", "type": "log", "data": {"message": "m"}}\n')
    settings = {
        "selection": {"table_include": [f"{captured.schema}\\.ORDERS"]},
        "signal_channels": ["file"],
        "signal_file": str(path),
    }
    documents = texts_of(stands(orders, captured.synchpoint(), time.time_ns() // 10**6))
    event = event_of(trigger(20, "db2_sandbox", config=settings, offsets=documents))
    assert event["message"].startswith("0 changes, 1 signals are waiting")
    assert path.read_text(), "whoever acts on it consumes it"


@pytest.mark.sandbox
def test_trigger_says_that_a_table_is_new(captured: Captured) -> None:
    settings = {"selection": {"table_include": [f"{captured.schema}\\.ORDERS"]}}
    event = event_of(trigger(5, "db2_sandbox", config=settings))
    assert event["message"].startswith("0 changes, 1 tables to begin with are waiting")


@pytest.mark.sandbox
def test_trigger_fires_when_capture_passes_a_time(captured: Captured) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    event = event_of(trigger(20, "db2_sandbox", upto_time=soon.isoformat()))
    assert event["status"] == "come"
    assert datetime.now(UTC) >= soon


DEFERRED = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcChangeSensor

with DAG("waits"):
    Db2CdcChangeSensor(
        task_id="wait",
        config={{"pipeline": "waits", "target": "/t", "table_include_list": [r"{schema}\\.ORDERS"]}},
        db2_conn_id="db2_sandbox",
        deferrable={deferrable},
        upto_time={upto!r},
        poke_interval=0.2,
        timeout=20,
    )
"""


@pytest.mark.sandbox
@pytest.mark.parametrize("deferrable", [True, False], ids=["deferred", "poking"])
def test_sensor_waits_in_a_dag(captured: Captured, run_dag: RunDag, deferrable: bool) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    text = DEFERRED.format(schema=captured.schema, deferrable=deferrable, upto=soon.isoformat())
    assert run_dag("waits", text)[0] == "success"
    assert datetime.now(UTC) >= soon
