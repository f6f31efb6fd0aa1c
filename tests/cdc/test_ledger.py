"""What a ledger says, against a fold of what happened in the order in which it did."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch, build_history
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import TableId

TABLES = [TableId("S", name) for name in "ABC"]
CAPTURE = CaptureIdentity("ASNCDC.CD", "2026-01-01", "2025-01-01", "0")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def entry(batch: int, table: TableId, is_slice: bool, has_offset: bool = False) -> PlannedBatch:
    of = ChunkRange(f"snapshot{batch}", "incremental", 0, 0, lsn(batch), batch, batch, "fp") if is_slice else None
    return PlannedBatch(
        batch, f"run{batch}", f"plan{batch}", table, lsn(batch), lsn(batch + 1), batch, CAPTURE, of, has_offset
    )


def commit(of: PlannedBatch) -> AppliedBatch:
    snapshot = of.chunk_range.snapshot if of.chunk_range else None
    return AppliedBatch(of.batch, of.table, of.upto, CAPTURE, 1, 2, 3, 4, None, of.batch * 10, 5, snapshot=snapshot)


def place(of: PlannedBatch) -> tuple[int, str]:
    return of.batch, str(of.table)


# Of each batch: its tables, which of these are parts of a snapshot, are applied at once, were planned with an offset.
parts = st.tuples(st.sampled_from(TABLES), st.booleans(), st.booleans(), st.booleans())
batches = st.lists(st.lists(parts, min_size=1, max_size=3, unique_by=lambda part: part[0]), max_size=8)


@given(batches, st.randoms(use_true_random=False), st.booleans())
def test_a_ledger_is_told_as_it_happened(
    planned: list[list[tuple[TableId, bool, bool, bool]]], rng: random.Random, twice: bool
) -> None:
    entries, commits = [], []
    last, applied, stored, slices, pending = {}, {}, set(), {}, {}
    for number, batch in enumerate(planned, 1):
        for table, is_slice, is_applied, has_offset in batch:
            one = entry(number, table, is_slice, has_offset)
            entries.append(one)
            pending.setdefault(table, []).append(one)
            stored |= {table} if has_offset else set()
            if not is_applied:
                continue
            # What was pending before is overtaken: only a restart plans something new for such a table.
            pending[table] = []
            mark = commit(one)
            commits += [mark, mark] if twice else [mark]
            last[table] = mark
            applied.setdefault(table, []).append((one, mark))
            if one.chunk_range is not None:
                slices[table] = (one.chunk_range, mark)
    want = BatchHistory(
        last,
        frozenset(stored),
        tuple(sorted((one for some in pending.values() for one in some), key=place)),
        len(planned),
        slices,
        applied,
    )
    rng.shuffle(entries)
    rng.shuffle(commits)

    told = build_history(entries, commits)

    assert replace(told, pending=tuple(sorted(told.pending, key=place))) == want
    assert [one.batch for one in told.pending] == sorted(one.batch for one in told.pending)


def test_of_the_snapshots_parts_the_last_one_counts() -> None:
    early, late, plain = (entry(at, TABLES[0], is_slice=at < 3) for at in (1, 2, 3))
    told = build_history([plain, late, early], map(commit, (early, late, plain)))
    assert told.chunk_ranges == {TABLES[0]: (late.chunk_range, commit(late))}
    assert told.last[TABLES[0]].batch == 3


def test_an_empty_ledger_says_nothing() -> None:
    assert build_history([], []) == BatchHistory()


def test_a_slice_that_was_left_out_of_its_batch_is_nothing_applied() -> None:
    """Its columns had changed, so the batch was committed without its rows; what was read is read again."""
    of = entry(2, TABLES[0], is_slice=True)
    left_out = replace(commit(of), snapshot=None)
    assert build_history([of], [commit(of)]).chunk_ranges.keys() == {TABLES[0]}
    assert build_history([of], [left_out]).chunk_ranges == {}
