"""Runs of a verification in memory: where it continues, when it reads again, and which tables it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from support.crash import killed, once
from support.memory_pipeline import MemoryPipeline, filled
from support.memory_source import lsn
from support.memory_verify import MemoryComparer, MemoryReport, VerifySource, nothing

from airflow_provider_db2cdc.cdc.job import SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.cdc.verify.document import TableVerdict, VerifyResult, VerifySpec
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.verify.ports import Ports
from airflow_provider_db2cdc.verify.run import run_verification

A, B = TableId("S", "A"), TableId("S", "B")


@dataclass
class Verified:
    """A pipeline with the tables A and B, and its verifications."""

    pipeline: MemoryPipeline = field(default_factory=lambda: filled(A, B, rows=12))
    report: MemoryReport = field(default_factory=MemoryReport)
    meanwhile: Callable[[], None] = nothing

    def __post_init__(self) -> None:
        self.pipeline.finish()
        source, target, journal = self.pipeline.source, self.pipeline.target, self.pipeline.journal
        self.comparer = MemoryComparer(source, target, journal, meanwhile=lambda: self.meanwhile())

    def spec(self, *tables: TableId, **more: object) -> VerifySpec:
        """Return the plan of a verification."""
        given = SourceSpec("jdbc:db2://h:1/D:", "D", "s", "ASN")
        settings = replace(self.pipeline.settings, high_mark_timeout_s=0.0)
        tasks = tuple(self.task(table) for table in tables or (A, B))
        return VerifySpec("p", "v", "/t", given, tasks, settings, **more)  # type: ignore[arg-type]

    def task(self, table: TableId) -> TableTask:
        """Return a table as a plan finds it."""
        source = self.pipeline.source
        return TableTask(source.schema(table), source.registration(table), None, lsn(source.captured), 0)

    def run(self, spec: VerifySpec | None = None) -> VerifyResult:
        """Verify."""
        source = VerifySource(self.pipeline.source, lambda: self.meanwhile())
        return run_verification(spec or self.spec(), Ports(source, self.comparer, self.report))

    def verdict(self, table: TableId = A) -> TableVerdict:
        """Verify one table."""
        [verdict] = self.run(self.spec(table)).tables
        return verdict

    def lose(self, table: TableId, key: int) -> None:
        """Let the state lose a row."""
        self.pipeline.target.put_rows(table, {(key,): None})


@pytest.fixture
def verified() -> Verified:
    return Verified()


def test_equal_tables_are_equal_without_a_wait_for_capture(verified: Verified) -> None:
    verified.pipeline.source.is_stalled = True
    with failpoint_action("await_verified_mark", before=lambda reached: pytest.fail("it waits")):
        assert [verdict.status for verdict in verified.run().tables] == ["equal", "equal"]


def test_a_difference_is_reported_with_its_chunk(verified: Verified) -> None:
    verified.lose(A, 4)
    [verdict] = verified.run(verified.spec(A, show_keys=True)).tables
    assert (verdict.status, verdict.missing, verdict.source_rows, verdict.state_rows) == ("different", 1, 12, 11)
    [place] = verdict.ranges
    assert (place.first, place.low, place.high) == (1, ("2",), ("5",))


def test_a_difference_that_a_second_read_does_not_show_is_not_reported(verified: Verified) -> None:
    verified.lose(A, 4)

    def mend(reached: object) -> None:
        verified.pipeline.target.put_rows(A, {(4,): ((4, 0), 0)})

    with failpoint_action("verify_chunks", after=mend):
        assert verified.verdict().status == "equal"


def test_another_difference_in_a_second_read_is_not_reported(verified: Verified) -> None:
    verified.lose(A, 4)

    def move(reached: object) -> None:
        verified.pipeline.target.put_rows(A, {(4,): ((4, 0), 0), (5,): None})

    with failpoint_action("verify_chunks", after=move):
        assert verified.verdict().status == "equal"


def test_a_budget_ends_it_and_a_later_run_continues(verified: Verified) -> None:
    [first] = verified.run(verified.spec(A, budget_s=-1.0)).tables
    assert (first.status, first.chunks, first.chunks_compared) == ("unfinished", 4, 0)
    assert verified.verdict().status == "equal"
    assert [(span.first, span.last) for span in verified.comparer.reads] == [(0, 1), (2, 3)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_run_continues_where_it_was(verified: Verified, when: str) -> None:
    verified.lose(A, 0)
    with killed("append_verified", when):  # type: ignore[arg-type]
        verified.run(verified.spec(A))
    verified.comparer.reads.clear()
    verdict = verified.verdict()
    assert (verdict.missing, verdict.source_rows) == (1, 12)
    assert verified.comparer.reads[0].first == (2 if when == "after" else 0)


def test_what_is_complete_is_not_read_again(verified: Verified) -> None:
    verified.verdict()
    verified.comparer.reads.clear()
    assert verified.verdict().status == "equal"
    assert verified.comparer.reads == []


def test_other_columns_begin_a_table_again(verified: Verified) -> None:
    verified.verdict()
    verified.pipeline.source.gain(A)
    verified.pipeline.change(A, 3, 3)
    verified.pipeline.passed()
    verified.comparer.reads.clear()
    assert verified.verdict().chunks_compared == 4
    assert len(verified.comparer.reads) >= 2


def test_a_table_without_its_new_column_in_the_target_is_refused(verified: Verified) -> None:
    verified.pipeline.source.gain(A)
    assert "has no column B yet" in verified.verdict().error


def test_a_table_that_is_not_in_the_target_is_refused() -> None:
    verified = Verified()
    verified.pipeline.source.tables = [*verified.pipeline.source.tables, TableId("S", "C")]
    verified.pipeline.source.rows[TableId("S", "C")] = {1: 1}
    assert "is not in the target yet" in verified.verdict(TableId("S", "C")).error


def test_a_table_whose_first_snapshot_is_under_way_is_refused(verified: Verified) -> None:
    verified.pipeline.restart(A)
    verified.pipeline.set(snapshot_budget_s=0.0)
    verified.pipeline.passed()
    verdict = verified.verdict()
    assert verdict.status == "failed"
    assert "still being filled by its first snapshot" in verdict.error
    assert verified.report.reports == {}


def test_a_table_that_begins_again_meanwhile_is_not_reported_as_wrong(verified: Verified) -> None:
    """Changes before its new beginning are in no window, and its state lacks them until its snapshot has read them."""
    verified.pipeline.set(snapshot_budget_s=0.0, snapshot_group_chunks=1)

    def begin_again() -> None:
        verified.pipeline.change(A, 40, 4)
        verified.pipeline.restart(A)
        verified.pipeline.passed()

    with once("verify_chunks", "before", begin_again):
        verdict = verified.verdict()
    assert "still being filled by its first snapshot" in verdict.error
    assert (verdict.status, verdict.rows_differing) == ("failed", 0)


def test_a_table_whose_changes_are_pruned_is_refused(verified: Verified) -> None:
    verified.pipeline.change(A, 3, 3)
    verified.pipeline.source.prune()
    verdict = verified.verdict()
    assert verdict.error.startswith("S.A cannot be verified now, because its changes since the last tick")
    assert "Run a tick of the pipeline first." in verdict.error
    assert verdict.rows_differing == 0


def test_a_failed_table_does_not_end_the_others(verified: Verified) -> None:
    verified.pipeline.change(A, 3, 3)
    verified.pipeline.source.inactive.add(A)
    assert [verdict.status for verdict in verified.run().tables] == ["failed", "equal"]


def test_a_stalled_capture_is_an_error(verified: Verified) -> None:
    verified.pipeline.source.commit({(A, 3): 3})
    verified.pipeline.source.is_stalled = True
    assert "capture did not pass the end of the read within 0 s" in verified.verdict().error


def test_what_was_not_applied_yet_is_not_compared(verified: Verified) -> None:
    for key in range(5):
        verified.pipeline.change(A, key, 9)
    verdict = verified.verdict()
    assert (verdict.status, verdict.keys_changed) == ("equal", 5)


def test_a_tick_after_each_read_makes_no_difference(verified: Verified) -> None:
    """The state is then newer than the rows that were read, and its position says nothing about the change."""
    ticks = 0

    def tick_after_the_first_row() -> None:
        nonlocal ticks
        if len(verified.comparer.reads) > ticks:
            ticks += 1
            verified.pipeline.change(A, 0, 100 + ticks)
            verified.pipeline.passed()

    verified.meanwhile = tick_after_the_first_row
    verdict = verified.verdict()
    assert (verdict.status, verdict.keys_changed) == ("equal", 1)


def test_rejected_and_excluded_tables_are_named(verified: Verified) -> None:
    spec = verified.spec(A, rejected=(RejectedTable(B, "stopped"),), excluded=(RejectedTable(B, "no key"),))
    verdicts = [(verdict.status, verdict.error) for verdict in verified.run(spec).tables]
    assert verdicts == [("equal", ""), ("failed", "stopped"), ("excluded", "no key")]


def test_counts_find_rows_that_changes_do_not_explain(verified: Verified) -> None:
    verified.comparer.quick = True
    for key in (1, 2, 3):
        verified.lose(A, key)
    [verdict] = verified.run(verified.spec(A, quick=True)).tables
    assert (verdict.missing, verdict.status) == (3, "different")


def test_counts_accept_what_changes_explain(verified: Verified) -> None:
    verified.comparer.quick = True
    verified.pipeline.change(A, 3, None)
    [verdict] = verified.run(verified.spec(A, quick=True)).tables
    assert (verdict.status, verdict.keys_changed) == ("equal", 1)
