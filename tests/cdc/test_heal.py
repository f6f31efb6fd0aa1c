"""Which tables a heal compares as a whole, in which groups, and when it has mended a foreign change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.heal import begins_heal, ends_heal, needs_one_group, tables_to_heal
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue, add_initial
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, next_group
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    ChunkSpan,
    DeleteMissing,
    KeyedChunks,
    KeylessRead,
    TableSnapshot,
    restarted,
)
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema

A, B = TableId("S", "A"), TableId("S", "B")
LOW = Lsn(bytes(15) + b"\1")
TEXT, NUMBER = Column("ID", "VARCHAR", 9, nullable=False), Column("ID", "INTEGER", 4, nullable=False)
LAST, FIRST = ChunkCounts(("3",), (), 1, 1), ChunkCounts((), ("3",), 1, 1)
HEALS = TableSnapshot(A, delete_missing=True, differences_only=True)


def chunks(*counts: ChunkCounts, **facts: Any) -> KeyedChunks:
    """Return chunks of a heal whose first group began after batch 5."""
    facts = {"differences_only": True, **facts}
    return KeyedChunks("s", "heal", 0, len(counts) - 1, LOW, 6, 5, "f", counts=counts, **facts)


def heal(*patterns: str, id_: str = "1", **more: Any) -> Signal:
    """Return a request for a heal."""
    data = {"data-collections": patterns, "type": "heal", **more}
    return Signal(id_, "execute-snapshot", json.dumps(data), "airflow")


@pytest.mark.parametrize(
    ("part", "key", "wanted"),
    [
        (HEALS, NUMBER, False),
        (HEALS, TEXT, True),
        (replace(HEALS, surrogate="B"), NUMBER, True),
        (replace(HEALS, differences_only=False), TEXT, False),
        (replace(HEALS, delete_missing=False, condition="ID > 5"), TEXT, False),
    ],
)
def test_rows_that_chunk_ends_do_not_bound_are_compared_together(
    part: TableSnapshot, key: Column, wanted: bool
) -> None:
    schema = TableSchema(A, (key,), ("ID",))
    assert needs_one_group(part, schema) is wanted
    assert not needs_one_group(part, replace(schema, key=())), "images are compared, not ranges"


def test_a_table_that_is_compared_as_a_whole_exceeds_the_group() -> None:
    whole = replace(HEALS, status="reading", bounds=(("1",),) * 9, in_one_group=True)
    other = replace(whole, table=B, in_one_group=False)
    assert next_group(Snapshot("s", "heal", (whole, other)), {}, 3) == [ChunkSpan(A, 0, 9)]
    assert next_group(Snapshot("s", "heal", (other, whole)), {}, 3) == [ChunkSpan(B, 0, 2)]
    assert next_group(Snapshot("s", "heal", (whole, other)), {A: 10}, 3) == [ChunkSpan(B, 0, 2)]


@pytest.mark.parametrize(
    ("chunk_range", "begins", "ends"),
    [
        (chunks(FIRST, LAST), True, True),
        (chunks(FIRST), True, False),
        (replace(chunks(LAST), first=1), False, True),
        (chunks(FIRST, LAST, differences_only=False), False, False),
        (chunks(FIRST, LAST, condition="ID > 5"), False, False),
        (DeleteMissing("s", "heal", 0, 0, LOW, 6, 5, "f"), False, False),
        (KeylessRead("s", "heal", 0, 0, LOW, 6, 5, "f", counts=(LAST,), differences_only=True), True, True),
        (
            KeylessRead(
                "s", "heal", 0, 0, LOW, 6, 5, "f", counts=(LAST,), differences_only=True, needs_another_read=True
            ),
            True,
            False,
        ),
        (None, False, False),
    ],
)
def test_a_heal_begins_with_its_first_chunk_and_ends_with_its_last(
    chunk_range: ChunkRange | None, begins: bool, ends: bool
) -> None:
    assert begins_heal(chunk_range) is begins
    assert ends_heal(chunk_range, since=5) is ends
    assert not ends_heal(chunk_range, since=6), "the change came after the first comparison"


def test_a_requested_heal_of_a_whole_table_counts_before_it_is_accepted() -> None:
    tables = {A: "", B: ""}
    condition: dict[str, Any] = {"additional-conditions": [{"data-collection": "S.A", "filter": "ID > 5"}]}
    queue = SnapshotQueue((Snapshot("9", "heal", (replace(HEALS, table=B),)),))
    assert tables_to_heal(SnapshotQueue(), [heal("S.*")], tables) == {A, B}
    assert tables_to_heal(SnapshotQueue(), [heal("S.*", **condition)], tables) == {B}
    assert tables_to_heal(SnapshotQueue(), [heal("S.X"), heal("(", id_="2"), heal("S.A", id_="3")], tables) == {A}
    assert tables_to_heal(queue, [], tables) == {B}
    partial = Snapshot("9", "heal", (replace(HEALS, condition="ID > 5"),))
    assert tables_to_heal(SnapshotQueue((partial,)), [], tables) == frozenset()
    assert (
        tables_to_heal(replace(queue, snapshots=(Snapshot("9", "incremental", (HEALS,)),)), [], tables) == frozenset()
    )
    answered = SnapshotQueue().with_outcome(SignalOutcome("1", "airflow", "refused", "", heal("S.A").asked))
    assert tables_to_heal(answered, [heal("S.A")], tables) == frozenset()


def test_the_heal_of_a_gap_stays_one_until_it_ends() -> None:
    [begun] = add_initial(SnapshotQueue(), [HEALS], 5).open
    assert begun.tables[0].differences_only
    assert restarted(begun.tables[0], is_held=True).differences_only


def test_a_waiting_heal_does_not_stand_for_a_snapshot() -> None:
    queue = add_initial(SnapshotQueue(), [HEALS], 5)
    assert queue.is_waiting(HEALS)
    assert not queue.is_waiting(replace(HEALS, differences_only=False))
