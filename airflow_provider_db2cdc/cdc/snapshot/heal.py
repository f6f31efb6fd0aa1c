"""Heals: snapshots that publish only what differs from the state, and what they mend.

A heal compares each row of the source with the state. So it also mends what another writer has changed in the state,
if it compares the whole table. Such a change is recorded until a heal has ended that began after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from airflow_provider_db2cdc.cdc.selection.table_names import condition_of, match_tables
from airflow_provider_db2cdc.cdc.signal.request import ExecuteSnapshot, parse
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, DeleteMissing, KeylessRead, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.cdc.types import sorts_alike


def sorts_by_key(table_snapshot: TableSnapshot, schema: TableSchema) -> bool:
    """Return whether a chunk's ends also bound the rows of the state that belong to the chunk."""
    return not table_snapshot.surrogate and sorts_alike(map(schema.column, schema.key))


def needs_one_group(table_snapshot: TableSnapshot, schema: TableSchema) -> bool:
    """Return whether the chunks of a table can only be compared with the state together.

    Without an event for each row that was read, nothing but the comparison shows which rows are missing.
    """
    compares_all = table_snapshot.differences_only and table_snapshot.delete_missing and bool(schema.key)
    return compares_all and not sorts_by_key(table_snapshot, schema)


def begins_heal(chunk_range: ChunkRange | None) -> bool:
    """Return whether a chunk range is the first one that compares a whole table with its state."""
    return chunk_range is not None and chunk_range.differences_only and chunk_range.begins_table


def ends_heal(chunk_range: ChunkRange | None, since: int) -> bool:
    """Return whether each row was compared with the state after batch `since`, once a chunk range is published."""
    match chunk_range:
        case None | DeleteMissing():
            return False
        case KeylessRead(needs_another_read=True):
            return False
    return chunk_range.differences_only and chunk_range.ends_table and since <= chunk_range.first_low_batch


def healed_tables(queue: SnapshotQueue) -> frozenset[TableId]:
    """Return the tables that an open heal compares, or will compare, as a whole."""
    heals = (snapshot for snapshot in queue.open if snapshot.kind == "heal")
    return frozenset(table.table for heal in heals for table in heal.open_tables if not table.condition)


def tables_to_heal(
    queue: SnapshotQueue, signals: Iterable[Signal], tables: Mapping[TableId, object]
) -> frozenset[TableId]:
    """Return the tables that an open heal or one of these signals wants to be compared as a whole."""
    requested = (signal for signal in signals if queue.known_outcome(signal) is None)
    return healed_tables(queue).union(*(_requested(signal, tables) for signal in requested))


def _requested(signal: Signal, tables: Mapping[TableId, object]) -> Iterator[TableId]:
    try:
        request = parse(signal)
        if isinstance(request, ExecuteSnapshot) and request.kind == "heal":
            named = {table for pattern in request.collections for table in match_tables(pattern, tables)}
            yield from (table for table in named if not condition_of(table, request.conditions))
    except Exception:
        # Its turn comes later. Then it is refused with this error.
        return
