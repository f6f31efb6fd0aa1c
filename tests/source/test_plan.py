import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import support.memory_offsets
from support.control_tables import COMMITTED_MS, ControlTables, Shape, lsn
from support.crash import once
from support.sandbox_source import CountingSource

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import Requests, Restart, TableRequests
from airflow_provider_db2cdc.cdc.offset.request_change import with_entry
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.offset.view import PipelineOffsets
from airflow_provider_db2cdc.cdc.selection.tables import Selection
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.errors import CaptureStoppedError, ConfigurationError, OffsetError, TickFailedError
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.offsets.commit import record_signals_in_flight
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore
from airflow_provider_db2cdc.source.address import Db2Address
from airflow_provider_db2cdc.source.catalog import read_capture_position
from airflow_provider_db2cdc.source.planning import source_rows
from airflow_provider_db2cdc.source.planning.plan import TickRun, plan_tick
from airflow_provider_db2cdc.sql.driver_error import explain
from airflow_provider_db2cdc.sql.query import Query

pytestmark = pytest.mark.sandbox


Given = int | Lsn | Offset | Exception | None
"""An offset's position, the offset itself, or the error of reading it."""


class MemoryOffsets(support.memory_offsets.MemoryOffsets):
    """Offsets of a test, by table name. An exception represents an unreadable entry.

    `written` are the offsets that a plan has changed.
    """

    def __init__(self, control: ControlTables, summary: PipelineSummary | None = None, /, **numbers: Given) -> None:
        super().__init__(summary=summary or PipelineSummary(tables=tuple(control.registered)))
        self.written: list[Offset] = []
        for name, number in numbers.items():
            table = control.table(name)
            if isinstance(number, Exception):
                self.damage(table)
            elif number is not None:
                at = number if isinstance(number, Lsn) else lsn(number) if isinstance(number, int) else number.lsn
                offset = number if isinstance(number, Offset) else Offset(table, at, 1, committed_lsn=at)
                self.put(replace(offset, table=table))
        self.written.clear()

    def put_requests(self, change: Callable[[PipelineOffsets], Requests]) -> PipelineOffsets:
        before, seen = self.read().requests, super().put_requests(change)
        for table in seen.requests.tables:
            offset = seen.get(table)
            if offset is not None and seen.requests.entry(table) != before.entry(table):
                self.written.append(offset)
        return seen


class Planner:
    """Plans ticks of the source with the offsets that a test gives."""

    def __init__(self, source: CountingSource, config: PipelineConfig, control: ControlTables) -> None:
        self._source, self._config, self._control = source, config, control

    def __call__(
        self,
        settings: Mapping[str, object] | None = None,
        summary: PipelineSummary | None = None,
        kept: MemoryOffsets | None = None,
        **offsets: Given,
    ) -> JobSpec:
        """Return the plan of a tick, which must not be idle."""
        spec = self._plan(settings, kept or MemoryOffsets(self._control, summary, **offsets))
        assert spec is not None, "the tick is idle"
        return spec

    def is_idle(
        self,
        settings: Mapping[str, object] | None = None,
        summary: PipelineSummary | None = None,
        kept: MemoryOffsets | None = None,
        **offsets: Given,
    ) -> bool:
        """Return whether there is nothing to plan."""
        return self._plan(settings, kept or MemoryOffsets(self._control, summary, **offsets)) is None

    def _plan(self, settings: Mapping[str, object] | None, offsets: MemoryOffsets) -> JobSpec | None:
        chosen = self._config.model_copy(update=dict(settings or {}))
        spec = plan_tick(self._source, chosen, offsets, TickRun("run-1", 1234))
        assert all(offset.capture_interrupted or offset.source_restored for offset in offsets.written), (
            "a plan only stores that a registration is inactive, or that the source was restored"
        )
        return spec


@pytest.fixture
def plan(source: CountingSource, config: PipelineConfig, control: ControlTables) -> Planner:
    return Planner(source, config, control)


def ends(spec: JobSpec) -> dict[str, tuple[Lsn, int]]:
    return {task.table.name: (task.upto, task.rows) for task in spec.tables}


def test_idle_pipeline_needs_only_eight_statements(
    plan: Planner, source: CountingSource, control: ControlTables
) -> None:
    for name in ("A", "B", "C"):
        control.add(name)
        control.capture(name, 50)
    assert plan.is_idle(A=60, B=100, C=50)
    assert source.statements == 8


@pytest.mark.parametrize("proven", [60, 90, None], ids=["ahead", "back", "written by hand"])
def test_an_edited_offset_is_checked_by_spark(plan: Planner, control: ControlTables, proven: int | None) -> None:
    control.add("A")
    edited = Offset(control.table("A"), lsn(80), 1, committed_lsn=None if proven is None else lsn(proven))
    assert ends(plan(A=edited)) == {"A": (lsn(100), 0)}
    assert plan.is_idle(A=replace(edited, committed_lsn=lsn(80)))


@pytest.fixture
def applied(plan: Planner, control: ControlTables) -> dict[str, Offset]:
    """Tables whose last applied commit is A's commit 60, and their offsets by name."""
    for name in ("A", "B", "LEFT_OUT", "ANEW"):
        control.add(name)
    for commit in (50, 60):
        control.capture("A", commit)
        control.unit(commit)
    digest = plan().tables[0].capture.identity.digest
    at = Offset(control.table("A"), lsn(70), 1, COMMITTED_MS, digest, committed_lsn=lsn(70), commit_lsn=lsn(60))
    others = {
        name: replace(at, table=control.table(name), commit_lsn=None, capture="") for name in ("B", "LEFT_OUT", "ANEW")
    }
    return {"A": at, **others, "ANEW": replace(others["ANEW"], restart=True)}


def forget(control: ControlTables) -> None:
    control.forget("A", 60)


def retime(control: ControlTables) -> None:
    control.run(f"UPDATE {control.asn}.IBMSNAP_UOW SET IBMSNAP_LOGMARKER = TIMESTAMP('2026-01-02 03:04:05.679000')")


