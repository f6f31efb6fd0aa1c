"""Plans of backfills and replays: which commits they compare, of which tables, and that they store nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.control_tables import ControlTables, lsn
from support.no_offsets import NoOffsets
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, RepairOrder, Replay
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError, TickFailedError
from airflow_provider_db2cdc.source.planning.plan import IdleTick
from airflow_provider_db2cdc.source.planning.repair import NOT_BEGUN, RepairRequest, plan_repair

pytestmark = pytest.mark.sandbox

NOW_MS = 1_767_400_000_000
END = datetime(2026, 1, 2, 3, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
INTERVAL = DataInterval.of(END - 2 * MINUTE, END)
END_MS = int(END.timestamp() * 1000)


@dataclass
class Kept(NoOffsets):
    """Offsets that only answer. One in `damaged` cannot be read."""

    offsets: dict[TableId, Offset]
    damaged: set[TableId] = field(default_factory=set)

    def get(self, table: TableId) -> Offset | None:
        """Return the table's offset."""
        if table in self.damaged:
            raise OffsetError("the offset cannot be read")
        return self.offsets.get(table)

    def summary(self) -> PipelineSummary:
        """Return the summary of a pipeline that has run."""
        return PipelineSummary(reported_seq=7, planned_at_ms=NOW_MS + 5, newest_batch=4)


class RepairPlanner:
    """Plans repairs of A and B, which stand at 40. A has the commits 10 to 50, one a minute. 30 is at END."""

    def __init__(self, source: CountingSource, config: PipelineConfig, control: ControlTables) -> None:
        self.source, self.config, self.control = source, config, control
        for name in ("A", "B"):
            control.add(name)
        for minute, commit in enumerate(range(10, 60, 10)):
            control.capture("A", commit)
            control.unit(commit, f"{END + (minute - 2) * MINUTE:%Y-%m-%d %H:%M:%S.%f}")
        self.kept = Kept({table: Offset(table, lsn(40), 3, committed_lsn=lsn(40)) for table in control.registered})

    def change(self, name: str, **changes: Any) -> None:
        """Change fields of a table's offset."""
        table = self.control.table(name)
        self.kept.offsets[table] = replace(self.kept.offsets[table], **changes)

    def plan(self, interval: DataInterval | None = INTERVAL, **wanted: Any) -> JobSpec | IdleTick:
        """Return the plan of a repair."""
        return plan_repair(self.source, self.config, self.kept, RepairRequest("run-1", NOW_MS, interval, **wanted))

    def spec(self, interval: DataInterval | None = INTERVAL, **wanted: Any) -> JobSpec:
        """Return the plan of a repair, which has work."""
        planned = self.plan(interval, **wanted)
        assert isinstance(planned, JobSpec), planned
        return planned

    def reason(self, interval: DataInterval) -> str:
        """Return why nothing can be compared."""
        planned = self.plan(interval)
        assert isinstance(planned, IdleTick), planned
        return planned.reason


@pytest.fixture
def planner(source: CountingSource, config: PipelineConfig, control: ControlTables) -> RepairPlanner:
    return RepairPlanner(source, config, control)


def test_a_backfill_has_the_commits_of_its_interval(planner: RepairPlanner) -> None:
    spec = planner.spec()
    assert spec.repair == RepairOrder(Backfill(END_MS - 120_000, END_MS, lsn(10), lsn(30)))
    assert {task.table.name: (task.stored_lsn, task.batch, task.rows, task.action) for task in spec.tables} == {
        "A": (lsn(40), 3, 2, "pull"),
        "B": (lsn(40), 3, 0, "pull"),
    }
    assert (spec.signals, spec.signal_table, spec.interval, spec.rejected) == ((), None, None, ())
    after_last_tick = (spec.reported_seq, spec.planned_at_ms, spec.newest_batch)
    assert after_last_tick == (7, NOW_MS + 6, 4), "it is planned after the last tick"
    assert JobSpec.from_json(spec.to_json()) == spec


def test_the_ends_go_by_whole_milliseconds(planner: RepairPlanner) -> None:
    """A commit 0.4 ms after the end belongs to the next interval for the time and for the commit."""
    planner.control.unit(31, f"{END + timedelta(microseconds=400):%Y-%m-%d %H:%M:%S.%f}")
    inside = DataInterval.of(END - MINUTE, END + timedelta(microseconds=900))
    order = planner.spec(inside).repair
    assert order is not None
    assert order.repair == Backfill(END_MS - 60_000, END_MS, lsn(20), lsn(30))


