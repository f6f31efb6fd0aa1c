import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Variable
from support.airflow_fixtures import Inside, RunDag
from support.job_samples import job_result, lsn, table_result
from support.variable_offsets import VariableOffsets

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Status
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.operators.asset import newest_first, recent_announcements, table_asset
from airflow_provider_db2cdc.operators.outcome import Db2CdcOutcomeOperator
from airflow_provider_db2cdc.operators.summary import describe_snapshot, describe_table

pytestmark = pytest.mark.airflow

ORDERS = TableId("SALES", "ORDERS")

DAG = """
from airflow.sdk import DAG
from airflow_provider_db2cdc import Db2CdcCommitOperator, Db2CdcOutcomeOperator, table_asset
from airflow_provider_db2cdc.operators.asset import pipeline_alias

with DAG("{dag_id}"):
    Db2CdcCommitOperator(
        task_id="commit",
        result={result!r},
        config={config!r},
        fail_for_tables={fail},
        outlets=[pipeline_alias("{dag_id}"), table_asset("{dag_id}", "SALES.DECLARED")],
    )
"""


OUTCOME = """
    Db2CdcOutcomeOperator(task_id="outcome", result={result!r}, unkept=commit.output)
"""


Committed = tuple[str, dict[str, Lsn], dict[str, Any]]
"""The state of the run, the offsets by table, and the extra of each asset event by URI."""
Commit = Callable[..., Committed]


@pytest.fixture
def commit(run_dag: RunDag, inside: Inside) -> Commit:
    """Run the commit task on these results; return the run's state, the offsets and the asset events."""

    def run(
        dag_id: str, *tables: TableResult, fail: bool = True, config: dict[str, Any] | None = None, **more: Any
    ) -> Committed:
        result = job_result(*tables, pipeline=dag_id, **more).to_json()
        state, _ = run_dag(dag_id, DAG.format(dag_id=dag_id, result=result, fail=fail, config=config))
        names = [table.table.name for table in tables]
        kept = inside(lambda: VariableOffsets(dag_id).read().stored)
        offsets = {name: offset.lsn for name in names if (offset := kept.get(TableId("SALES", name))) is not None}
        return state, offsets, events(dag_id)

    return run


def events(dag_id: str) -> dict[str, Any]:
    """Return the asset events of a DAG: its extra by URI."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter(AssetEvent.source_dag_id == dag_id).all()
        return {event.asset.uri: event.extra for event in found}


def test_offsets_move_and_each_changed_table_has_an_event(commit: Commit) -> None:
    changed = table_result("ORDERS", creates=2, updates=1, upto=9)
    quiet = table_result("QUIET", upto=9)
    state, offsets, seen = commit("commit_moves", changed, quiet)
    assert state == "success"
    assert offsets == {"ORDERS": lsn(9), "QUIET": lsn(9)}
    assert seen["db2cdc://commit_moves/SALES/ORDERS"] == {
        "from_batch": 0,
        "to_batch": 1,
        "from_lsn": str(lsn(1)),
        "to_lsn": str(lsn(9)),
        "rows": 3,
        "commit_ts_ms": 1_700_000_000_000,
        "log_id": "log",
    }
    assert "db2cdc://commit_moves/SALES/QUIET" not in seen


def test_declared_outlet_of_a_table_gets_the_extra(commit: Commit) -> None:
    _, _, seen = commit("commit_declared", table_result("DECLARED", deletes=4))
    assert seen["db2cdc://commit_declared/SALES/DECLARED"]["rows"] == 4


def ranges(dag_id: str) -> list[tuple[int, int, int]]:
    """Return the batches and the number of rows of each event of the orders."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter(AssetEvent.source_dag_id == dag_id).order_by(AssetEvent.id).all()
        extras = [event.extra for event in found if event.asset.uri.endswith("/SALES/ORDERS")]
    return [(extra["from_batch"], extra["to_batch"], extra["rows"]) for extra in extras]


