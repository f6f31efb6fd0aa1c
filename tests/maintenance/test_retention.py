"""A change log is trimmed up to the retention, and never beyond what something still needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance.retention import (
    LogAge,
    LogHorizon,
    LogNeed,
    find_horizon,
    log_needs,
)
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, Status
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    DeleteMissing,
    KeyedChunks,
    KeylessRead,
    TableSnapshot,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

TABLE, OTHER = TableId("S", "T"), TableId("S", "O")
IDENTITY = CaptureIdentity("C", "a", "b", "0")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def planned(batch: int, chunk_range: ChunkRange | None = None, table: TableId = TABLE) -> PlannedBatch:
    return PlannedBatch(batch, "run", "plan", table, lsn(1), lsn(2), 5, IDENTITY, chunk_range)


@pytest.mark.parametrize(
    ("age", "needs", "horizon"),
    [
        (LogAge(9, 5), [], 5),
        (LogAge(9, None), [], 9),
        (LogAge(9, 12), [], 9),
        (LogAge(9, 5), [LogNeed(7), LogNeed(5)], 5),
        (LogAge(9, 5), [LogNeed(7), LogNeed(3), LogNeed(4)], 3),
        (LogAge(9, 5), [LogNeed(5, "asked"), LogNeed(4)], 4),
        (LogAge(9, 5), [LogNeed(6, "asked")], 5),
    ],
)
def test_horizon_is_the_retention_or_an_earlier_need(age: LogAge, needs: list[LogNeed], horizon: int) -> None:
    assert find_horizon(TABLE, age, needs) == horizon


def test_a_retention_shorter_than_an_open_snapshot_needs_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"S\.T: change\.log\.retention is shorter .* 'asked' .* batch 4 on"
    ) as error:
        find_horizon(TABLE, LogAge(9, 5), [LogNeed(4, "asked")])
    assert "set a longer retention" in error.value.remedy


def opened(status: Status = "running", **values: Any) -> Snapshot:
    own = TableSnapshot(TABLE, status="reading", **values)
    return Snapshot("asked", "incremental", (own, TableSnapshot(OTHER, status="reading", low_batch=1)), status=status)


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ({"low_batch": 4}, 5),
        ({"windows": ((6, 7), (7, 9))}, 7),
        ({"low_batch": 6, "windows": ((5, 7),)}, 6),
    ],
)
def test_an_open_snapshot_needs_the_batches_since_its_first_read(values: dict[str, Any], first: int) -> None:
    assert log_needs(TABLE, [opened(**values)], None, [], None) == [LogNeed(first, "asked")]
    assert log_needs(TABLE, [opened("paused", **values)], None, [], None) == [LogNeed(first, "asked")]
    assert log_needs(TABLE, [opened("completed", **values)], None, [], None) == []


def test_a_snapshot_that_has_read_nothing_needs_no_older_batch() -> None:
    assert log_needs(TABLE, [opened()], None, [], None) == []


def test_a_table_snapshot_that_is_over_needs_nothing() -> None:
    over = TableSnapshot(TABLE, status="completed", low_batch=4)
    still = TableSnapshot(OTHER, status="reading", low_batch=1)
    assert log_needs(TABLE, [Snapshot("asked", "incremental", (over, still))], None, [], None) == []


T = TypeVar("T", KeyedChunks, KeylessRead, DeleteMissing)


def chunks(kind: type[T], low_batch: int, first_low_batch: int, **more: Any) -> T:
    return kind("asked", "incremental", 0, 0, lsn(1), low_batch, first_low_batch, "f", **more)


@pytest.mark.parametrize(
    ("chunk_range", "first"),
    [
        (None, 8),
        (chunks(KeyedChunks, 7, 6), 7),
        (chunks(KeyedChunks, 4, 5), 5),
        (chunks(KeylessRead, 7, 7, windows=((3, 5), (5, 8))), 4),
        (chunks(DeleteMissing, 5, 5), 6),
    ],
)
def test_a_pending_batch_needs_its_window(chunk_range: ChunkRange | None, first: int) -> None:
    assert log_needs(TABLE, [], None, [planned(8, chunk_range), planned(1, table=OTHER)], None) == [LogNeed(first)]


def test_progress_that_only_the_batch_log_knows_counts_too() -> None:
    published = chunks(KeyedChunks, 7, 3)
    assert log_needs(TABLE, [opened()], published, [], None) == [LogNeed(4, "asked")]
    assert log_needs(TABLE, [opened(low_batch=2)], published, [], None) == [LogNeed(3, "asked")]
    assert log_needs(TABLE, [opened("completed")], published, [], None) == []
    other = replace(published, snapshot="earlier")
    assert log_needs(TABLE, [opened()], other, [], None) == []


def test_readers_of_the_oldest_manifest_row_continue_after_its_batch() -> None:
    assert log_needs(TABLE, [], None, [], 6) == [LogNeed(7)]


def test_a_horizon_survives_its_text() -> None:
    for horizon in (LogHorizon(), LogHorizon(7), LogHorizon(7, lsn(300)), LogHorizon(7, lsn(30), lsn(300))):
        assert LogHorizon.parse(str(horizon) if horizon.is_trimmed else "") == horizon


def test_a_horizon_keeps_the_greatest_lsn_of_each_history() -> None:
    """The source is restored after LSN 90, and its LSNs begin again. Before all that they had 10 bytes."""
    narrow = Lsn(b"\xff" * 10)
    first = LogHorizon().moved(3, [narrow, lsn(10), lsn(90)])
    assert first == LogHorizon(3, lsn(90))
    second = first.moved(5, [lsn(20), lsn(30)])
    assert second == LogHorizon(5, lsn(30), lsn(90))
    assert second.moved(6, []) == LogHorizon(6, lsn(30), lsn(90))
    assert second.moved(6, [lsn(95)]) == LogHorizon(6, lsn(95))


@pytest.mark.parametrize(
    ("horizon", "after", "has"),
    [
        (LogHorizon(), None, True),
        (LogHorizon(5, lsn(30)), None, False),
        (LogHorizon(5, lsn(30)), lsn(29), False),
        (LogHorizon(5, lsn(30)), lsn(30), True),
        (LogHorizon(5, lsn(30), lsn(90)), lsn(89), False),
        (LogHorizon(5, lsn(30), lsn(90)), lsn(90), True),
        (LogHorizon(5, Lsn(b"\xff" * 10)), lsn(1), True),
        (LogHorizon(5, lsn(30)), Lsn(b"\xff" * 10), False),
    ],
)
def test_a_trimmed_log_has_commits_after_all_that_it_lost(horizon: LogHorizon, after: Lsn | None, has: bool) -> None:
    assert horizon.has_commits_after(after) == has
