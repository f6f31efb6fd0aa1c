import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    DeltaTriggerTimetable,
)
from support.airflow_fixtures import RunDag
from support.captured_shop import Captured
from support.fake_spark import FakeSpark
from support.memory_offsets import MemoryOffsets

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.operators.commit import event_extra
from airflow_provider_db2cdc.operators.interval.schedule import interval_of, start_of_catchup
from airflow_provider_db2cdc.operators.interval.wait import passing_trigger
from airflow_provider_db2cdc.operators.plan import Db2CdcPlanOperator
from airflow_provider_db2cdc.operators.task_group import Db2CdcTaskGroup

pytestmark = pytest.mark.airflow

CONFIG = PipelineConfig(pipeline="p", target="/t", end_at="interval")
END = datetime(2026, 1, 2, 3, tzinfo=UTC)


def group(schedule: Any, **properties: Any) -> None:
    with DAG("d", schedule=schedule, start_date=END, max_active_runs=1):
        Db2CdcTaskGroup("sales", target="/lake/sales", **properties)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (None, "it has no schedule"),
        ("@continuous", "@continuous has no fixed intervals"),
        (Asset("s3://a"), "it is scheduled on assets"),
    ],
    ids=["none", "continuous", "asset"],
)
def test_dag_without_data_intervals_is_refused_when_it_is_parsed(schedule: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"end\.at=interval does not work in DAG d: {reason}\. Give the DAG"):
        group(schedule, end_at="interval")
    group(schedule)


def test_partitioned_dag_is_refused_when_it_is_parsed() -> None:
    """Airflow has its timetable since 3.2."""
    sdk = pytest.importorskip("airflow.sdk")
    if not hasattr(sdk, "CronPartitionTimetable"):
        pytest.skip("this Airflow has no partitions")
    with pytest.raises(ConfigurationError, match="its runs have partitions instead of data intervals"):
        group(sdk.CronPartitionTimetable("@daily", timezone="UTC"), end_at="interval")


CRON = CronTriggerTimetable("@daily", timezone="UTC")
WITH_INTERVALS = [
    "@daily", timedelta(hours=1), CRON, CronDataIntervalTimetable("@daily", timezone="UTC"),
    DeltaTriggerTimetable(timedelta(hours=1)), AssetOrTimeSchedule(timetable=CRON, assets=[Asset("s3://a")]),
]  # fmt: skip


@pytest.mark.parametrize("schedule", WITH_INTERVALS, ids=lambda schedule: type(schedule).__name__)
def test_dag_with_a_time_schedule_is_taken(schedule: Any) -> None:
    group(schedule, end_at="interval")


def test_catchup_begins_at_a_time_with_a_zone() -> None:
    assert start_of_catchup("2026-01-02T05:00:00+02:00") == END
    assert start_of_catchup(" ") is None
    for text in ("yes", "2026-01-02", "2026-01-02T03:00:00"):
        with pytest.raises(
            ConfigurationError, match=f"DB2CDC_CATCHUP_FROM is '{text}'. Give an ISO time with its zone"
        ):
            start_of_catchup(text)


def run_of(run_type: str, end: datetime | None = END) -> Any:
    start = None if end is None else end - timedelta(hours=1)
    return SimpleNamespace(run_type=run_type, run_id="r", data_interval_start=start, data_interval_end=end)


def test_only_scheduled_runs_end_at_their_interval() -> None:
    zone = END.astimezone(tz=None)
    expected = DataInterval("2026-01-02T03:00:00+00:00", "2026-01-02T02:00:00+00:00")
    assert interval_of(run_of("scheduled", zone), CONFIG) == expected
    for run_type in ("manual", "asset_triggered", "operator_triggered"):
        assert interval_of(run_of(run_type), CONFIG) is None
    assert interval_of(run_of("scheduled"), PipelineConfig(pipeline="p", target="/t")) is None


def test_scheduled_run_without_an_interval_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the run r has no data interval\. Give the DAG a time schedule"):
        interval_of(run_of("scheduled", None), CONFIG)


def test_asset_event_names_the_interval_of_its_run() -> None:
    announcement = Announcement("id", 1, 2, None, Lsn(bytes(16)), 3)
    interval = DataInterval("2026-01-02T03:00:00+00:00", "2026-01-02T02:00:00+00:00")
    times = {"interval_start": "2026-01-02T02:00:00+00:00", "interval_end": "2026-01-02T03:00:00+00:00"}
    assert event_extra(announcement, interval) == {**announcement.extra, **times}
    assert event_extra(announcement, None) == announcement.extra