def test_events_leave_no_hole_where_a_run_fails_after_its_offsets_moved(commit: Commit) -> None:
    failed = table_result("BROKEN", "failed", lsn=None, batch=None, after=None, error="no disk")
    for batch, tables in enumerate(([], [failed], [failed], []), start=1):
        changed = table_result("ORDERS", batch=batch, upto=batch, creates=batch)
        state, offsets, _ = commit("commit_hole", changed, *tables, planned_at_ms=batch)
        assert (state, offsets["ORDERS"]) == ("failed" if tables else "success", lsn(batch))
    assert ranges("commit_hole") == [(0, 1, 1), (1, 4, 9)]


def test_newest_events_of_several_tables_are_found_in_one_call(commit: Commit, inside: Inside) -> None:
    for batch in (1, 2):
        tables = [table_result(name, batch=batch, upto=batch, creates=1) for name in ("ORDERS", "ITEMS")]
        commit("commit_recent", *tables, planned_at_ms=batch)
    found = inside(lambda: recent_announcements("commit_recent", 2))
    newest = {(str(table), log): (event.from_batch, event.to_batch) for (table, log), event in found.items()}
    assert newest == {("SALES.ORDERS", "log"): (1, 2), ("SALES.ITEMS", "log"): (1, 2)}
    assert inside(lambda: recent_announcements("commit_nothing", 2)) == {}


def test_airflow_3_1_gives_all_events_the_oldest_first() -> None:
    events = ["oldest", "older", "newest"]
    assert newest_first(events, 2) == ["newest", "older"]
    assert newest_first(events, 9) == ["newest", "older", "oldest"]
    assert newest_first([], 9) == []


def test_a_run_that_is_marked_failed_during_commit_leaves_no_hole(commit: Commit) -> None:
    def mark_failed(reached: object) -> None:
        raise AirflowFailException("marked failed")

    changed = [table_result("ORDERS", batch=batch, upto=batch, creates=batch) for batch in (1, 2)]
    with failpoint_action("commit_offsets", after=mark_failed):
        state, offsets, seen = commit("commit_marked", changed[0], planned_at_ms=1)
    assert (state, offsets, seen) == ("failed", {"ORDERS": lsn(1)}, {})
    assert commit("commit_marked", changed[1], planned_at_ms=2)[0] == "success"
    assert ranges("commit_marked") == [(0, 2, 3)]


def test_a_cleared_commit_emits_what_was_lost_and_nothing_twice(commit: Commit) -> None:
    changed = table_result("ORDERS", creates=2)
    failed = table_result("BROKEN", "failed", lsn=None, batch=None, after=None, error="no disk")
    for tables in ([failed], [], []):
        commit("commit_cleared", changed, *tables, planned_at_ms=1)
    assert ranges("commit_cleared") == [(0, 1, 2)]


def test_lag_is_measured_by_the_sources_clock_in_any_zone(commit: Commit, capfd: pytest.CaptureFixture[str]) -> None:
    hour_ms, now_ms = 3_600_000, time.time_ns() // 1_000_000
    east, west = 2 * hour_ms, -5 * hour_ms
    for name, ahead_ms in (("commit_east", east), ("commit_west", west)):
        table = table_result("ORDERS", commit_ts_ms=now_ms + ahead_ms - hour_ms)
        commit(name, table, source_ahead_ms=ahead_ms)
        [lag] = re.findall(r"SALES.ORDERS applied .* lag=([\d.]+)s", capfd.readouterr().out)
        assert 3600 <= float(lag) < 3700


def test_failed_table_fails_the_task_after_the_others_offsets_are_kept(commit: Commit) -> None:
    failed = table_result("BROKEN", "failed", lsn=None, batch=None, after=None, error="no disk")
    state, offsets, seen = commit("commit_fails", table_result("ORDERS", creates=1), failed)
    assert state == "failed"
    assert offsets == {"ORDERS": lsn(9)}
    assert seen == {}, "Airflow emits the events of failed tasks: the outcome task is no longer needed"


def test_events_of_other_tables_survive_a_failed_table_of_another_task(commit: Commit) -> None:
    failed = table_result("BROKEN", "failed", lsn=None, batch=None, after=None, error="no disk")
    state, _, seen = commit("commit_reports", table_result("ORDERS", creates=1), failed, fail=False)
    assert state == "success"
    assert "db2cdc://commit_reports/SALES/ORDERS" in seen


def snapshot(status: Status = "running", *parts: TableSnapshotProgress) -> SnapshotProgress:
    return SnapshotProgress(
        "77", "incremental", status, parts or (TableSnapshotProgress(ORDERS, "reading", 1, 4, 10),), 5
    )