@pytest.mark.parametrize("restore", [forget, retime])
def test_a_restored_source_is_noticed_after_capture_passes_the_offsets(
    plan: Planner,
    control: ControlTables,
    source: CountingSource,
    applied: dict[str, Offset],
    restore: Callable[[ControlTables], None],
) -> None:
    chosen = {"selection": Selection(table_exclude=(r".*\.LEFT_OUT", r".*\.ANEW"))}
    before = source.statements
    assert plan.is_idle(chosen, kept=MemoryOffsets(control, **applied))
    assert source.statements - before == 8, "looking the commit up costs no statement of its own"
    restore(control)
    kept = MemoryOffsets(control, **applied)
    tasks = {task.table.name: task for task in plan(chosen, kept=kept).tables}
    assert {name: task.source_restored for name, task in tasks.items()} == {"A": True, "B": True}
    written = {offset.table.name: offset for offset in kept.written}
    assert {name: offset.source_restored for name, offset in written.items()} == {
        "A": True,
        "B": True,
        "LEFT_OUT": True,
    }
    assert {name: task.revision for name, task in tasks.items()} == {
        name: written[name].revision for name in ("A", "B")
    }
    again = MemoryOffsets(control, **{**applied, **written, "B": replace(applied["B"], capture="")})
    tasks = {task.table.name: task for task in plan(chosen, kept=again).tables}
    assert {name: task.source_restored for name, task in tasks.items()} == {"A": True, "B": False}, (
        "B was restarted after it"
    )
    assert again.written == []


def test_a_pruned_commit_is_not_taken_for_a_restored_source(
    plan: Planner, control: ControlTables, applied: dict[str, Offset]
) -> None:
    chosen = {"selection": Selection(table_include=(r".*\.[AB]",))}
    control.forget("A", 60)
    control.forget("A", 50)
    assert plan.is_idle(chosen, kept=MemoryOffsets(control, **applied)), "pruned by hand: nothing older exists"
    control.capture("A", 50)
    control.set("A", CD_OLD_SYNCHPOINT=lsn(60).raw)
    assert plan.is_idle(chosen, kept=MemoryOffsets(control, **applied)), (
        "the agent is about to delete the older one, too"
    )


class PruningSource(CountingSource):
    """A source. Its agent prunes everything up to 70 just before changes are counted."""

    control: ControlTables

    def rows(self, query: Query) -> list[tuple[Any, ...]]:
        if "CHANGES" in query.text:
            self.control.run(f'DELETE FROM {self.control.asn}."CD_A"')
            self.control.set("A", CD_OLD_SYNCHPOINT=lsn(70).raw)
        return super().rows(query)


@pytest.mark.parametrize("more", [0, 80], ids=["nothing remains", "something remains"])
def test_changes_pruned_before_they_are_counted_are_a_gap_to_the_job(
    config: PipelineConfig, control: ControlTables, address: Db2Address, more: int
) -> None:
    control.add("A")
    control.add("B")
    control.capture("A", 65)
    if more:
        control.capture("B", more)
    with PruningSource(address) as source:
        source.control = control
        spec = plan_tick(source, config, MemoryOffsets(control, A=60, B=60), TickRun("run-1", 1234))
    assert spec is not None
    [task] = [task for task in spec.tables if task.table.name == "A"]
    assert (task.rows, task.stored_lsn, task.capture.pruned_upto) == (0, lsn(60), lsn(70))


def test_offsets_of_an_idle_pipeline_move_on_before_pruning_overtakes_them(
    plan: Planner, control: ControlTables
) -> None:
    control.add("A")
    control.add("B")
    control.capture("A", 50)
    kept = {name: Offset(TableId("S", name), lsn(60), 1, planned_at_ms=1_000, committed_lsn=lsn(60)) for name in "AB"}
    assert plan.is_idle({"offsets_max_age_s": 0.234}, kept=MemoryOffsets(control, **kept))
    spec = plan({"offsets_max_age_s": 0.233}, kept=MemoryOffsets(control, **kept))
    assert ends(spec) == {"A": (lsn(100), 0), "B": (lsn(100), 0)}
    at_fence = {
        name: Offset(TableId("S", name), lsn(100), 1, planned_at_ms=1_000, committed_lsn=lsn(100)) for name in "AB"
    }
    assert plan.is_idle({"offsets_max_age_s": 0.233}, kept=MemoryOffsets(control, **at_fence)), (
        "there is nowhere to move to"
    )


