"""Backfill runs: which interval they have, what they repair, and what they report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    DeltaTriggerTimetable,
    MultipleCronTriggerTimetable,
    Variable,
)
from support.airflow_fixtures import Connect, Inside, RunDag
from support.captured_shop import Captured
from support.fake_spark import FakeSpark
from support.job_samples import job_result, job_spec, lsn, table_result

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement, in_event
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, RepairOrder, Replay
from airflow_provider_db2cdc.errors import ConfigurationError, TickFailedError
from airflow_provider_db2cdc.operators.apply import Db2CdcApplyOperator, has_retries
from airflow_provider_db2cdc.operators.repair.commit import repair_extra
from airflow_provider_db2cdc.operators.repair.interval import backfill_interval
from airflow_provider_db2cdc.operators.repair.plan import named_in

pytestmark = pytest.mark.airflow

END = datetime(2026, 3, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def run_of(begin: datetime | None, end: datetime | None) -> Any:
    return SimpleNamespace(run_id="backfill__1", data_interval_start=begin, data_interval_end=end)


def begin_of(schedule: Any, end: datetime = END, begin: datetime | None = None) -> datetime:
    """Return the begin of a backfill run's interval, whose data interval is empty unless a `begin` is given."""
    with DAG("d", schedule=schedule, start_date=END) as dag:
        pass
    interval = backfill_interval(run_of(begin or end, end), dag.timetable)
    assert interval.end == end.isoformat()
    return datetime.fromisoformat(interval.start)


BERLIN = CronTriggerTimetable("0 14 * * *", timezone="Europe/Berlin")
SCHEDULES = {
    "preset": ("@hourly", timedelta(hours=1)),
    "cron": ("*/10 * * * *", timedelta(minutes=10)),
    "summer time has begun": (BERLIN, timedelta(hours=23)),
    "delta": (DeltaTriggerTimetable(timedelta(hours=3)), timedelta(hours=3)),
    "several": (MultipleCronTriggerTimetable("0 12 * * *", "30 10 * * *", timezone="UTC"), timedelta(minutes=90)),
    "asset or time": (AssetOrTimeSchedule(timetable=BERLIN, assets=[Asset("s3://a")]), timedelta(hours=23)),
}


@pytest.mark.parametrize(("schedule", "duration"), SCHEDULES.values(), ids=SCHEDULES)
def test_an_empty_data_interval_begins_at_the_previous_run(schedule: Any, duration: timedelta) -> None:
    assert END - begin_of(schedule) == duration


@pytest.mark.parametrize("schedule", ["@daily", CronDataIntervalTimetable("@daily", timezone="UTC")])
def test_a_data_interval_with_a_duration_is_taken_as_it_is(schedule: Any) -> None:
    assert begin_of(schedule, begin=END - timedelta(minutes=7)) == END - timedelta(minutes=7)


def test_a_run_without_an_interval_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"run backfill__1 has no data interval\. Give the DAG a schedule"):
        backfill_interval(run_of(None, None), None)
    with pytest.raises(ConfigurationError, match=r"is empty, and Mine does not say where it begins\. Give the DAG"):
        backfill_interval(run_of(END, END), type("Mine", (), {})())


HOURLY = """
from datetime import UTC, datetime
from airflow.sdk import DAG, task

with DAG("hourly", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):

    @task
    def nothing():
        pass

    nothing()
"""


