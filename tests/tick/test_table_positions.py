"""Positions of tables at the start of a tick: after a restored source, a first try of its plan, or stale offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.job import ApplySettings, JobSpec, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import GapError, OffsetError
from airflow_provider_db2cdc.tick.table_positions import TablePositions

T = TableId("S", "T")
SCHEMA = TableSchema(T, (Column("ID", "INTEGER", 4, nullable=False),), ("ID",))
OLD, NOW = "old", "now"
"""Plans."""


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def task(capture: CaptureRegistration, believed: int | None, upto: int, restart: bool = False) -> TableTask:
    return TableTask(
        SCHEMA, capture, None if believed is None else lsn(believed), lsn(upto), 0, "restart" if restart else "pull"
    )


def standing(
    capture: CaptureRegistration, last: int, fence: int, by: str = OLD, on_gap: bool = False
) -> TablePositions:
    """Return the position of a table for a plan of NOW. A plan `by` applied it up to `last`. Capture continues."""
    commit = AppliedBatch(7, T, lsn(last), capture.identity, 0, 0, 0, 0, None, 0, 1, 5)
    spec = JobSpec(
        "p",
        "run",
        NOW,
        2_000,
        "/t",
        SourceSpec("jdbc:db2://h:1/D:", "D", "s", "ASN"),
        CapturePosition(lsn(fence), "", "", 0.0),
        (),
        settings=ApplySettings(snapshot_on_gap=on_gap),
    )
    part = PlannedBatch(7, "run", by, T, lsn(0), lsn(last), 2_000, capture.identity)
    history = BatchHistory(
        last={T: commit}, tables_with_offset=frozenset({T}), newest_batch=7, applied={T: [(part, commit)]}
    )
    return TablePositions(spec, history, lambda: lsn(fence + 20))


def apply_batch(positions: TablePositions, upto: int) -> None:
    """Apply a batch that NOW planned."""
    last = positions.last[T]
    planned = PlannedBatch(8, "run", NOW, T, last.upto, lsn(upto), 2_000, last.capture)
    positions.advance(planned, replace(last, batch=8, upto=lsn(upto)))


@pytest.fixture
def instance() -> CaptureRegistration:
    """A capture instance that nothing was pruned of."""
    identity = CaptureIdentity("ASN.CD", "2026-01-01", "2025-01-01", "0")
    return CaptureRegistration(T, "ASN", "CD", "A", "", "DI", None, None, None, (Column("ID", "INTEGER"),), identity)


def test_a_table_of_a_restored_source_is_set_back_also_by_a_retry(instance: CaptureRegistration) -> None:
    one, behind = standing(instance, last=90, fence=10, on_gap=True), task(instance, 90, 10)
    assert one.pull_after(behind) is None
    assert one.is_new(behind)
    assert one.position(behind).upto == lsn(10)
    assert not one.is_rewound(behind)
    apply_batch(one, upto=20)
    assert one.is_rewound(behind)
    assert not one.is_new(behind)

    retry = standing(instance, last=20, fence=10, by=NOW, on_gap=True)
    assert retry.pull_after(behind) == lsn(20)
    assert retry.is_rewound(behind)
    assert standing(instance, last=20, fence=30, on_gap=True).pull_after(behind) is None, (
        "the store never had it: initial"
    )
    with pytest.raises(OffsetError, match="ahead of the target"):
        standing(instance, last=20, fence=30).pull_after(behind)


def test_a_restart_has_begun_with_the_first_batch_of_its_plan(instance: CaptureRegistration) -> None:
    asked = task(instance, None, 50, restart=True)
    assert standing(instance, last=40, fence=50).is_new(asked)
    begun = standing(instance, last=60, fence=50, by=NOW)
    assert not begun.is_new(asked)
    assert begun.position(asked).upto == lsn(60)


def test_pruned_changes_that_are_not_pulled_are_missed_only_by_a_snapshot(instance: CaptureRegistration) -> None:
    pruned = replace(instance, pruned_upto=lsn(45))
    one, idle, pulled = standing(instance, last=40, fence=50), task(pruned, 40, 40), task(pruned, 40, 50)
    assert one.pull_after(idle) == lsn(40)
    with pytest.raises(GapError, match="pruned"):
        one.check_window(idle)
    with pytest.raises(GapError, match="pruned"):
        one.pull_after(pulled)
    one.check_window(pulled)
    one.check_window(task(instance, 40, 40))
    limited = task(pruned, 30, 40)
    with pytest.raises(GapError, match="pruned"):
        one.pull_after(limited)


@pytest.mark.parametrize(("believed", "stored"), [(None, True), (60, True)], ids=["lost", "ahead"])
def test_an_offset_to_be_put_back_does_not_hide_that_changes_are_missing(
    instance: CaptureRegistration, believed: int | None, stored: bool
) -> None:
    missing = replace(task(instance, believed, 70), capture_interrupted=True)
    with pytest.raises(GapError, match="was not active for a while"):
        standing(instance, last=50, fence=70).pull_after(missing)


def test_unreported_batches_are_reported_by_the_next_tick(instance: CaptureRegistration) -> None:
    def told(batch: int, plan: str) -> list[int]:
        found = standing(instance, last=50, fence=70, by=plan).unreported(replace(task(instance, 40, 70), batch=batch))
        return [commit.batch for _, commit in found]

    assert told(batch=6, plan=OLD) == [7], "the previous tick died after it"
    assert told(batch=7, plan=OLD) == told(batch=0, plan=OLD) == []
    assert told(batch=0, plan=NOW) == [7], "a first try of this plan"


@pytest.mark.parametrize("on_gap", [False, True])
def test_a_source_found_restored_is_a_gap_until_the_table_is_restarted(
    instance: CaptureRegistration, on_gap: bool
) -> None:
    found = replace(task(instance, 50, 70), source_restored=True)
    one = standing(instance, last=50, fence=70, on_gap=on_gap)
    if not on_gap:
        with pytest.raises(GapError, match=r"the source was restored.*offset set S\.T"):
            one.pull_after(found)
        return
    assert one.pull_after(found) is None
    assert one.is_new(found)
    apply_batch(one, upto=70)
    assert one.is_reinitialized(found)
    assert standing(instance, last=70, fence=70, by=NOW).pull_after(found) == lsn(70), "a retry continues after it"


@pytest.mark.parametrize(("believed", "waits"), [(None, True), (60, True), (50, False), (40, False)])
def test_a_missing_offset_or_one_ahead_waits_for_an_operator(
    instance: CaptureRegistration, believed: int | None, waits: bool
) -> None:
    one, asked = standing(instance, last=50, fence=70), task(instance, believed, 70)
    if waits:
        with pytest.raises(OffsetError):
            one.pull_after(asked)
    else:
        assert one.pull_after(asked) == lsn(50)
    assert one.waiting_for_operator == ({T} if waits else set())
    assert not one.offset_recovered
    mended = standing(instance, last=50, fence=70, on_gap=True)
    assert (mended.pull_after(asked), mended.waiting_for_operator) == (None if waits else lsn(50), set())


def test_a_missing_offset_is_recovered_by_the_mode_or_if_never_stored(
    instance: CaptureRegistration,
) -> None:
    asked = task(instance, None, 70)
    for change in ("mode", "never stored"):
        one = standing(instance, last=50, fence=70)
        if change == "mode":
            one.spec = replace(one.spec, settings=replace(one.spec.settings, recover_offsets=True))
        else:
            one.history = replace(one.history, tables_with_offset=frozenset())
        assert one.pull_after(asked) == lsn(50)
        assert (one.offset_recovered, one.waiting_for_operator) == ({T}, set())