def test_offset_with_a_time_in_the_future_moves_before_that_time(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    hour = 3_600_000
    at = Offset(control.table("A"), lsn(60), 1, committed_lsn=lsn(60))
    ahead = [replace(at, planned_at_ms=1234 + hour + more) for more in (0, 1)]
    assert plan.is_idle(A=ahead[0])
    assert ends(plan(A=ahead[1])) == {"A": (lsn(100), 0)}


def test_a_plan_is_later_than_the_last_reported_plan(plan: Planner, control: ControlTables) -> None:
    """The offsets do not show that plan: its tick may have moved none, and its clock may have been ahead."""
    control.add("A")
    control.capture("A", 70)
    assert plan(A=60).planned_at_ms == 1234
    assert plan(summary=PipelineSummary(tables=(control.table("A"),), planned_at_ms=5_000), A=60).planned_at_ms == 5_001


def test_signals_of_a_job_without_a_result_are_work_for_the_next_plan(
    plan: Planner, source: CountingSource, config: PipelineConfig, control: ControlTables
) -> None:
    """What the job began is only in the target. The run that brought the signals is not repeated."""
    control.add("A")
    kept, asked = MemoryOffsets(control, A=100), Signal("1", "log", "{}", "airflow")
    spec = plan_tick(source, config, kept, TickRun("run-1", 5_000, [asked]))
    assert spec is not None
    assert [one.id for one in spec.signals] == ["1"]
    assert plan.is_idle(kept=kept), "a plan without a job does not count"
    record_signals_in_flight(spec, kept)
    again = plan(kept=kept)
    assert (ends(again), again.signals) == ({"A": (lsn(100), 0)}, ())
    assert again.planned_at_ms == 5_001, "by a clock that was ahead; or its result would not count"
    done = JobResult("p", "run-2", (TableResult(control.table("A"), "unchanged"),), planned_at_ms=again.planned_at_ms)
    assert plan.is_idle(summary=kept.summary().updated(done), A=100)


def test_initial_snapshot_of_a_removed_table_is_not_work(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    filling = TableSnapshotProgress(control.table("B"), "reading", 1, 4, 10)
    running = SnapshotProgress("initial-1", "initial", "running", (filling,), 5)
    summary = PipelineSummary((running,), tables=(control.table("A"), control.table("B")))
    without = {"selection": Selection(table_include=(rf"{control.schema}\.A",))}
    assert plan.is_idle(without, summary, A=100)
    assert ends(plan(summary=summary, A=100, B=100)) == {"A": (lsn(100), 0), "B": (lsn(100), 0)}, "it was taken back"


def test_without_a_stored_summary_the_target_is_read(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    assert ends(plan(summary=PipelineSummary(), A=100)) == {"A": (lsn(100), 0)}


def test_a_request_that_comes_during_a_plan_is_not_consumed_by_it(
    plan: Planner, control: ControlTables, applied: dict[str, Offset]
) -> None:
    chosen = {"selection": Selection(table_exclude=(r".*\.LEFT_OUT", r".*\.ANEW"))}
    kept, table = MemoryOffsets(control, **applied), control.table("A")
    forget(control)

    def request() -> None:
        KeyedOffsetStore(kept.texts).put_requests(lambda seen: with_entry(TableRequests(Restart("r")), table, seen))

    with once("count_planned_changes", "before", request):
        spec = plan(chosen, kept=kept)
    revisions = {task.table: task.revision for task in spec.tables}
    offset = kept.all()[table]
    assert (offset.restart, offset.source_restored) == (True, False), "it begins again anyway"
    assert "r" in offset.revision.split()
    assert "r" not in revisions[table].split()


@pytest.mark.parametrize("was_suspended", [False, True])
def test_an_inactive_registration_is_recorded_even_if_the_tick_fails(
    plan: Planner, control: ControlTables, was_suspended: bool
) -> None:
    control.add("A")
    control.add("B", STATE="S")
    table = control.table("B")
    kept = MemoryOffsets(
        control, A=100, B=Offset(table, lsn(90), 1, planned_at_ms=7, capture_interrupted=was_suspended)
    )
    with pytest.raises(TickFailedError, match="registered in state 'S'"):
        plan(kept=kept)
    [written] = kept.written
    assert written.revision
    assert replace(written, revision="") == Offset(table, lsn(90), 1, planned_at_ms=7, capture_interrupted=True)
    with pytest.raises(CaptureStoppedError):
        plan({"capture_stale_after_s": -1}, kept=kept)
    assert len(kept.written) == 2, "an agent that stopped an registration may have stopped itself"


def test_an_inactive_registration_of_an_excluded_table_is_recorded(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B", STATE="S")
    control.add("NEVER", STATE="S")
    kept = MemoryOffsets(control, A=100, B=90)
    assert plan.is_idle({"selection": Selection(table_exclude=(r".*\.(B|NEVER)",))}, kept=kept)
    assert [(offset.table.name, offset.capture_interrupted) for offset in kept.written] == [("B", True)]


def test_an_inactive_registration_is_recorded_despite_an_unmatched_list(plan: Planner, control: ControlTables) -> None:
    control.add("B", STATE="S")
    kept = MemoryOffsets(control, B=90)
    lists = Selection(table_include=(rf"{control.schema}\.A", rf"{control.schema}\.B"))
    with pytest.raises(ConfigurationError, match="matches no registered table"):
        plan({"selection": lists}, kept=kept)
    assert [(offset.table.name, offset.capture_interrupted) for offset in kept.written] == [("B", True)]


def test_another_source_than_meant_marks_no_offset(plan: Planner, control: ControlTables) -> None:
    """Its registrations do not have the tables. A wrong connection or schema looks the same."""
    control.add("OTHER")
    table = TableId(control.schema, "GONE")
    kept = MemoryOffsets(control, PipelineSummary(tables=(table,)), GONE=Offset(table, lsn(90), 1))
    with pytest.raises(ConfigurationError):
        plan({"selection": Selection(table_include=(rf"{control.schema}\.GONE",))}, kept=kept)
    assert kept.written == []


def test_an_offset_that_cannot_be_read_does_not_block_the_others(plan: Planner, control: ControlTables) -> None:
    for name in ("A", "B", "C"):
        control.add(name, STATE="S")
    kept = MemoryOffsets(control, A=OffsetError("damaged"), B=90, C=90)
    with pytest.raises(TickFailedError):
        plan(kept=kept)
    assert [offset.table.name for offset in kept.written] == ["B", "C"]


def test_requests_are_written_once_more_if_another_writer_came_between(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    control.add("A", STATE="S")
    for failures in (1, 2):
        kept, left = MemoryOffsets(control, A=90), [OffsetError("another text is read back")] * failures

        def fail(_: ReachedFailpoint, left: list[OffsetError] = left) -> None:
            if left:
                raise left.pop()

        with failpoint_action("put_requests", before=fail), pytest.raises(TickFailedError):
            plan(kept=kept)
        assert [offset.table.name for offset in kept.written] == ["A"] * (failures == 1)
    assert "not kept what the plan has found out: another text is read back" in caplog.text


def test_a_table_without_its_registration_is_reported(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    known = PipelineSummary(tables=(control.table("A"), control.table("B")))
    control.run(f"DELETE FROM {control.asn}.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'B'")
    with pytest.raises(TickFailedError, match=r"B is not registered .*ADDTABLE.*offset restart SRC\d+\.B"):
        plan(summary=known, A=100)
    without = {"selection": Selection(table_exclude=(r".*\.B",))}
    assert plan.is_idle(without, summary=known, A=100)


def test_an_inactive_new_table_gets_an_offset_without_a_position(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B", STATE="I")
    kept = MemoryOffsets(control, A=100)
    with pytest.raises(TickFailedError):
        plan(kept=kept)
    [offset] = kept.written
    assert (offset.table, offset.has_position, offset.capture_interrupted) == (control.table("B"), False, True)
    control.set("B", STATE="A")
    [task] = [task for task in plan(A=100, B=offset).tables if task.table == offset.table]
    assert (task.stored_lsn, task.action, task.capture_interrupted) == (None, "initial_snapshot", True)


def test_a_formerly_inactive_table_is_checked_by_spark(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    [task] = plan(A=Offset(control.table("A"), lsn(100), 1, capture_interrupted=True)).tables
    assert (task.stored_lsn, task.capture_interrupted) == (lsn(100), True)
    [task] = plan(A=Offset(control.table("A"), lsn(200), 1, capture_interrupted=True)).tables
    assert (task.stored_lsn, task.capture_interrupted) == (lsn(200), True), "of a source that was restored besides"


def test_a_plan_is_later_than_the_offsets_whatever_the_clock_says(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.capture("A", 70)
    assert plan(A=Offset(control.table("A"), lsn(60), 1, planned_at_ms=9_000)).planned_at_ms == 9_001
    assert plan(A=Offset(control.table("A"), lsn(60), 1, planned_at_ms=7)).planned_at_ms == 1234


def test_the_plan_has_the_revision_of_the_offset(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.capture("A", 70)
    assert [task.revision for task in plan(A=Offset(control.table("A"), lsn(60), 1, revision="m")).tables] == ["m"]


def test_a_plan_has_the_sources_clock_unless_capture_is_ahead_of_it(
    plan: Planner, source: CountingSource, control: ControlTables
) -> None:
    control.add("A")
    control.capture("A", 70)
    before = read_capture_position(source, control.asn).source_time.replace("T", " ")
    spec = plan(A=60)
    assert before <= spec.planned_clock <= read_capture_position(source, control.asn).source_time.replace("T", " ")
    control.synch(100, age_s=-5)
    assert plan(A=60).planned_clock == ""


def test_tables_at_the_capture_position_are_not_counted(
    plan: Planner, source: CountingSource, control: ControlTables
) -> None:
    control.add("A")
    assert plan.is_idle(A=100)
    assert source.statements == 6


def test_changes_up_to_the_capture_position_are_planned(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    control.capture("A", 70, rows=3)
    control.capture("A", 101)
    control.synch(100)
    control.set("A", CD_NEW_SYNCHPOINT=lsn(100).raw)
    spec = plan(A=60, B=90)
    assert ends(spec) == {"A": (lsn(100), 3), "B": (lsn(100), 0)}
    assert [task.stored_lsn for task in spec.tables] == [lsn(60), lsn(90)]


def test_spec_has_all_that_the_job_needs_and_survives_json(
    plan: Planner, source: CountingSource, config: PipelineConfig, control: ControlTables
) -> None:
    control.add("A")
    spec = plan()
    assert (spec.pipeline, spec.run_id, spec.planned_at_ms, spec.target) == ("p", "run-1", 1234, "/lake/p")
    assert (spec.source.jdbc_url, spec.source.database) == (source.jdbc_url, "SANDBOX")
    assert (spec.source.server_name, spec.source.asn_schema) == ("p", control.asn)
    assert spec.settings == config.settings
    assert JobSpec.from_json(spec.to_json()) == spec


def test_batch_log_is_read_from_the_batch_of_each_offset(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    control.capture("A", 70)
    offsets = {"A": Offset(control.table("A"), lsn(60), 7), "B": Offset(control.table("B"), lsn(100), 5)}
    assert [(task.table.name, task.batch) for task in plan(kept=MemoryOffsets(control, **offsets)).tables] == [
        ("A", 7),
        ("B", 5),
    ]
    assert [(task.table.name, task.batch) for task in plan(A=offsets["A"]).tables] == [("A", 7), ("B", 0)]


def test_new_table_begins_at_the_capture_position_uncounted(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.capture("A", 70)
    [task] = plan().tables
    assert (task.stored_lsn, task.upto, task.rows, task.action) == (None, lsn(100), 0, "initial_snapshot")


def test_rows_of_small_new_tables_are_counted_for_their_snapshots(
    plan: Planner, source: CountingSource, control: ControlTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_rows, "SHORT_ROWS", 6)
    for name, rows in (("A", 2), ("B", 0), ("C", 3)):
        control.add(name)
        for number in range(rows):
            control.run(f"INSERT INTO {control.table(name)} (ID) VALUES ({number})")
    found = {task.table.name: task.source_rows for task in plan().tables}
    assert found == {"A": 2, "B": 0, "C": None}, "each of the three tables may have two of the six rows"
    for_three = source.statements
    assert [task.source_rows for task in plan(A=100, B=100).tables] == [None, None, 3]
    assert source.statements == 2 * for_three, "one statement counts all of them"


def test_new_tables_that_cannot_be_counted_are_planned(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.run(f"DROP TABLE {control.table('A')}")
    [task] = plan().tables
    assert (task.action, task.source_rows) == ("initial_snapshot", None)


def test_no_data_asks_for_no_snapshot(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    [task] = plan({"snapshot_mode": "no_data"}).tables
    assert task.action == "start_without_snapshot"


@pytest.mark.parametrize(
    ("commits", "end", "rows"),
    [
        ([(10, 4), (20, 4), (30, 4)], 20, 8),
        ([(10, 10), (20, 1)], 10, 10),
        ([(10, 4), (20, 6), (30, 1)], 20, 10),
        ([(10, 25), (20, 1)], 10, 25),
        ([(10, 1), (20, 25)], 10, 1),
        ([(10, 5), (20, 5)], 100, 10),
    ],
    ids=["whole commits", "ends at a commit", "two that fit", "first is too large", "large one waits", "all fit"],
)
def test_limit_of_rows_cuts_between_commits(
    plan: Planner, control: ControlTables, commits: list[tuple[int, int]], end: int, rows: int
) -> None:
    control.add("A")
    for commit, count in commits:
        control.capture("A", commit, count)
    control.synch(100)
    assert ends(plan(A=5)) == {"A": (lsn(end), rows)}


def test_tables_stop_at_one_frontier_and_rows_are_counted_up_to_it(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("A", "B"):
        control.add(name)
    for commit in range(10, 30):
        control.capture("A", commit)
        control.capture("B", commit + 4)
    assert ends(plan(A=9, B=12)) == {"A": (lsn(19), 10), "B": (lsn(19), 6)}
    held = f"limited: {control.table('A')} reached max.rows.per.batch, so 1 other tables stop at {lsn(19)} too"
    assert held in caplog.text


def test_tables_that_the_agent_may_not_have_read_are_named_when_they_begin(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    """After ADDTABLE without a reinit no change is captured until the agent reads the registration."""
    for name in ("A", "B", "C"):
        control.add(name)
    control.synch(100)
    control.set("B", CD_NEW_SYNCHPOINT=lsn(50).raw)
    plan(C=90)
    assert f"the capture agent has shown no change yet of {control.table('A')}. " in caplog.text
    assert f"(VALUES {control.asn}.ASNCDCSERVICES('reinit', '{control.asn.lower()}'))" in caplog.text
    assert caplog.text.count("begun: ") == 1


@pytest.mark.parametrize("width", [8, 10, 16])
def test_floor_of_zeros_counts_as_none(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture, width: int
) -> None:
    """Scripts set it so. Debezium's script uses a width that no position has."""
    control.add("A")
    control.synch(100)
    control.set("A", CD_OLD_SYNCHPOINT=bytes(width))
    spec = plan()
    assert [task.capture.pruned_upto for task in spec.tables] == [None]
    assert "has shown no change yet" in caplog.text
    control.capture("A", 110)
    control.synch(120)
    assert ends(plan(A=100)) == {"A": (lsn(120), 1)}


def test_table_that_lags_does_not_delay_the_others(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("A", "B"):
        control.add(name)
    for commit in range(10, 40):
        control.capture("A", commit)
    control.capture("B", 60)
    assert ends(plan(A=9, B=50)) == {"A": (lsn(19), 10), "B": (lsn(100), 1)}
    assert "max.rows.per.batch" not in caplog.text


def test_table_that_the_mode_does_not_pull_is_not_reported_as_limited(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tick ends where the initially loading table begins. That table could advance further."""
    for name in ("A", "B"):
        control.add(name)
    control.capture("B", 60)
    filling = TableSnapshotProgress(control.table("B"), "reading", 1, 4, 10)
    running = SnapshotProgress("initial-1", "initial", "running", (filling,), 5)
    summary = PipelineSummary((running,), tables=(control.table("A"), control.table("B")))
    assert ends(plan({"snapshot_mode": "initial_only"}, summary, A=50, B=50))["A"] == (lsn(50), 0)
    assert "max.rows.per.batch" not in caplog.text


def test_pruned_past_the_offset_is_never_idle(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.set("A", CD_OLD_SYNCHPOINT=lsn(61).raw)
    assert ends(plan(A=60)) == {"A": (lsn(100), 0)}
    control.set("A", CD_OLD_SYNCHPOINT=lsn(60).raw)
    assert plan.is_idle(A=60)


def test_capture_started_cold_since_the_offset_is_never_idle(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.insert("IBMSNAP_RESTART", CAPTURE_FIRST_SEQ=lsn(5).raw)
    [task] = plan().tables
    digest = task.capture.identity.digest
    reached = Offset(control.table("A"), lsn(100), 1, capture=digest, committed_lsn=lsn(100))
    assert plan.is_idle(A=reached)
    control.run(f"UPDATE {control.asn}.IBMSNAP_RESTART SET CAPTURE_FIRST_SEQ = ?", lsn(61).raw)
    assert ends(plan(A=reached)) == {"A": (lsn(100), 0)}


def test_capture_before_the_offset_is_never_idle(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    assert ends(plan(A=170, B=100)) == {"A": (lsn(100), 0), "B": (lsn(100), 0)}


def test_stalled_capture_stops_the_tick(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.synch(100, age_s=1000)
    with pytest.raises(CaptureStoppedError, match=r"stands still: SYNCHTIME is 20.*10\d\d s behind.*asncap.*CAPMON"):
        plan(A=100)


REFUSED = {
    "inactive": ({"STATE": "I"}, "state 'I'.*STATE = 'A'"),
    "stopped": ({"STATE": "S", "STATE_INFO": "ASN0069E"}, "state 'S'.*ASN0069E"),
    "no key": ({"key": (), "CHG_UPD_TO_DEL_INS": "N"}, "has no key"),
    "update rows": ({"CHG_UPD_TO_DEL_INS": "N"}, "CHG_UPD_TO_DEL_INS = 'N'.*then reinit the capture agent"),
    "no change table": ({"CD_TABLE": "GONE"}, "does not exist"),
    "unmappable type": ({"columns": (("ID", "INTEGER", 4, "N"), ("M", "MONEY", 4, "Y"))}, "'M' has type MONEY"),
    "reserved name": ({"columns": (("ID", "INTEGER", 4, "N"), ("__X", "INTEGER", 4, "Y"))}, "'__X'"),
}


@pytest.mark.parametrize(("made", "words"), REFUSED.values(), ids=REFUSED)
def test_table_that_cannot_be_replicated_is_refused_and_others_continue(
    plan: Planner, control: ControlTables, made: dict[str, Any], words: str
) -> None:
    control.add("BAD", **made)
    control.add("GOOD")
    control.capture("GOOD", 70)
    spec = plan(BAD=60, GOOD=60)
    assert ends(spec) == {"GOOD": (lsn(100), 1)}
    [refusal] = spec.rejected
    assert refusal.table == control.table("BAD")
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(refusal.error)


def test_refusal_names_all_problems_of_the_table(plan: Planner, control: ControlTables) -> None:
    control.add("BAD", STATE="I", key=(), CHG_UPD_TO_DEL_INS="N")
    control.add("GOOD")
    [refusal] = plan().rejected
    assert "state 'I'" in refusal.error
    assert "has no key" in refusal.error


def test_accepted_update_rows_are_planned(plan: Planner, control: ControlTables) -> None:
    control.add("A", CHG_UPD_TO_DEL_INS="N")
    assert len(plan({"accept_update_rows": True}).tables) == 1


def test_dropped_source_table_is_refused(plan: Planner, control: ControlTables) -> None:
    control.register("GHOST")
    with pytest.raises(TickFailedError, match="GHOST is registered, but the catalog has no such table"):
        plan()


def test_unreadable_offset_refuses_only_its_table(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    spec = plan(A=OffsetError("the offset kept in X cannot be read", "Put it back."))
    assert [task.table.name for task in spec.tables] == ["B"]
    assert "cannot be read" in spec.rejected[0].error


def test_offset_of_another_width_refuses_only_its_table(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    spec = plan(A=Lsn(b"\1" * 10))
    assert [task.table.name for task in spec.tables] == ["B"]
    assert "10 bytes cannot be compared" in spec.rejected[0].error


def test_old_positions_of_quiet_registrations_stop_nothing(plan: Planner, control: ControlTables) -> None:
    old = Lsn(b"\xff" * 10).raw
    control.add("A", CD_OLD_SYNCHPOINT=old, CD_NEW_SYNCHPOINT=old)
    control.add("B")
    control.capture("A", 70)
    spec = plan(A=60, B=60)
    assert ends(spec) == {"A": (lsn(100), 1), "B": (lsn(100), 0)}
    assert not spec.rejected


def test_change_table_that_cannot_be_read_refuses_only_its_table(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    control.capture("B", 70)
    control.run(f'DROP TABLE {control.asn}."CD_A"')  # SYSCAT still has it, as it has one without a privilege
    spec = plan(A=60, B=60)
    assert ends(spec) == {"B": (lsn(100), 1)}
    assert [refusal.table.name for refusal in spec.rejected] == ["A"]


def test_refusals_without_other_work_fail_the_tick_by_name(plan: Planner, control: ControlTables) -> None:
    control.add("BAD", CHG_UPD_TO_DEL_INS="N")
    control.add("WORSE", key=(), CHG_UPD_TO_DEL_INS="N")
    control.add("IDLE")
    kept = MemoryOffsets(control, IDLE=100)
    with pytest.raises(TickFailedError, match=r"(?s)2 table.*BAD: .*'N'.*WORSE: .*no key"):
        plan(kept=kept)
    failures = kept.summary().failures
    assert [(failure.table.name, failure.is_rejected) for failure in failures] == [("BAD", True), ("WORSE", True)]


def test_pipeline_without_a_table_is_not_taken_for_idle(plan: Planner, control: ControlTables) -> None:
    with pytest.raises(ConfigurationError, match=f"no table that is registered in schema {control.asn} is chosen"):
        plan()


def test_only_chosen_tables_are_planned(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    chosen = Selection(table_include=(rf"{control.schema}\.B",))
    assert list(ends(plan({"selection": chosen}))) == ["B"]


def test_pattern_without_a_registered_table_fails_the_tick(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    with pytest.raises(ConfigurationError, match="matches no registered table"):
        plan({"selection": Selection(table_include=("X.Y",))})


def test_an_excluded_table_that_does_not_exist_is_a_warning(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    control.add("A")
    assert list(ends(plan({"selection": Selection(table_exclude=("X.Y",))}))) == ["A"]
    assert "table.exclude.list: 'X.Y' matches no registered table" in caplog.text


def with_columns(control: ControlTables) -> None:
    """Name columns of the table A: SSN is captured, DOC is a LOB."""
    shape = (("ID", "INTEGER", 4, "N"), ("SSN", "VARCHAR", 20, "Y"), ("DOC", "CLOB", 9, "Y"))
    control.add("A", shape, carried=("ID", "SSN"))


def test_a_misspelt_column_to_exclude_fails_the_tick(plan: Planner, control: ControlTables) -> None:
    with_columns(control)
    excluded = Selection(column_exclude=(rf"{control.schema}\.A\.SSM",))
    with pytest.raises(ConfigurationError, match=r"column\.exclude\.list: '.*SSM' matches no column.*Near it: .*SSN"):
        plan({"selection": excluded})


@pytest.mark.parametrize("column", ["SSN", "DOC"])
def test_a_column_to_exclude_may_be_one_that_is_not_captured(
    plan: Planner, control: ControlTables, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    with_columns(control)
    [task] = plan({"selection": Selection(column_exclude=(rf"{control.schema}\.A\.{column}",))}).tables
    assert column in task.schema.excluded_columns
    assert "column.exclude.list" not in caplog.text


def test_a_column_to_exclude_may_be_of_a_table_that_is_registered_later(
    plan: Planner, source: CountingSource, control: ControlTables, caplog: pytest.LogCaptureFixture
) -> None:
    with_columns(control)
    control.add("LATER")
    control.run(f"DELETE FROM {control.asn}.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'LATER'")
    control.registered.remove(control.table("LATER"))
    plan({"selection": Selection(column_exclude=(rf"{control.schema}\.A\.SSN", f"{control.schema}.LATER.V"))})
    assert "LATER.V' matches no column of a table that this pipeline carries" in caplog.text
    with pytest.raises(ConfigurationError, match=r"LATER\.W' matches no column, so"):
        plan({"selection": Selection(column_exclude=(f"{control.schema}.LATER.W",))})


def test_a_list_of_columns_that_matches_costs_an_idle_plan_no_statement(
    plan: Planner, source: CountingSource, control: ControlTables
) -> None:
    with_columns(control)
    counts = []
    for selection in (Selection(), Selection(column_exclude=(rf"{control.schema}\.A\.SSN",))):
        before = source.statements
        assert plan.is_idle({"selection": selection}, A=100)
        counts.append(source.statements - before)
    assert counts[0] == counts[1]


SIGNALS = (("ID", "VARCHAR", 42, "N"), ("TYPE", "VARCHAR", 32, "N"), ("DATA", "VARCHAR", 2048, "Y"))


@pytest.fixture
def signals(control: ControlTables) -> dict[str, object]:
    """The settings of a table of signals that is not captured and holds one."""
    table = control.add("SIGNALS", SIGNALS)
    control.run(f"DELETE FROM {control.asn}.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'SIGNALS'")
    control.registered.remove(table)
    control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('77', 'log', '{{}}')")
    return {"signal_table": str(table)}


def test_signal_table_is_read_while_its_channel_is_enabled(
    plan: Planner, control: ControlTables, signals: dict[str, object]
) -> None:
    control.add("A")
    spec = plan(signals, A=100)
    assert [(one.id, one.channel) for one in spec.signals] == [("77", "source")]
    assert spec.signal_table is not None


def test_signals_of_an_uncaptured_table_are_ordered_by_number(
    plan: Planner, control: ControlTables, signals: dict[str, object]
) -> None:
    """Their times are unknown. With ascending numbers a stop is not handled before the snapshot that it stops."""
    control.add("A")
    control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('100', 'log', '{{}}'), ('9', 'log', '{{}}')")
    assert [one.id for one in plan(signals, A=100).signals] == ["9", "77", "100"]


def test_signal_table_is_not_read_without_its_channel(
    plan: Planner, control: ControlTables, signals: dict[str, object]
) -> None:
    control.add("A")
    off = {**signals, "signal_channels": ("airflow",)}
    assert plan.is_idle(off, A=100)
    control.capture("A", 60)
    assert plan(off, A=50).signal_table is None


def test_watermarks_need_the_signal_table_even_without_its_channel(
    plan: Planner, control: ControlTables, signals: dict[str, object]
) -> None:
    control.add("A")
    control.capture("A", 60)
    spec = plan({**signals, "signal_channels": (), "watermarking": "insert_insert"}, A=50)
    assert spec.signal_table is not None
    assert (spec.signal_table.is_channel, spec.signals) == (False, ())


def test_wrong_signal_table_does_not_matter_without_its_channel(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    assert plan.is_idle({"signal_table": "S.NOTHING", "signal_channels": ()}, A=100)
    with pytest.raises(TickFailedError, match=r"S\.NOTHING does not exist"):
        plan({"signal_table": "S.NOTHING"}, A=100)


@pytest.mark.parametrize("shape", [("ID", "TIMESTAMP", 10, "N"), ("ID", "DOUBLE", 8, "N")], ids=lambda one: one[1])
def test_signal_table_with_ids_that_differ_by_driver_is_refused(
    plan: Planner, control: ControlTables, shape: Shape
) -> None:
    control.add("A")
    settings = {"signal_table": str(control.add("SIGNALS", (shape, *SIGNALS[1:])))}
    spec = plan({**settings, "selection": Selection(table_include=(r"SRC\d+\.A",))})
    [refusal] = spec.rejected
    assert "whose texts differ by driver" in refusal.error


def test_signals_are_texts_whatever_the_columns_are(plan: Planner, control: ControlTables) -> None:
    columns = (("ID", "INTEGER", 4, "N"), ("TYPE", "VARCHAR", 32, "Y"), SIGNALS[2])
    settings = {"signal_table": str(control.add("SIGNALS", columns))}
    for intent, values in (
        (1, "1, 'pause-snapshot', NULL"),
        (2, "2, NULL, NULL"),
        (3, "3, 'snapshot-window-open', NULL"),
    ):
        row = f"X'{lsn(70).hex}', X'{lsn(intent).hex}', 'I', {values}"
        control.run(f"INSERT INTO {control.asn}.CD_SIGNALS VALUES ({row})")
    control.set("SIGNALS", CD_NEW_SYNCHPOINT=lsn(70).raw)
    spec = plan(settings, SIGNALS=100)
    given = [(signal.id, signal.type, signal.data) for signal in spec.signals]
    assert given == [("1", "pause-snapshot", ""), ("2", "", "")], "marks are none, and what has no type is refused"
    assert JobSpec.from_json(spec.to_json()) == spec


def test_blanks_that_pad_a_signal_are_removed(plan: Planner, control: ControlTables) -> None:
    """Db2 pads a CHAR column. Trailing blanks of a VARCHAR were sent."""
    columns = (("ID", "CHARACTER", 42, "N"), ("TYPE", "CHARACTER", 32, "N"), ("DATA", "CHARACTER", 60, "Y"))
    settings = {"signal_table": str(control.add("SIGNALS", columns))}
    control.add("A")
    for id_ in ("9", "10"):
        control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('{id_}', 'pause-snapshot', '{{}}')")
    control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('m', 'snapshot-window-open', '{{}}')")
    direct = plan(settings, A=100)
    assert [(one.id, one.type, one.data) for one in direct.signals] == [
        ("9", "pause-snapshot", "{}"),
        ("10", "pause-snapshot", "{}"),
    ]
    row = f"X'{lsn(70).hex}', X'{lsn(1).hex}', 'I', 'captured', 'log', NULL"
    control.run(f"INSERT INTO {control.asn}.CD_SIGNALS VALUES ({row})")
    control.set("SIGNALS", CD_NEW_SYNCHPOINT=lsn(70).raw)
    assert [(one.id, one.type, one.data) for one in plan(settings, A=100).signals] == [("captured", "log", "")]
    assert JobSpec.from_json(direct.to_json()) == direct


def test_blanks_that_were_sent_are_part_of_a_signals_id(
    plan: Planner, control: ControlTables, signals: dict[str, object]
) -> None:
    control.add("A")
    control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('a ', 'log', '{{}}')")
    assert [one.id for one in plan(signals, A=100).signals] == ["77", "a "]


@pytest.mark.parametrize(
    ("at", "shape", "problem"),
    [
        (1, ("TYPE", "INTEGER", 4, "N"), "column TYPE .* is INTEGER, which holds no text"),
        (1, ("TYPE", "VARCHAR", 12, "N"), "column TYPE .* holds 12 characters, and needs 16"),
        (2, ("DATA", "TIMESTAMP", 10, "Y"), "column DATA .* is TIMESTAMP, which holds no text"),
        (0, ("ID", "VARCHAR", 10, "N"), ""),
        (2, ("DATA", "CLOB", 1000, "Y"), ""),
    ],
    ids=lambda one: str(one),
)
def test_signal_table_with_unfit_columns_is_refused(
    plan: Planner, control: ControlTables, at: int, shape: Shape, problem: str
) -> None:
    control.add("A")
    control.capture("A", 70)
    columns = tuple(shape if place == at else column for place, column in enumerate(SIGNALS))
    settings = {"signal_table": str(control.add("SIGNALS", columns))}
    spec = plan({**settings, "selection": Selection(table_include=(r"SRC\d+\.A",))}, A=60)
    assert [bool(re.search(problem, one.error)) for one in spec.rejected] == [True] * bool(problem)


@pytest.mark.parametrize("at", [0, 1])
def test_signal_table_too_narrow_for_watermarks_is_refused_if_needed(
    plan: Planner, control: ControlTables, at: int
) -> None:
    control.add("A")
    control.capture("A", 70)
    columns = tuple((one[0], one[1], 20, one[3]) if place == at else one for place, one in enumerate(SIGNALS))
    settings = {"signal_table": str(control.add("SIGNALS", columns))}
    only = {**settings, "selection": Selection(table_include=(r"SRC\d+\.A",))}
    assert plan(only, A=60).rejected == ()
    [refusal] = plan({**only, "watermarking": "insert_delete"}, A=60).rejected
    assert re.search(f"holds 20 characters, and needs {(42, 21)[at]} .*insert_delete", refusal.error)


def test_signal_table_with_numeric_ids_takes_no_watermarks(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.capture("A", 70)
    settings = {"signal_table": str(control.add("SIGNALS", (("ID", "INTEGER", 4, "N"), *SIGNALS[1:])))}
    only = {**settings, "selection": Selection(table_include=(r"SRC\d+\.A",))}
    assert plan(only, A=60).rejected == ()
    [refusal] = plan({**only, "watermarking": "insert_insert"}, A=60).rejected
    assert "is INTEGER, and cannot hold the marks of insert_insert" in refusal.error


def test_a_signal_table_is_read_directly_until_capture_shows_a_row(plan: Planner, control: ControlTables) -> None:
    """Rows inserted before the agent has read the registration are in no change table."""
    control.add("A")
    settings = {"signal_table": str(control.add("SIGNALS", SIGNALS))}
    control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('before', 'log', '{{}}')")
    assert [one.id for one in plan(settings, A=100).signals] == ["before"]
    row = f"X'{lsn(70).hex}', X'{lsn(1).hex}', 'I', 'captured', 'log', '{{}}'"
    control.run(f"INSERT INTO {control.asn}.CD_SIGNALS VALUES ({row})")
    control.set("SIGNALS", CD_NEW_SYNCHPOINT=lsn(70).raw)
    assert [one.id for one in plan(settings, A=100).signals] == ["captured"]


@pytest.mark.parametrize("statement", ["DROP TABLE {cd}", "ALTER TABLE {cd} DROP COLUMN DATA"], ids=["gone", "no data"])
def test_unreadable_signal_table_is_refused_and_the_plan_continues(
    plan: Planner, control: ControlTables, statement: str
) -> None:
    settings = {
        "signal_table": str(control.add("SIGNALS", SIGNALS)),
        "selection": Selection(table_include=(r"SRC\d+\.A",)),
    }
    control.add("A")
    control.capture("A", 70)
    control.set("SIGNALS", CD_NEW_SYNCHPOINT=lsn(60).raw)
    control.run(statement.format(cd=f"{control.asn}.CD_SIGNALS"))
    spec = plan(settings, A=60)
    assert (ends(spec), spec.signals) == ({"A": (lsn(100), 1)}, ())
    [refusal] = spec.rejected
    assert (refusal.table, refusal.is_replicated) == (control.table("SIGNALS"), False)
    assert f"signal table {control.table('SIGNALS')} cannot be read" in refusal.error
    assert spec.signal_table is not None
    assert spec.signal_table.table == control.table("SIGNALS"), "marks may still be written into it"


class LockedSource(CountingSource):
    """A source whose signal table is locked."""

    def rows(self, query: Query) -> list[tuple[Any, ...]]:
        if "snapshot-window-open" in query.text:
            raise explain(Exception("SQL0911N  ... deadlock or timeout.  SQLSTATE=40001 SQLCODE=-911"), "db2:50000/S")
        return super().rows(query)


def test_signals_of_a_locked_signal_table_wait_for_the_next_tick(
    config: PipelineConfig, control: ControlTables, address: Db2Address, caplog: pytest.LogCaptureFixture
) -> None:
    control.add("A")
    only = {"selection": Selection(table_include=(r"SRC\d+\.A",)), "signal_table": str(control.add("SIGNALS", SIGNALS))}
    with LockedSource(address) as source:
        idle = plan_tick(source, config.model_copy(update=only), MemoryOffsets(control, A=100), TickRun("run-1", 1234))
    assert idle is None, "there is nothing to do, and nothing wrong"
    assert "are left to the next tick" in caplog.text


@pytest.mark.parametrize("pattern", [r"SRC\d+\.TYPO", r"SRC\d+\.B"], ids=["not registered", "not of the pipeline"])
def test_snapshot_list_without_a_table_of_the_pipeline_fails_the_tick(
    plan: Planner, control: ControlTables, pattern: str
) -> None:
    control.add("A")
    control.add("B")
    chosen = Selection(table_include=(rf"{control.schema}\.A",))
    with pytest.raises(
        ConfigurationError, match=r"snapshot\.include\.collection\.list: .* no table .* are SRC\d+\.A\."
    ):
        plan({"selection": chosen, "snapshot_include": (r"SRC.*\.A", pattern)})


def test_mode_always_reads_the_tables_of_the_snapshot_list_again(plan: Planner, control: ControlTables) -> None:
    for name in ("A", "B"):
        control.add(name)
        control.capture(name, 70)
    always = {"snapshot_mode": "always"}
    for include, again in (((), ["resnapshot"] * 2), ((r"SRC.*\.A",), ["resnapshot", "pull"])):
        spec = plan({**always, "snapshot_include": include}, A=60, B=60)
        assert [task.action for task in spec.tables] == again


def test_custom_select_is_planned_with_its_table(plan: Planner, control: ControlTables) -> None:
    control.add("A")
    control.add("B")
    selects = {f"{control.schema.lower()}.b": "SELECT 1"}
    assert [task.select for task in plan({"snapshot_overrides": selects}).tables] == ["", "SELECT 1"]
    with pytest.raises(ConfigurationError, match=r"snapshot\.select\.statement\.overrides: 'S\.TYPO' is no table"):
        plan({"snapshot_overrides": {"S.TYPO": "SELECT 1"}})


def test_repaired_or_renamed_signal_table_is_not_a_lost_table(plan: Planner, control: ControlTables) -> None:
    table = control.table("SIGNALS")
    settings = {"signal_table": str(table)}
    control.add("A")
    control.capture("A", 60)
    first = plan(settings, A=50)
    assert [(one.table, one.is_replicated) for one in first.rejected] == [(table, False)], "it does not exist yet"
    lines = [TableResult(one.table, "failed", is_replicated=one.is_replicated) for one in first.rejected]
    summary = PipelineSummary().updated(JobResult("p", "r", (TableResult(control.table("A"), "applied"), *lines)))
    control.add("SIGNALS", SIGNALS)
    control.run(f"DELETE FROM {control.asn}.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'SIGNALS'")
    control.run(f"INSERT INTO {control.schema}.SIGNALS VALUES ('77', 'log', '{{}}')")
    again = plan(settings, summary=summary, A=100)
    assert [one.id for one in again.signals] == ["77"]
    assert again.rejected == ()
    control.run(f"DROP TABLE {control.schema}.SIGNALS")
    control.add("OTHERS", SIGNALS)
    for named in ({"signal_table": str(control.table("OTHERS"))}, {}):
        assert table not in [one.table for one in plan(named, summary=summary, A=50).rejected]
    carried = PipelineSummary().updated(JobResult("p", "r", (TableResult(table, "applied"),)))
    lost = plan({}, summary=carried, A=50)
    assert [one.table for one in lost.rejected] == [table], "one that was captured, and is not any more"