def test_the_runs_of_airflows_backfill_have_intervals_without_a_hole(run_dag: RunDag) -> None:
    """Airflow makes the runs, as its UI does. Their data intervals have no duration."""
    from airflow.models import DagRun
    from airflow.models.backfill import ReprocessBehavior, _create_backfill
    from airflow.utils.session import create_session

    run_dag("hourly", HOURLY)
    begin = datetime(2026, 1, 5, tzinfo=UTC)
    created = _create_backfill(
        dag_id="hourly", from_date=begin, to_date=begin + timedelta(hours=4), max_active_runs=2, reverse=True,
        dag_run_conf={"tables": ["SHOP.ITEMS"]}, triggering_user_name="ann", reprocess_behavior=ReprocessBehavior.NONE,
    )  # fmt: skip
    with create_session() as session:
        runs = session.query(DagRun).filter(DagRun.backfill_id == created.id).order_by(DagRun.logical_date).all()
    assert {(run.run_type, str(run.conf)) for run in runs} == {("backfill", "{'tables': ['SHOP.ITEMS']}")}
    assert all(run.data_interval_start == run.data_interval_end for run in runs)
    with DAG("hourly", schedule="@hourly", start_date=begin) as dag:
        pass
    intervals = [backfill_interval(run, dag.timetable) for run in runs]
    assert [interval.start for interval in intervals[1:]] == [interval.end for interval in intervals[:-1]]
    assert (intervals[0].end, intervals[-1].end) == (begin.isoformat(), (begin + timedelta(hours=4)).isoformat())


def test_tables_are_named_by_a_list_or_by_lines() -> None:
    assert [named_in(given) for given in (None, [], [" S.A "], "S.A\n\nS.B\n")] == [[], [], ["S.A"], ["S.A", "S.B"]]
    with pytest.raises(ConfigurationError, match="the run's tables are not a list of names"):
        named_in([{"S": "A"}])


DAG_FILE = """
from airflow.sdk import DAG, Param
from datetime import datetime, UTC
from airflow_provider_db2cdc import Db2CdcTaskGroup

with DAG("{dag_id}", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), params={params}):
    Db2CdcTaskGroup(
        "tick",
        pipeline="{dag_id}",
        target="/lake/{dag_id}",
        table_include_list="{schema}[.].*",
        db2_conn_id="db2_sandbox",
        spark_conn_id="spark_test",
        spark_submit={{"spark_binary": "{binary}", "jars": ""}},
        default_args={{"retries": 0}},
    )
"""


