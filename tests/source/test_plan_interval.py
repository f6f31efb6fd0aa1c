"""Plans that end at the run's data interval: its last commit by the source's clock, and what is planned up to it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from support.control_tables import ControlTables, lsn
from support.memory_offsets import MemoryOffsets
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.capture.interval import CaptureBehindError, CapturedTime, DataInterval
from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition
from airflow_provider_db2cdc.cdc.capture.source_clock import ClockChange, SourceClock
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.source.planning.plan import IdleTick, TickRun, plan_or_reason
from airflow_provider_db2cdc.sql.units_of_work import last_commits

pytestmark = pytest.mark.sandbox


END = datetime(2026, 1, 2, 3, tzinfo=UTC)
INTERVAL = DataInterval.of(END - timedelta(hours=1), END)
NOW_MS = 1_767_400_000_000


class IntervalPlanner:
    """Plans ticks of the source. A has the commits 10 to 50, one a minute. The interval ends with commit 30."""

    def __init__(self, source: CountingSource, config: PipelineConfig, control: ControlTables) -> None:
        self.source, self.control = source, control
        self.config = config.model_copy(update={"end_at": "interval", "max_rows_per_batch": 1})
        for name in ("A", "B"):
            control.add(name)
        for minute, commit in enumerate(range(10, 60, 10)):
            control.capture("A", commit)
            control.unit(commit, f"{END - timedelta(minutes=2 - minute):%Y-%m-%d %H:%M:%S.%f}")

    def __call__(self, interval: DataInterval | None = INTERVAL, **numbers: int | Offset) -> JobSpec | IdleTick:
        """Return the plan of a run with an interval, where the tables have these offsets."""
        tables = {self.control.table(name): at for name, at in numbers.items()}
        offsets = {
            table: at
            if isinstance(at, Offset)
            else Offset(table, lsn(at), 1, committed_lsn=lsn(at), planned_at_ms=NOW_MS)
            for table, at in tables.items()
        }
        known = PipelineSummary(tables=tuple(self.control.registered))
        return plan_or_reason(
            self.source,
            self.config,
            MemoryOffsets(*offsets.values(), summary=known),
            TickRun("run-1", NOW_MS, interval=interval),
        )

    def ends(self, interval: DataInterval | None = INTERVAL, **numbers: int | Offset) -> Mapping[str, tuple[Lsn, int]]:
        """Return the planned end of each table, and its rows."""
        spec = self(interval, **numbers)
        assert isinstance(spec, JobSpec), spec
        return {task.table.name: (task.upto, task.rows) for task in spec.tables}

    def reason(self, interval: DataInterval | None = INTERVAL, **numbers: int | Offset) -> str:
        """Return why a run has nothing to do."""
        idle = self(interval, **numbers)
        assert isinstance(idle, IdleTick), idle
        return idle.reason


@pytest.fixture
def plan(source: CountingSource, config: PipelineConfig, control: ControlTables) -> IntervalPlanner:
    return IntervalPlanner(source, config, control)


def test_plan_ends_at_the_intervals_last_commit_despite_the_row_limit(plan: IntervalPlanner) -> None:
    assert plan.ends(A=5, B=7) == {"A": (lsn(30), 3), "B": (lsn(30), 0)}
    spec = plan(A=5, B=7)
    assert isinstance(spec, JobSpec)
    assert (spec.interval, spec.interval_end) == (INTERVAL, lsn(30))
    assert spec.capture_position.lsn == lsn(100), "the capture position is not moved"
    assert JobSpec.from_json(spec.to_json()) == spec


def test_commit_out_of_order_belongs_to_the_interval_of_the_next_one(plan: IntervalPlanner) -> None:
    plan.control.unit(25, f"{END + timedelta(seconds=1):%Y-%m-%d %H:%M:%S.%f}")
    plan.control.capture("A", 25)
    assert plan.ends(A=5, B=7)["A"] == (lsn(30), 4)


def test_offset_beyond_the_interval_stays(plan: IntervalPlanner) -> None:
    plan.control.capture("B", 20)
    assert plan.ends(A=40, B=7) == {"A": (lsn(40), 0), "B": (lsn(30), 1)}


def test_run_whose_commits_are_carried_has_nothing_to_do(plan: IntervalPlanner) -> None:
    reason = plan.reason(A=40, B=30)
    assert reason.startswith("IBMSNAP_UOW has no commit between the offsets (SRC")
    assert f".A at {lsn(40)}" in reason
    assert "the end of the data interval, 2026-01-02T03:00:00+00:00: a run of a later interval" in reason


def test_idle_run_names_the_tables_beyond_its_interval(plan: IntervalPlanner) -> None:
    reason = plan.reason(A=40, B=10)
    assert reason.startswith("nothing new up to the end of the data interval, 2026-01-02T03:00:00+00:00 (beyond it: ")
    assert f".A at {lsn(40)})" in reason
    assert ".B" not in reason


def test_pruned_commits_are_nothing_to_do_unless_changes_are_lost(plan: IntervalPlanner) -> None:
    plan.control.run(f"DELETE FROM {plan.control.asn}.IBMSNAP_UOW WHERE IBMSNAP_COMMITSEQ <= X'{lsn(30).hex}'")
    assert "has no commit between the offsets" in plan.reason(A=30, B=20)
    plan.control.set("A", CD_OLD_SYNCHPOINT=lsn(31).raw)
    assert plan.ends(A=30, B=20)["A"] == (lsn(30), 0), "the job reports the gap"


def test_interval_without_a_later_commit_ends_at_the_capture_position(plan: IntervalPlanner) -> None:
    """So the offsets of a quiet source move before pruning overtakes them."""
    later = DataInterval.of(None, END + timedelta(hours=1))
    assert plan.ends(later, A=45, B=45) == {"A": (lsn(100), 1), "B": (lsn(100), 0)}
    assert "nothing new up to the end" in plan.reason(later, A=60, B=60)
    old = Offset(plan.control.table("B"), lsn(60), 1, committed_lsn=lsn(60), planned_at_ms=NOW_MS - 90_000_000)
    assert plan.ends(later, A=60, B=old) == {"A": (lsn(100), 0), "B": (lsn(100), 0)}


def test_old_offset_moves_only_within_the_interval(plan: IntervalPlanner) -> None:
    old = Offset(plan.control.table("B"), lsn(20), 1, committed_lsn=lsn(20), planned_at_ms=NOW_MS - 90_000_000)
    assert plan.ends(A=60, B=old) == {"A": (lsn(60), 0), "B": (lsn(30), 0)}
    beyond = replace(old, lsn=lsn(30), committed_lsn=lsn(30))
    assert plan.reason(A=60, B=beyond)
    assert plan.reason(None, A=60, B=old)


def test_run_without_an_interval_carries_only_snapshots(plan: IntervalPlanner) -> None:
    assert plan.reason(None, A=5, B=7) == (
        "end.at is interval, and this run has no data interval: it only carries snapshots, and has none"
    )
    assert plan.ends(None, A=5) == {"A": (lsn(5), 0), "B": (lsn(100), 0)}, "B is new"


def test_new_table_begins_at_the_capture_position(plan: IntervalPlanner) -> None:
    assert plan.ends(A=5) == {"A": (lsn(30), 3), "B": (lsn(100), 0)}


def test_capture_before_an_offset_is_left_to_the_job(plan: IntervalPlanner) -> None:
    assert plan.ends(A=170, B=20)["A"] == (lsn(100), 0)


def test_plan_waits_until_capture_has_passed_the_interval(plan: IntervalPlanner) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=1)
    with pytest.raises(CaptureBehindError, match=r"has not passed the end of the data interval, .*: it stands at 20"):
        plan(DataInterval.of(None, ahead), A=5, B=7)


def test_interval_is_refused_where_runs_end_at_the_capture_position(plan: IntervalPlanner) -> None:
    plan.config = plan.config.model_copy(update={"end_at": "fence"})
    with pytest.raises(ConfigurationError, match=r"end\.at is fence\. Set end\.at=interval"):
        plan(A=5, B=7)


def test_idle_pipeline_costs_one_statement_more_per_run(plan: IntervalPlanner) -> None:
    before = plan.source.statements
    plan.reason(A=60, B=60)
    assert plan.source.statements - before == 9


AUTUMN = ClockChange("2026-10-25T02:00:00.000000", "2026-10-25T03:00:00.000000", 3600, lsn(7))
SPRING = ClockChange("2026-03-29T02:00:00.000000", "2026-03-29T03:00:00.000000", 7200)
CLOCKS = {
    "one offset": SourceClock(7200),
    "set back": SourceClock(7200, (AUTUMN,)),
    "set back unseen": SourceClock(7200, (replace(AUTUMN, first_commit=None),)),
    "both": SourceClock(3600, (replace(SPRING, begin=SPRING.end), AUTUMN)),
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_last_commit_is_found_by_the_rule_of_the_clock(
    source: CountingSource, control: ControlTables, clock: SourceClock
) -> None:
    """The statement and `SourceClock.utc` agree, in the repeated hour too."""
    rng, commits = Random(7), dict[int, datetime]()
    for number in range(1, 15):
        minutes = 10 * number if number < 7 else 10 * number - 25
        commits[number] = datetime(2026, 10, 25, 1, 20) + timedelta(minutes=minutes + rng.randrange(-4, 5))
        control.unit(number, f"{commits[number]:%Y-%m-%d %H:%M:%S.%f}")
    for minutes in range(-120, 240, 7):
        moment = datetime(2026, 10, 25) + timedelta(minutes=minutes)
        span = LsnRange(lsn(2), lsn(13))
        [row] = source.rows(last_commits(control.asn, span, clock, moment))
        within = [
            number for number, local in commits.items() if 2 < number <= 13 and clock.utc(local, lsn(number)) <= moment
        ]
        expected: list[Any] = [lsn(max(within)).raw if within else None, lsn(13).raw]
        assert [None if commit is None else bytes(commit) for commit in row] == expected, moment


def test_capture_has_passed_a_moment_by_the_clock_of_its_position() -> None:
    """02:30 is shown twice. The position shows which one it is."""
    clock = SourceClock(7200, (AUTUMN,))
    first, second = (
        CapturedTime(CapturePosition(lsn(at), "2026-10-25T02:30:00.000000", "", 0.0), clock) for at in (6, 7)
    )
    assert [first.utc.hour, second.utc.hour] == [0, 1]
    assert [first.has_passed(datetime(2026, 10, 25, 0, 29)), first.has_passed(first.utc)] == [True, False]
