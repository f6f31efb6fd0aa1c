"""The ranges of a table's asset events, whatever happens to the runs that emit them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.job_samples import job_result, lsn, table_result
from support.memory_offsets import FileOffsets

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement, announce, confirm, in_event
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.offsets.commit import Announcements, commit_tick

ORDERS = TableId("SALES", "ORDERS")
FIRST = Announcement("log", 0, 4, lsn(1), lsn(4), 3, 70)


def result(batch: int, events: int = 2, **values: Any) -> TableResult:
    return table_result("ORDERS", batch=batch, upto=batch, creates=events, **{"commit_ts_ms": None, **values})


def test_first_range_begins_with_the_change_log() -> None:
    assert announce(result(4, 3, commit_ts_ms=70), None) == FIRST


def test_a_range_begins_where_the_confirmed_one_ends() -> None:
    confirmed = replace(FIRST, is_confirmed=True)
    assert announce(result(6, 2, commit_ts_ms=90), confirmed) == Announcement("log", 4, 6, lsn(4), lsn(6), 2, 90)


def test_a_range_also_has_the_one_that_no_event_has() -> None:
    assert announce(result(6, 2), FIRST) == Announcement("log", 0, 6, lsn(1), lsn(6), 5, 70)
    assert announce(result(6, 2, commit_ts_ms=90), FIRST) == Announcement("log", 0, 6, lsn(1), lsn(6), 5, 90)


@pytest.mark.parametrize("later", [result(4), result(3), result(6, 0)])
def test_a_result_without_new_events_changes_no_range(later: TableResult) -> None:
    for last in (FIRST, replace(FIRST, is_confirmed=True)):
        assert announce(later, last) == last


def test_a_table_whose_first_run_died_is_announced() -> None:
    """No offset says which batches no commit has announced, so the next tick counts none of them."""
    assert announce(result(4, 0, rows=3, after=None), None) == replace(FIRST, from_lsn=None, commit_ts_ms=None)
    assert announce(result(4, 0, rows=0), None) is None
    counted = announce(result(4, 2, rows=9), None)
    assert counted is not None
    assert counted.rows == 9, "what the change log has at least"


@pytest.mark.parametrize("fact", ["offset_recovered", "reinitialized"])
def test_what_a_dead_run_applied_is_announced_without_an_offset(fact: str) -> None:
    """The plan of such a table names no batch, so the tick counts only its own events."""
    confirmed = replace(FIRST, is_confirmed=True)
    assert announce(result(6, 0, **{fact: True}), confirmed) == Announcement("log", 4, 6, lsn(4), lsn(6), 0)
    assert announce(result(4, 0, **{fact: True}), confirmed) == confirmed


def test_events_of_each_kind_are_announced() -> None:
    nothing = result(4, 0)
    kinds = [replace(nothing, creates=3), replace(nothing, updates=3), replace(nothing, deletes=3)]
    for table in (*kinds, replace(nothing, reads=3)):
        announced = announce(table, None)
        assert announced is not None
        assert announced.rows == 3


def test_an_announcement_is_read_back_from_its_event() -> None:
    for announcement in (FIRST, replace(FIRST, from_lsn=None, commit_ts_ms=None)):
        assert in_event({**announcement.extra, "more": 1}) == replace(announcement, is_confirmed=True)


@pytest.mark.parametrize("extra", [None, {}, {"from_rest_api": True}, {**FIRST.extra, "to_lsn": "x"}])
def test_an_event_without_a_range_has_no_announcement(extra: dict[str, Any] | None) -> None:
    assert in_event(extra) is None


def test_the_newest_event_confirms() -> None:
    there = replace(FIRST, is_confirmed=True)
    assert confirm(FIRST, there) == there
    assert confirm(None, there) == there
    assert confirm(replace(FIRST, to_batch=6), there) == replace(FIRST, to_batch=6)
    assert confirm(FIRST, None) == FIRST


def test_an_older_offset_that_was_put_back_announces_no_batch_twice() -> None:
    last = replace(FIRST, is_confirmed=True)
    newest = Announcement("log", 4, 9, lsn(4), lsn(9), 5, is_confirmed=True)
    announcements = Announcements(lambda table, log_id: newest)
    assert announcements.after(result(9, 5, has_unreported=True), last) == newest
    assert not announcements.pending
    later = announcements.after(result(10, 6, has_unreported=True), last)
    assert later is not None
    assert (later.from_batch, later.to_batch) == (9, 10)
    assert announcements.after(result(10, 6), last) == Announcement("log", 4, 10, lsn(4), lsn(10), 6), "not asked"


class Pipeline:
    """One table, its batches, its offset, and the events that Airflow has."""

    def __init__(self, folder: Path) -> None:
        self.store = FileOffsets(folder / "offsets.json")
        self.batches: list[int] = []
        self.events: list[Announcement] = []
        self.asked = 0
        self.log_id = "log"

    def newest(self, table: TableId, log_id: str) -> Announcement | None:
        assert table == ORDERS
        self.asked += 1
        same = [event for event in self.events if event.log_id == log_id]
        return max(same, key=lambda event: event.to_batch, default=None)

    def tick(self, at: int) -> JobResult:
        """Return the result of a tick that ends with the newest batch. It counts from the offset."""
        offset = self.store.get(ORDERS)
        rows = sum(self.batches[offset.batch if offset else 0 :])
        table = result(len(self.batches), rows, log_id=self.log_id)
        return replace(job_result(table), planned_at_ms=at)

    def commit(self, done: JobResult, succeeds: bool = True) -> None:
        announcements = Announcements(self.newest)
        _, unkept = commit_tick(done, self.store, announcements)
        assert unkept is None
        if succeeds:
            self.events += [replace(event, is_confirmed=True) for event in announcements.pending.values()]

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        return [(event.from_batch, event.to_batch, event.rows) for event in self.events]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def test_a_run_that_fails_after_its_offset_moved_leaves_no_hole(pipeline: Pipeline) -> None:
    for at, succeeds in enumerate((True, False, False, True)):
        pipeline.batches.append(at + 1)
        pipeline.commit(pipeline.tick(at), succeeds)
    assert pipeline.ranges == [(0, 1, 1), (1, 4, 9)]


def test_a_lost_event_is_announced_by_a_tick_without_changes(pipeline: Pipeline) -> None:
    pipeline.batches += [3]
    pipeline.commit(pipeline.tick(1), succeeds=False)
    pipeline.batches += [0]
    pipeline.commit(pipeline.tick(2))
    assert pipeline.ranges == [(0, 1, 3)]


def test_a_cleared_commit_announces_only_what_was_lost(pipeline: Pipeline) -> None:
    pipeline.batches += [3]
    done = pipeline.tick(1)
    pipeline.commit(done, succeeds=False)
    for _ in range(3):
        pipeline.commit(done)
    assert pipeline.ranges == [(0, 1, 3)]


def test_a_first_run_that_died_before_its_commit_is_announced(pipeline: Pipeline) -> None:
    pipeline.batches += [3, 0]
    [table] = pipeline.tick(1).tables
    unchanged = replace(table, creates=0, after=None, status="unchanged", rows=3)
    pipeline.commit(replace(job_result(unchanged), planned_at_ms=2))
    assert pipeline.ranges == [(0, 2, 3)]


def test_airflow_is_asked_until_it_has_the_event(pipeline: Pipeline) -> None:
    for at in range(3):
        pipeline.batches.append(1)
        pipeline.commit(pipeline.tick(at))
    assert pipeline.asked == 3
    pipeline.batches.append(0)
    for at in (3, 4):
        pipeline.commit(pipeline.tick(at))
    assert pipeline.asked == 4, "the last event is confirmed"


def test_ranges_continue_though_airflow_has_deleted_its_events(pipeline: Pipeline) -> None:
    for at, events in enumerate((1, 2, 0)):
        pipeline.batches.append(events)
        pipeline.commit(pipeline.tick(at))
    pipeline.events.clear()
    pipeline.batches.append(3)
    pipeline.commit(pipeline.tick(9))
    assert pipeline.ranges == [(2, 4, 3)]


def test_a_lost_offset_takes_the_range_from_airflow(pipeline: Pipeline) -> None:
    pipeline.batches += [3]
    pipeline.commit(pipeline.tick(1))
    pipeline.store.put(Offset(ORDERS, lsn(1), 1))
    pipeline.batches += [4]
    pipeline.commit(pipeline.tick(2))
    assert pipeline.ranges == [(0, 1, 3), (1, 2, 4)]


def test_another_change_log_is_announced_from_its_begin(pipeline: Pipeline) -> None:
    pipeline.batches += [3, 4]
    pipeline.commit(pipeline.tick(1))
    pipeline.batches, pipeline.log_id = [5], "other"
    offset = pipeline.store.get(ORDERS)
    assert offset is not None
    pipeline.store.put(replace(offset, batch=0, restart=True, revision="r"))
    [table] = pipeline.tick(2).tables
    pipeline.commit(replace(job_result(replace(table, restart=True, revision="r")), planned_at_ms=2))
    assert pipeline.ranges == [(0, 2, 7), (0, 1, 5)]


@pytest.mark.parametrize(("found", "asked"), [(1, 0), (2, 0), (0, 1)], ids=["its own", "a newer one", "an older one"])
def test_recent_events_are_asked_for_at_once(pipeline: Pipeline, found: int, asked: int) -> None:
    pipeline.batches += [3]
    pipeline.commit(pipeline.tick(1))
    pipeline.batches += [4]
    own = pipeline.events[0]
    recent, counts = replace(own, to_batch=found, to_lsn=lsn(found)), list[int]()

    def recently(tables: int) -> Mapping[tuple[TableId, str], Announcement]:
        counts.append(tables)
        return {(ORDERS, "log"): recent}

    before, announcements = pipeline.asked, Announcements(pipeline.newest, recently)
    commit_tick(pipeline.tick(2), pipeline.store, announcements)
    assert (counts, pipeline.asked - before) == ([1], asked)
    pending = announcements.pending.get(ORDERS)
    assert (pending.from_batch if pending else None) == {1: 1, 2: None, 0: 1}[found]


def test_an_offset_that_cannot_be_kept_is_not_announced(pipeline: Pipeline) -> None:
    pipeline.batches += [3]
    pipeline.store.put(Offset(ORDERS, lsn(9), 0))
    announcements = Announcements(pipeline.newest)
    assert commit_tick(pipeline.tick(1), pipeline.store, announcements)[1] is not None
    assert announcements.pending == {}


@pytest.mark.parametrize("seed", range(60))
def test_ranges_have_each_batch_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    rng, pipeline = random.Random(seed), Pipeline(tmp_path)
    done: list[JobResult] = []
    for at in range(25):
        pipeline.batches += [rng.choice((0, 1, 5)) for _ in range(rng.choice((0, 1, 1, 2)) if at else 1)]
        done.append(pipeline.tick(at))
        for _ in range(rng.choice((0, 1, 1, 2))):
            pipeline.commit(done[-1], succeeds=rng.random() < 0.6)
        if rng.random() < 0.3:
            pipeline.commit(rng.choice(done), succeeds=rng.random() < 0.6)
    pipeline.batches.append(1)
    pipeline.commit(pipeline.tick(99))
    ranges = pipeline.ranges
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(pipeline.batches)
    assert all(earlier[1] == later[0] for earlier, later in pairwise(ranges))
    assert [rows for _, _, rows in ranges] == [sum(pipeline.batches[start:end]) for start, end, _ in ranges]
