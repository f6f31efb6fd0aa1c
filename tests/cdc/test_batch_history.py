"""The history of a batch log equals a fold over its batches in their order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch, build_history
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import KeyedChunks
from airflow_provider_db2cdc.cdc.table import TableId

TABLES = [TableId("S", name) for name in "ABC"]
CAPTURE = CaptureIdentity("ASNCDC.CD", "2026-01-01", "2025-01-01", "0")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def planned_batch(batch: int, table: TableId, has_range: bool, has_offset: bool = False) -> PlannedBatch:
    of = KeyedChunks(f"snapshot{batch}", "incremental", 0, 0, lsn(batch), batch, batch, "fp") if has_range else None
    return PlannedBatch(
        batch, f"run{batch}", f"plan{batch}", table, lsn(batch), lsn(batch + 1), batch, CAPTURE, of, has_offset
    )


def applied_batch_of(of: PlannedBatch) -> AppliedBatch:
    snapshot = of.chunk_range.snapshot if of.chunk_range else None
    return AppliedBatch(of.batch, of.table, of.upto, CAPTURE, 1, 2, 3, 4, None, 0, of.batch * 10, 5, snapshot=snapshot)


def place(of: PlannedBatch) -> tuple[int, str]:
    return of.batch, str(of.table)


# Of each batch: its tables, and for each whether it has a chunk range, is applied at once, was planned with an offset.
parts = st.tuples(st.sampled_from(TABLES), st.booleans(), st.booleans(), st.booleans())
batches = st.lists(st.lists(parts, min_size=1, max_size=3, unique_by=lambda part: part[0]), max_size=8)


@given(batches, st.randoms(use_true_random=False), st.booleans())
def test_a_history_is_built_as_it_happened(
    planned: list[list[tuple[TableId, bool, bool, bool]]], rng: random.Random, twice: bool
) -> None:
    entries, commits = [], []
    last, stored, chunk_ranges = {}, set(), {}
    applied: dict[Any, Any] = {}
    pending: dict[Any, Any] = {}
    for number, batch in enumerate(planned, 1):
        for table, has_range, is_applied, has_offset in batch:
            one = planned_batch(number, table, has_range, has_offset)
            entries.append(one)
            pending.setdefault(table, []).append(one)
            stored |= {table} if has_offset else set()
            if not is_applied:
                continue
            # A new batch overtakes pending ones: only a restart plans one for such a table.
            pending[table] = []
            applied_batch = applied_batch_of(one)
            commits += [applied_batch, applied_batch] if twice else [applied_batch]
            last[table] = applied_batch
            applied.setdefault(table, []).append((one, applied_batch))
            if one.chunk_range is not None:
                chunk_ranges[table] = (one.chunk_range, applied_batch)
    want = BatchHistory(
        last,
        frozenset(stored),
        tuple(sorted((one for batches in pending.values() for one in batches), key=place)),
        len(planned),
        chunk_ranges,
        applied,
    )
    rng.shuffle(entries)
    rng.shuffle(commits)

    history = build_history(entries, commits)

    assert replace(history, pending=tuple(sorted(history.pending, key=place))) == want
    assert [one.batch for one in history.pending] == sorted(one.batch for one in history.pending)


def test_the_last_chunk_range_of_a_table_counts() -> None:
    early, late, plain = (planned_batch(at, TABLES[0], has_range=at < 3) for at in (1, 2, 3))
    history = build_history([plain, late, early], map(applied_batch_of, (early, late, plain)))
    assert history.chunk_ranges == {TABLES[0]: (late.chunk_range, applied_batch_of(late))}
    assert history.last[TABLES[0]].batch == 3


def test_an_empty_batch_log_gives_an_empty_history() -> None:
    assert build_history([], []) == BatchHistory()


def test_a_chunk_range_excluded_from_its_batch_is_not_applied() -> None:
    """Its columns had changed, so the batch was committed without its rows. They are read again."""
    of = planned_batch(2, TABLES[0], has_range=True)
    left_out = replace(applied_batch_of(of), snapshot=None)
    assert build_history([of], [applied_batch_of(of)]).chunk_ranges.keys() == {TABLES[0]}
    assert build_history([of], [left_out]).chunk_ranges == {}