def test_an_interval_before_the_log_of_commits_goes_by_time(planner: RepairPlanner) -> None:
    old = DataInterval.of(END - timedelta(days=2), END - timedelta(days=1))
    order = planner.spec(old).repair
    assert order is not None
    assert isinstance(order.repair, Backfill)
    assert (order.repair.after, order.repair.upto) == (None, None)
    begun = planner.spec(DataInterval.of(END - timedelta(days=1), END - MINUTE))
    assert begun.repair is not None
    assert begun.repair.repair == Backfill(END_MS - 86_400_000, END_MS - 60_000, None, lsn(20))
    assert [task.rows for task in begun.tables] == [2, 0]


def test_a_future_interval_has_nothing_to_compare(planner: RepairPlanner) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=1)
    reason = planner.reason(DataInterval.of(ahead, ahead + MINUTE))
    assert reason.startswith(f"the interval begins at {ahead.isoformat()}, and capture stands at 20")


def test_an_interval_that_has_not_ended_is_compared_so_far(
    planner: RepairPlanner, caplog: pytest.LogCaptureFixture
) -> None:
    order = planner.spec(DataInterval.of(END, datetime.now(UTC) + timedelta(hours=1))).repair
    assert order is not None
    assert isinstance(order.repair, Backfill)
    assert (order.repair.after, order.repair.upto) == (lsn(30), lsn(50))
    assert "the interval is compared as far as it is applied" in caplog.text


@pytest.mark.parametrize("begin", [END, END + MINUTE])
def test_an_interval_must_end_after_it_begins(planner: RepairPlanner, begin: datetime) -> None:
    with pytest.raises(ConfigurationError, match=r"the interval ends at .*, and begins at "):
        planner.plan(DataInterval.of(begin, END))


def test_a_pipeline_without_offsets_has_nothing_to_compare(planner: RepairPlanner) -> None:
    planner.kept.offsets.clear()
    assert planner.reason(INTERVAL) == NOT_BEGUN


def test_only_the_named_tables_are_planned(planner: RepairPlanner) -> None:
    spec = planner.spec(tables=[str(planner.control.table("B"))], is_dry_run=True)
    assert [task.table.name for task in spec.tables] == ["B"]
    assert spec.repair is not None
    assert spec.repair.is_dry_run
    with pytest.raises(ConfigurationError, match=r"S\.NONE is not a captured table of this pipeline\. Its tables are"):
        planner.plan(tables=["S.NONE"])
    with pytest.raises(ConfigurationError, match=r"repair: 'A\.B\.C' is not schema\.table"):
        planner.plan(tables=["A.B.C"])


def test_a_replay_counts_nothing(planner: RepairPlanner) -> None:
    spec = planner.spec(None, tables=[str(planner.control.table("A"))])
    assert spec.repair == RepairOrder(Replay())
    assert [(task.table.name, task.rows) for task in spec.tables] == [("A", 0)]


def test_a_table_that_is_to_be_restarted_is_rejected(planner: RepairPlanner) -> None:
    planner.change("A", restart=True)
    spec = planner.spec()
    assert [task.table.name for task in spec.tables] == ["B"]
    [rejected] = spec.rejected
    assert "its restart is requested, which replaces its state. Let a tick run first." in rejected.error


def test_the_other_tables_continue_where_one_is_damaged(planner: RepairPlanner) -> None:
    planner.kept.damaged.add(planner.control.table("B"))
    assert [task.table.name for task in planner.spec().tables] == ["A"]
    planner.change("A", restart=True)
    with pytest.raises(TickFailedError, match=r"no table can be compared:(\n- .*){2}"):
        planner.plan()


def test_a_new_table_does_not_begin(planner: RepairPlanner) -> None:
    del planner.kept.offsets[planner.control.table("B")]
    assert {task.table.name: (task.stored_lsn, task.action) for task in planner.spec().tables} == {
        "A": (lsn(40), "pull"),
        "B": (None, "pull"),
    }


@pytest.mark.parametrize(
    "change", [{"source_restored": True}, {"lsn": lsn(200)}], ids=["recorded", "capture is before"]
)
def test_change_rows_of_another_history_are_not_compared(planner: RepairPlanner, change: dict[str, Any]) -> None:
    planner.change("A", **change)
    [rejected] = planner.spec().rejected
    assert "the source was restored or capture reset" in rejected.error
    assert not planner.spec(None).rejected, "a replay does not read change rows"


def test_a_plan_notices_that_the_source_was_restored(planner: RepairPlanner) -> None:
    [digest] = {task.capture.identity.digest for task in planner.spec().tables if task.table.name == "A"}
    planner.change("A", commit_lsn=lsn(40), commit_ts_ms=END_MS + 60_000, capture=digest)
    assert not planner.spec().rejected
    planner.control.forget("A", 40)
    with pytest.raises(TickFailedError, match="the source was restored or capture reset"):
        planner.plan()