def test_wait_knows_the_end_of_the_interval_and_the_clock_of_the_source() -> None:
    store, interval = MemoryOffsets(), DataInterval.of(END - timedelta(hours=1), END)
    _, arguments = passing_trigger("db2", CONFIG, store, interval, 5.0).serialize()
    assert (arguments["upto_time"], arguments["deadline"]) == (interval.end, None)
    assert arguments["offsets"] == {"summary": store.summary().to_json()}


@pytest.mark.parametrize(
    ("error", "kind"), [("CaptureStoppedError", AirflowException), ("ConfigurationError", AirflowFailException)]
)
def test_wait_that_failed_is_retried_if_that_can_help(error: str, kind: type[Exception]) -> None:
    plan = Db2CdcPlanOperator(task_id="plan", config=CONFIG)
    with pytest.raises(kind, match="stands still") as raised:
        plan.resume({}, {"status": "failed", "message": "capture stands still", "error": error})
    assert type(raised.value) is kind


DAG_FILE = """
from airflow.sdk import DAG, CronTriggerTimetable
from datetime import datetime, UTC
from airflow_provider_db2cdc import Db2CdcTaskGroup

hourly = CronTriggerTimetable("@hourly", timezone="UTC")
with DAG("{dag_id}", schedule=hourly, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    Db2CdcTaskGroup(
        "tick",
        pipeline="{dag_id}",
        target="/lake/{dag_id}",
        table_include_list="{schema}[.]ORDERS",
        end_at="interval",
        capture_stale_after_s={stale_s},
        db2_conn_id="db2_sandbox",
        spark_conn_id="spark_test",
        spark_submit={{"spark_binary": "{binary}", "jars": ""}},
        default_args={{"retries": 0}},
    )
"""


def dag_file(dag_id: str, captured: Captured, fake_spark: FakeSpark, stale_s: float = 900) -> str:
    return DAG_FILE.format(dag_id=dag_id, schema=captured.schema, binary=fake_spark.binary, stale_s=stale_s)


@pytest.mark.sandbox
def test_plan_waits_in_the_triggerer_until_capture_has_passed_the_interval(
    captured: Captured, run_dag: RunDag, fake_spark: FakeSpark, caplog: pytest.LogCaptureFixture
) -> None:
    """The interval ends in the future. Commits until then belong to it, and the next run has nothing to do."""
    orders, dag_id = captured.table("ORDERS"), "intervals"
    text, now = dag_file(dag_id, captured, fake_spark), datetime.now(UTC)
    assert run_dag(dag_id, text, interval=(now, now))[0] == "success", "the initial snapshot"
    captured.insert(orders)
    end = datetime.now(UTC) + timedelta(seconds=3)
    state, tasks = run_dag(dag_id, text, interval=(now, end))
    assert datetime.now(UTC) > end
    assert (state, {*tasks.values()}) == ("success", {"success"})
    assert "running trigger in line" in caplog.text
    spec = fake_spark.call()["spec"]
    assert spec["interval"] == {"start": now.isoformat(), "end": end.isoformat()}
    assert [(task["upto"], task["rows"]) for task in spec["tables"]] == [(spec["interval_end"], 1)]

    captured.insert(orders)
    assert run_dag(dag_id, text, interval=(now, end))[1]["tick.plan"] == "skipped"
    assert run_dag(dag_id, text)[1]["tick.plan"] == "skipped"
    later = datetime.now(UTC) - timedelta(milliseconds=1)
    assert run_dag(dag_id, text, interval=(end, later))[0] == "success"
    assert [task["rows"] for task in fake_spark.call()["spec"]["tables"]] == [1]


@pytest.mark.sandbox
def test_wait_ends_once_capture_stands_still(captured: Captured, run_dag: RunDag, fake_spark: FakeSpark) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    started = time.monotonic()
    state, tasks = run_dag("stale", dag_file("stale", captured, fake_spark, stale_s=0.01), interval=(end, end))
    assert (state, tasks["tick.plan"]) == ("failed", "failed")
    assert time.monotonic() - started < 60
