"""Requests of an operator to restart tables or to restore their offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.memory_offsets import MemoryOffsets

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request_change import describe_requests, find_failed, with_requests
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary, TableFailure
from airflow_provider_db2cdc.cdc.signal.action import OffsetAction
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

A, B, C, UNKNOWN = (TableId("S", name) for name in ("A", "B", "C", "UNKNOWN"))
SHORT = Lsn(b"\1" * 10)
OFFSET = Offset(A, SHORT, 3, capture_interrupted=True, source_restored=True, revision="old", planned_at_ms=5)


@pytest.fixture
def offsets() -> MemoryOffsets:
    """Offsets of a pipeline with three tables, of which A has one."""
    return MemoryOffsets(OFFSET, summary=PipelineSummary(tables=(A, B, C)))


def keep(action: OffsetAction, tables: list[TableId], offsets: MemoryOffsets, revision: str) -> list[str]:
    """Keep requests as the command does, and return what it prints."""
    lines = describe_requests(action, tables, offsets.read(), "memory")
    offsets.put_requests(lambda seen: with_requests(action, tables, seen, revision))
    return lines


def test_request_keeps_the_position_and_what_is_recorded_of_lost_changes(offsets: MemoryOffsets) -> None:
    [line] = keep("restart", [A], offsets, "new")
    assert offsets.get(A) == replace(OFFSET, restart=True, revision="new")
    assert line == f"{A}: the next tick snapshots it again and replaces its state"
    [line] = keep("restore", [A], offsets, "newer")
    assert offsets.get(A) == replace(OFFSET, restore=True, revision="newer"), "it takes the restart back"
    assert line == f"{A}: the next tick takes its offset from the target and continues there (now it is {SHORT})"
    keep("restart", [A], offsets, "newest")
    assert offsets.get(A) == replace(OFFSET, restart=True, revision="newest"), "it takes the restore back"


def test_lost_offset_gets_a_request_without_a_position(offsets: MemoryOffsets) -> None:
    offsets.damage(C)
    lines = keep("restore", [B, C], offsets, "new")
    for table in (B, C):
        assert offsets.get(table) == Offset(table, Lsn(bytes(10)), 0, restore=True, revision="new"), "as wide as others"
    assert all("(now it is lost)" in line for line in lines)


def test_request_of_an_unknown_table_keeps_nothing(offsets: MemoryOffsets) -> None:
    with pytest.raises(ConfigurationError, match=r"S\.UNKNOWN has no offset in memory, and .* no such table"):
        keep("restart", [A, UNKNOWN], offsets, "new")
    assert offsets.get(A) == OFFSET
    offsets.put(replace(OFFSET, table=UNKNOWN))
    assert keep("restart", [UNKNOWN], offsets, "new"), "it has an offset"


def test_repeated_request_that_a_tick_has_consumed_changes_nothing(offsets: MemoryOffsets) -> None:
    keep("restart", [A], offsets, "new")
    consumed = replace(OFFSET, revision="new")
    offsets.put(consumed)
    keep("restart", [A], offsets, "new")
    assert offsets.get(A) == consumed


def test_repeated_request_that_a_tick_has_consumed_replaces_no_newer_one(offsets: MemoryOffsets) -> None:
    keep("restart", [A], offsets, "first")
    offsets.put(replace(OFFSET, revision="first"))
    keep("restore", [A], offsets, "second")
    newer = offsets.get(A)
    assert newer is not None
    assert newer.restore
    keep("restart", [A], offsets, "first")
    assert offsets.get(A) == newer


@pytest.mark.parametrize(("action", "tables"), [("restart", [A, B, C]), ("restore", [B, C])])
def test_all_failed_tables_are_those_that_the_action_helps(
    offsets: MemoryOffsets, action: OffsetAction, tables: list[TableId]
) -> None:
    assert find_failed(action, offsets.read()) == []
    failures = (TableFailure(B, "its offset is missing", waits_for_operator=True), TableFailure(A, "a gap"))
    offsets.put_summary(replace(offsets.summary(), failures=failures))
    offsets.damage(C)
    assert find_failed(action, offsets.read()) == tables
