"""The events of a chunk range on a target in memory, by the plain rules: rows that were read, rows that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.event.net_effect import net_effects
from airflow_provider_db2cdc.cdc.event.row_multiset import settled, surplus, touched, unequal
from airflow_provider_db2cdc.cdc.event.snapshot_window import surviving, vanished
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, DeleteMissing, KeyedChunks, KeylessRead
from airflow_provider_db2cdc.cdc.table import TableId
from support.memory_rows import copies
from support.memory_source import Row
from support.memory_target import MemoryTarget

Published: TypeAlias = tuple[list[Event], list[Event], ChunkRange]
"""Events of rows that were read, events of rows that are missing, and the chunk range."""

Chunks: TypeAlias = Mapping[int, list[Row]]
"""The rows of each chunk that was read."""


def source_events(target: MemoryTarget, table: TableId, low_batch: int, batch: int) -> list[Event]:
    """Return the events of the source's changes in the batches after the first one and up to the second."""
    log = target.log.get(table, ())
    return [event for at, step, event in log if low_batch < at <= batch and step == "changes"]


def snapshot_events(target: MemoryTarget, chunks: Chunks, planned: PlannedBatch, chunk_range: ChunkRange) -> Published:
    """Return the events that a batch publishes of its chunk range, which has these chunks."""
    staged = [row for rows in chunks.values() for row in rows]
    match chunk_range:
        case DeleteMissing():
            return [], _events(target, planned, "d", _missing(target, planned.table, chunk_range)), chunk_range
        case KeyedChunks():
            return _keyed(target, staged, planned, chunk_range)
        case KeylessRead():
            return _keyless(target, staged, planned, chunk_range)


def published(chunks: Chunks, read: Collection[Hashable]) -> dict[int, int]:
    """Return how many rows of each chunk are among the rows that were published (`read`)."""
    return {chunk: count for chunk, rows in chunks.items() if (count := sum(row in read for row in rows))}


def _keyed(target: MemoryTarget, read: list[Row], planned: PlannedBatch, chunk_range: KeyedChunks) -> Published:
    state = target.state[planned.table]
    staged = {row[:1]: row for row in read}
    effects = net_effects(source_events(target, planned.table, chunk_range.low_batch, planned.batch))
    rows = surviving(staged.items(), effects)
    if chunk_range.differences_only:
        rows = {key: row for key, row in rows.items() if key not in state or state[key][0] != row}
    reads = _events(target, planned, "r", rows.values())
    if not chunk_range.deletes_by_range:
        return reads, [], chunk_range
    within = {key: at for key, (image, at) in state.items() if _is_within(image, chunk_range)}
    gone = vanished(within, staged, chunk_range.low_batch) - effects.keys()
    return reads, _events(target, planned, "d", [state[key][0] for key in gone]), chunk_range


def _keyless(target: MemoryTarget, read: list[Row], planned: PlannedBatch, chunk_range: KeylessRead) -> Published:
    """Return the events of rows that a read settles, and whether another read is needed."""
    moved, *earlier = (touched(source_events(target, planned.table, *window)) for window in chunk_range.windows[::-1])
    unknown = set.intersection(*earlier) if earlier else None
    staged = settled(read, moved, unknown)
    held = copies(target.state[planned.table]) if chunk_range.covers_table else Counter()
    published = unequal(staged, copies(target.state[planned.table])) if chunk_range.differences_only else staged
    reads = _events(target, planned, "r", published.elements())
    deletes = _events(target, planned, "d", surplus(held, staged, moved, unknown).elements())
    needs_another_read = bool(moved if unknown is None else moved & unknown)
    return reads, deletes, replace(chunk_range, needs_another_read=needs_another_read)


def _missing(target: MemoryTarget, table: TableId, chunk_range: DeleteMissing) -> list[Row]:
    """Return the rows of the state that a snapshot did not find."""
    log, state = target.log[table], target.state[table]
    read = {event.key for at, _, event in log if at > chunk_range.low_batch and event.op == "r"}
    gone = vanished({key: at for key, (_, at) in state.items()}, read, chunk_range.low_batch)
    return [state[key][0] for key in gone]


def _events(
    target: MemoryTarget, planned: PlannedBatch, op: Literal["r", "d"], rows: Iterable[Hashable]
) -> list[Event]:
    is_keyed = bool(target.schemas[planned.table].key)
    return [
        Event(planned.upto, 0, op, key, *((None, row) if op == "r" else (row, None)))
        for row in rows
        for key in [row[:1] if is_keyed else row]  # type: ignore[index]
    ]


def _is_within(row: Row, chunk_range: KeyedChunks) -> bool:
    low, high, key = chunk_range.counts[0].low, chunk_range.counts[-1].high, row[0] or 0
    return (not low or key > int(low[0])) and (not high or key <= int(high[0]))