class Backfills:
    """A DAG whose runs are ticks or backfills. Spark is a script that says what it has found."""

    def __init__(self, captured: Captured, run_dag: RunDag, inside: Inside, fake_spark: FakeSpark) -> None:
        self.captured, self.inside, self.spark, self._run_dag = captured, inside, fake_spark, run_dag
        self.dag_id, self.params = "", "{}"
        self.now = datetime.now(UTC)

    def tick(self) -> None:
        """Run a tick."""
        assert self._run(None, None)[0] == "success"

    def run(self, conf: dict[str, Any] | None = None, begin: datetime | None = None) -> tuple[str, dict[str, str]]:
        """Run a backfill of a minute, by default of the last one. Return its state, and that of each task."""
        begin = begin or self.now - timedelta(minutes=1)
        return self._run(conf, (begin, begin + timedelta(minutes=1)))

    def offsets(self) -> list[str | None]:
        """Return the texts of the offsets and of the summary."""
        keys = [f"db2cdc.{self.dag_id}~{document}" for document in ("offsets", "summary")]
        return self.inside(lambda: [Variable.get(key, default=None) for key in keys])

    def events(self, table: str = "ORDERS") -> list[dict[str, Any]]:
        """Return the extras of a table's asset events."""
        from airflow.models.asset import AssetEvent
        from airflow.utils.session import create_session

        with create_session() as session:
            query = session.query(AssetEvent).filter(AssetEvent.source_dag_id == self.dag_id)
            found = query.order_by(AssetEvent.id).all()
            return [event.extra for event in found if event.asset.uri.endswith(f"/SHOP/{table}")]

    def report(self) -> Any:
        """Return what the last run's commit returned."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            query = session.query(XComModel).filter(XComModel.dag_id == self.dag_id, XComModel.key == "return_value")
            return [xcom.value for xcom in query.order_by(XComModel.timestamp) if xcom.task_id == "tick.commit"][-1]

    def _run(self, conf: Any, interval: Any) -> tuple[str, dict[str, str]]:
        values = {"schema": self.captured.schema, "binary": str(self.spark.binary), "params": self.params}
        text = DAG_FILE.format(dag_id=self.dag_id, **values)
        state, tasks = self._run_dag(self.dag_id, text, conf, interval, "backfill")
        return state, {task.removeprefix("tick."): state for task, state in tasks.items()}


@pytest.fixture
def backfills(captured: Captured, run_dag: RunDag, inside: Inside, fake_spark: FakeSpark) -> Callable[[str], Backfills]:
    """Return a new pipeline that has done its first tick."""

    def begin(dag_id: str) -> Backfills:
        runs = Backfills(captured, run_dag, inside, fake_spark)
        runs.dag_id = dag_id
        runs.tick()
        captured.insert(captured.table("ORDERS"))
        return runs

    return begin


@pytest.mark.sandbox
def test_a_backfill_repairs_its_interval_and_moves_no_offset(
    backfills: Callable[[str], Backfills], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = backfills("backfills")
    before = runs.offsets()
    announced = len(runs.events())
    state, tasks = runs.run()
    assert (state, {*tasks.values()}) == ("success", {"success"})
    spec = runs.spark.call()["spec"]
    begin, end = runs.now - timedelta(minutes=1), runs.now
    assert spec["repair"]["repair"]["begin_ms"] == int(begin.timestamp() * 1000)
    assert spec["repair"]["repair"]["end_ms"] == int(end.timestamp() * 1000)
    assert spec["run_id"].startswith("backfills/")
    report = runs.report()
    assert report["tables"]["SHOP.ORDERS"]["rows_corrected"] == 0
    assert len(runs.events()) == announced, "nothing has changed"

    found = {"events_added": 2, "rows_corrected": 1, "events_only_in_log": 3, "comparable_since_ms": 1_767_400_000_000}
    monkeypatch.setenv("FAKE_FOUND", json.dumps(found))
    assert runs.run({"tables": ["SHOP.ORDERS"]})[0] == "success"
    assert runs.offsets() == before
    assert runs.report()["tables"] == {
        "SHOP.ORDERS": {
            "status": "applied", "commits": 1, "events": 2, "keys": 2, "events_added": 2, "rows_corrected": 1,
            "events_only_in_log": 3, "events_doubled": 0, "comparable_since": "2026-01-03T00:26:40+00:00", "note": "",
        }
    }  # fmt: skip
    last, late = runs.events()[-2:]
    times = DataInterval.of(begin, end)
    assert (late["repair"], late["events_added"], late["rows_corrected"]) == ("backfill", 2, 1)
    assert late["interval_end"][:23] == times.end[:23]
    ends = (last["to_batch"], last["to_lsn"], last["log_id"])
    assert (late["from_batch"], late["from_lsn"], late["log_id"]) == ends
    assert (late["to_batch"], late["to_lsn"], late["rows"]) == (last["to_batch"], last["to_lsn"], 0)
    assert "SHOP.ORDERS: 3 events are only in the change log" in "".join(capfd.readouterr())


@pytest.mark.sandbox
def test_a_backfill_that_has_nothing_to_compare_is_skipped(backfills: Callable[[str], Backfills]) -> None:
    runs = backfills("future")
    state, tasks = runs.run(begin=runs.now + timedelta(hours=1))
    assert (state, {*tasks.values()}) == ("success", {"skipped"})


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"tables": ["SHOP.TYPO"]}, "SHOP.TYPO is not a captured table of this pipeline"),
        ({"tables": "SHOP.TYPO"}, "SHOP.TYPO is not a captured table of this pipeline"),
        ({"signals": [{"type": "pause-snapshot"}]}, "a backfill carries no signals"),
    ],
)
def test_a_backfill_with_a_mistake_fails_before_spark(
    captured: Captured, run_dag: RunDag, inside: Inside, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str],
    conf: dict[str, Any], message: str,
) -> None:  # fmt: skip
    runs = Backfills(captured, run_dag, inside, fake_spark)
    runs.dag_id = "mistaken"
    state, tasks = runs.run(conf)
    assert (state, tasks["plan"], fake_spark.called) == ("failed", "failed", False)
    assert message in "".join(capfd.readouterr())


@pytest.mark.sandbox
def test_a_failed_table_fails_the_run_after_the_others_are_reported(
    backfills: Callable[[str], Backfills], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = backfills("half")
    before = runs.offsets()
    monkeypatch.setenv("FAKE_FAIL", "ITEMS")
    monkeypatch.setenv("FAKE_FOUND", json.dumps({"rows_corrected": 1}))
    state, tasks = runs.run()
    assert (state, tasks["apply"], tasks["commit"], tasks["outcome"]) == ("failed", "success", "success", "failed")
    assert runs.events()[-1]["rows_corrected"] == 1
    assert runs.offsets() == before
    assert "1 of 2 tables were not repaired" in "".join(capfd.readouterr())


@pytest.mark.sandbox
def test_the_forms_tables_are_those_of_the_backfill(backfills: Callable[[str], Backfills]) -> None:
    runs = backfills("formed")
    runs.params = '{"tables": Param(["SHOP.ITEMS"], type="array")}'
    assert runs.run()[0] == "success"
    assert [*runs.report()["tables"]] == ["SHOP.ITEMS"]


def extra_of(last: Announcement | None, **found: Any) -> dict[str, Any]:
    """Return the extra of an asset event of a table in which this was found. `last` is the newest range of Airflow."""
    result = job_result(table_result("ORDERS", repair=Findings(**found)), repair=Backfill(0, 1_000))
    return repair_extra(result, result.tables[0], last)


def test_the_event_of_a_repair_has_an_empty_range_after_the_last_one() -> None:
    last = Announcement("log", 3, 7, lsn(30), lsn(70), 12, 1_700_000_000_000, is_confirmed=True)
    extra = extra_of(last, events_added=2, rows_corrected=1)
    assert extra == {
        "repair": "backfill", "interval_start": "1970-01-01T00:00:00+00:00",
        "interval_end": "1970-01-01T00:00:01+00:00", "events_added": 2, "rows_corrected": 1, "rows": 0,
        "from_batch": 7, "to_batch": 7, "from_lsn": str(lsn(70)), "to_lsn": str(lsn(70)),
        "commit_ts_ms": 1_700_000_000_000, "log_id": "log",
    }  # fmt: skip
    assert in_event(extra) == replace(last, from_batch=7, from_lsn=lsn(70), rows=0), "the next range begins there"
    assert in_event(extra_of(None, rows_corrected=1)) is None


def repair_task(connect: Connect, fake_spark: FakeSpark) -> Db2CdcApplyOperator:
    connect(password="pw")
    text = replace(job_spec("ORDERS", "ITEMS"), repair=RepairOrder(Replay())).to_json()
    spark: dict[str, Any] = {"spark_conn_id": "spark_test", "spark_binary": str(fake_spark.binary), "jars": ""}
    return Db2CdcApplyOperator(task_id="apply", spec=text, db2_conn_id="db2_test", **spark)


def trial(number: int) -> Any:
    return {"ti": SimpleNamespace(try_number=number, max_tries=2, xcom_push=lambda **pushed: None)}


def test_a_repair_is_tried_again_while_a_table_fails(
    connect: Connect, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [has_retries(trial(number)) for number in (1, 2, 3)] == [True, True, False]
    monkeypatch.setenv("FAKE_FAIL", "ITEMS")
    with pytest.raises(TickFailedError, match=r"SALES\.ITEMS: the target cannot be written"):
        repair_task(connect, fake_spark).execute(trial(2))
    assert '"failed"' in repair_task(connect, fake_spark).execute(trial(3))


def test_a_repair_that_met_another_run_is_tried_again(
    connect: Connect, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DEATH", "ConcurrentRunError: another run has planned batch 7. Run it again.")
    with pytest.raises(AirflowException) as raised:
        repair_task(connect, fake_spark).execute(trial(1))
    assert type(raised.value) is AirflowException