def test_signals_and_snapshots_become_the_backlog(commit: Commit, inside: Inside) -> None:
    outcomes = [SignalOutcome("77", "airflow", "accepted"), SignalOutcome("1", "source", "done")]
    state, _, _ = commit("commit_signals", table_result("ORDERS"), signals=outcomes, snapshots=[snapshot()])
    assert state == "success"
    kept = inside(lambda: VariableOffsets("commit_signals").summary())
    assert kept == PipelineSummary((snapshot(),), tuple(outcomes), ("1 #",), tables=(ORDERS,), newest_batch=1)


def test_channels_get_the_outcomes_of_their_signals(commit: Commit, tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_text('{"id": "1", "type": "pause-snapshot"}\n{"id": "2", "type": "pause-snapshot"}\n')
    config = {"pipeline": "p", "target": "/t", "signal.enabled.channels": "file", "signal.file": str(path)}
    asked = Signal("1", "pause-snapshot", "{}", "file").asked
    outcomes = [SignalOutcome("1", "file", "refused", "why", asked), SignalOutcome("2", "airflow", "done")]
    assert commit("commit_tells", table_result("ORDERS"), config=config, signals=outcomes)[0] == "success"
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["2"]
    told = path.with_name("signals.outcomes").read_text()
    assert json.loads(told) == {"id": "1", "status": "refused", "reason": "why"}


def test_signals_are_not_consumed_when_what_became_of_them_cannot_be_kept(
    commit: Commit, inside: Inside, tmp_path: Path
) -> None:
    path = tmp_path / "signals"
    path.write_text('{"id": "1", "type": "pause-snapshot"}\n')
    config = {"pipeline": "p", "target": "/t", "signal.enabled.channels": "file", "signal.file": str(path)}
    inside(lambda: Variable.set("db2cdc.commit_keeps~summary", "{"))
    outcomes = [SignalOutcome("1", "file", "done", "", Signal("1", "pause-snapshot", "{}", "file").asked)]
    assert commit("commit_keeps", table_result("ORDERS"), config=config, signals=outcomes)[0] == "failed"
    assert '"1"' in path.read_text()


def test_an_offset_that_cannot_be_kept_costs_the_other_tables_no_event(
    run_dag: RunDag, inside: Inside, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their offsets have moved: no later tick would report them. The broken table is reported once its offset moves."""
    inside(lambda: VariableOffsets("commit_broken").damage(TableId("SALES", "BROKEN")))
    changed = [table_result("ORDERS", creates=1), table_result("BROKEN", creates=2)]
    result = job_result(*changed, pipeline="commit_broken").to_json()
    both = DAG.replace("    Db2CdcCommitOperator(", "    commit = Db2CdcCommitOperator(") + OUTCOME
    text = both.format(dag_id="commit_broken", result=result, fail=False, config=None)
    state, tasks = run_dag("commit_broken", text)
    assert (state, tasks) == ("failed", {"commit": "success", "outcome": "failed"})
    assert {uri for uri, extra in events("commit_broken").items() if extra} == {"db2cdc://commit_broken/SALES/ORDERS"}
    said = capfd.readouterr().out
    assert said.count("were not kept: ") == 2, "commit logs it, and outcome fails with it"


def test_an_offset_that_cannot_be_stored_fails_the_commit(commit: Commit, inside: Inside) -> None:
    ahead = Offset(TableId("SALES", "AHEAD"), lsn(99), 9)
    inside(lambda: VariableOffsets("commit_ahead").put(ahead))
    state, offsets, _ = commit("commit_ahead", table_result("ORDERS"), table_result("AHEAD"))
    assert (state, offsets) == ("failed", {"ORDERS": lsn(9), "AHEAD": lsn(99)})


def test_unreadable_file_of_signals_costs_neither_offset_nor_event(commit: Commit, tmp_path: Path) -> None:
    config = {"pipeline": "p", "target": "/t", "signal.enabled.channels": "file", "signal.file": str(tmp_path)}
    outcomes = [SignalOutcome("1", "file", "done")]
    changed = table_result("ORDERS", creates=1)
    state, offsets, seen = commit("commit_unreadable", changed, config=config, signals=outcomes)
    assert (state, offsets) == ("success", {"ORDERS": lsn(9)})
    assert "db2cdc://commit_unreadable/SALES/ORDERS" in seen


def test_refused_signals_are_logged_once_by_the_task(commit: Commit, capfd: pytest.CaptureFixture[str]) -> None:
    signals = [SignalOutcome("1", "source", "refused", "no such table"), SignalOutcome("2", "kafka", "accepted")]
    line = "signal 1 of channel source refused: no such table"
    for count in (1, 0):
        assert commit("commit_refused", table_result("ORDERS"), signals=signals)[0] == "success"
        assert capfd.readouterr().out.count(line) == count, "a table brings it again"


@pytest.mark.parametrize(("channels", "count"), [("delta,airflow", 1), ("delta,log", 0)])
def test_notifications_are_an_event_where_airflow_is_one_of_their_channels(
    commit: Commit, inside: Inside, channels: str, count: int
) -> None:
    dag_id = f"commit_notifies_{count}"
    config = {"pipeline": dag_id, "target": "/t", "notification.enabled.channels": channels}
    told = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, time.time_ns() // 1_000_000)
    state, _, seen = commit(dag_id, table_result("ORDERS"), config=config, notifications=[told], reported_seq=3)
    assert state == "success"
    assert inside(lambda: VariableOffsets(dag_id).summary()).notified_upto == 3
    events_of_them = [extra for uri, extra in seen.items() if uri == f"db2cdc://{dag_id}/notifications"]
    assert events_of_them == [{"notifications": [to_data(told)]}] * count


def test_notifications_whose_events_are_lost_are_sent_by_the_next_tick(commit: Commit, inside: Inside) -> None:
    config = {"pipeline": "p", "target": "/t", "notification.enabled.channels": "airflow"}
    told = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, time.time_ns() // 1_000_000)
    failed = table_result("BROKEN", "failed", lsn=None, batch=None, after=None, error="no disk")
    of_now = {"config": config, "notifications": [told], "reported_seq": 3}
    state, _, seen = commit("commit_dropped", failed, **of_now)
    assert (state, seen) == ("failed", {})
    assert inside(lambda: VariableOffsets("commit_dropped").summary()).notified_upto == 0
    old = replace(told, timestamp=told.timestamp - 25 * 3_600_000)
    assert commit("commit_dropped", failed, **{**of_now, "notifications": [old, told]})[0] == "failed"
    assert inside(lambda: VariableOffsets("commit_dropped").summary()).notified_upto == 3, "it is given up"


class Unreachable:
    """A notifier that cannot send."""

    def __init__(self, config: object) -> None:
        pass

    def send(self, notifications: object) -> None:
        raise OSError("no route to the pager")


def test_unsent_notifications_are_sent_by_the_next_tick_for_a_day(commit: Commit, inside: Inside) -> None:
    config = {"pipeline": "p", "target": "/t", "notification.enabled.channels": f"{__name__}:Unreachable"}
    told = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, time.time_ns() // 1_000_000)
    old = replace(told, timestamp=told.timestamp - 25 * 3_600_000)
    state, offsets, seen = commit(
        "commit_untold", table_result("ORDERS"), config=config, notifications=[told], reported_seq=3
    )
    assert (state, offsets) == ("success", {"ORDERS": lsn(9)})
    assert len(seen) == 1, "whoever waits for the table's event gets it"
    kept = inside(lambda: VariableOffsets("commit_untold").summary())
    assert (kept.reported_seq, kept.notified_upto) == (3, 0), "what became of signals was told"
    of_old = {"config": config, "notifications": [old, told], "reported_seq": 4}
    assert commit("commit_untold", table_result("ORDERS"), **of_old)[0] == "success"
    assert inside(lambda: VariableOffsets("commit_untold").summary()).notified_upto == 4, "it is given up"
    config["notification.enabled.channels"] = "log"
    assert (
        commit("commit_untold", table_result("ORDERS"), config=config, notifications=[told], reported_seq=5)[0]
        == "success"
    )
    assert inside(lambda: VariableOffsets("commit_untold").summary()).notified_upto == 5


def outcome(result: JobResult) -> None:
    Db2CdcOutcomeOperator(task_id="outcome", result=result.to_json(), unkept=None).execute({})


def test_outcome_tells_failed_tables_and_refused_signals_together() -> None:
    failed = table_result("BROKEN", "failed", error="no disk")
    signals = [SignalOutcome("77", "airflow", "refused", "no such table")]
    with pytest.raises(AirflowFailException, match=r"(?s)BROKEN: no disk.*77 refused: no such table"):
        outcome(job_result(failed, signals=signals))


@pytest.mark.parametrize("status", ["refused", "failed"])
def test_outcome_fails_for_what_airflow_asked_and_did_not_get(status: Literal["refused", "failed"]) -> None:
    with pytest.raises(AirflowFailException, match=f"77 {status}: why"):
        outcome(job_result(signals=[SignalOutcome("77", "airflow", status, "why")]))


def test_the_outcome_of_other_channels_and_open_requests_is_green() -> None:
    signals = [SignalOutcome("1", "file", "refused", "why"), SignalOutcome("2", "airflow", "accepted")]
    outcome(job_result(table_result("ORDERS"), signals=signals))


def test_outcome_fails_for_offsets_that_were_not_kept() -> None:
    result = job_result(table_result("ORDERS")).to_json()
    with pytest.raises(AirflowFailException, match=r"SALES\.BROKEN cannot be read"):
        Db2CdcOutcomeOperator(task_id="outcome", result=result, unkept="SALES.BROKEN cannot be read").execute({})


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (snapshot(), "snapshot 77 (incremental) running: 1 of 4 chunks, 10 rows; SALES.ORDERS reading 1 of 4"),
        (
            snapshot("paused", TableSnapshotProgress(ORDERS, "waiting", 0, None, 0)),
            "snapshot 77 (incremental) paused: 0 of ? chunks, 0 rows; SALES.ORDERS paused 0 of ?",
        ),
        (
            snapshot(
                "paused",
                TableSnapshotProgress(ORDERS, "completed", 4, 4, 40),
                TableSnapshotProgress(TableId("SALES", "ITEMS"), "failed", 1, 2, 3, "no disk"),
            ),
            "snapshot 77 (incremental) paused: 2 of 2 tables, 5 of 6 chunks, 43 rows; "
            "SALES.ORDERS completed 4 of 4, SALES.ITEMS failed 1 of 2 (no disk)",
        ),
    ],
    ids=["counted", "not counted", "partly over"],
)
def test_summary_tells_how_far_a_snapshot_is(progress: SnapshotProgress, line: str) -> None:
    assert describe_snapshot(progress) == line


def test_writers_and_schedules_use_the_same_asset_of_a_table() -> None:
    name = 'A.b#1 "x"'
    table = table_result(name).table
    asset = table_asset("p", table)
    assert asset == table_asset("p", name_of(table))
    assert asset.uri == "db2cdc://p/SALES/A.b%231%20%22x%22"
    with pytest.raises(ConfigurationError, match="quote a name that holds a dot"):
        table_asset("p", "DB.SALES.A")


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            table_result("T", creates=1, updates=2, deletes=3, reads=4, rows=5),
            f"table=SALES.T applied +1 ~2 -3 r4 rows=5 lsn={lsn(9)} lag=1.5s",
        ),
        (
            table_result("T", "failed", lsn=None, commit_ts_ms=None, error="no disk"),
            "table=SALES.T failed +0 ~0 -0 r0 lsn=none error: no disk",
        ),
    ],
    ids=["applied", "failed"],
)
def test_summary_tells_counts_position_and_lag(table: TableResult, line: str) -> None:
    assert describe_table(table, 1_700_000_001_500) == line


def test_notification_channel_that_is_not_there_costs_no_table_its_event(commit: Commit) -> None:
    config = {"pipeline": "p", "target": "/t", "notification.enabled.channels": "module_of_another_worker:Pager"}
    told = Notification("77", "Incremental Snapshot", "STARTED", {"connector_name": "db2"}, 5)
    changed = table_result("ORDERS", creates=1)
    state, offsets, seen = commit("commit_gone", changed, config=config, notifications=[told], reported_seq=3)
    assert (state, offsets) == ("success", {"ORDERS": lsn(9)}), "it has moved: no later tick counts these changes"
    assert "db2cdc://commit_gone/SALES/ORDERS" in seen
