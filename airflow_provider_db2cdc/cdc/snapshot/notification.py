"""Notifications: Debezium's reports of a snapshot's progress, from the difference of two of its states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId

Aggregate = Literal["Initial Snapshot", "Incremental Snapshot"]
Type = Literal["STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED", "ABORTED", "PAUSED", "RESUMED", "SKIPPED"]

CONNECTOR = "db2"
LISTED_ALWAYS = 20
"""Tables of a snapshot that each notification lists, as Debezium's do."""

ENDS: Mapping[str, Type] = {"completed": "COMPLETED", "stopped": "ABORTED", "failed": "ABORTED"}


@dataclass(frozen=True)
class Notification:
    """One notification. `id` is the snapshot's (a signal's id), and `additional_data` has texts by Debezium's names."""

    id: str
    aggregate_type: Aggregate
    type: Type
    additional_data: Mapping[str, str]
    timestamp: int


def notifications(old: Snapshot | None, new: Snapshot, at_ms: int) -> list[Notification]:
    """Return the notifications for the transition from `old` (None: it was just requested) to `new`, in order.

    A blocking snapshot is reported as an initial one, as in Debezium. A heal is reported as an incremental one. Keys
    are named by their chunk, never by value.
    Above `LISTED_ALWAYS` tables, a report on one table names only that table. Otherwise the size would grow with the
    square of their number.
    """
    return [
        Notification(new.id, _aggregate(new), kind, {"connector_name": CONNECTOR, **data}, at_ms)
        for kind, data in _steps(old, new)
    ]


def skipped(tables: Iterable[TableId], run_id: str, at_ms: int) -> Notification:
    """Return the notification for new tables that the mode does not snapshot, found by the run `run_id`."""
    collections = ",".join(str(table) for table in tables)
    data = {"connector_name": CONNECTOR, "data_collections": collections}
    return Notification(run_id, "Initial Snapshot", "SKIPPED", data, at_ms)


def _aggregate(snapshot: Snapshot) -> Aggregate:
    return "Incremental Snapshot" if snapshot.kind in ("incremental", "heal") else "Initial Snapshot"


def _steps(old: Snapshot | None, new: Snapshot) -> Iterator[tuple[Type, dict[str, str]]]:
    collections = {"data_collections": ",".join(str(table_snapshot.table) for table_snapshot in new.tables)}
    if old is None:
        yield "STARTED", collections
    before = old.status if old else "running"
    if (before, new.status) == ("paused", "running"):
        yield "RESUMED", collections
    for table_snapshot in new.tables:
        earlier = old.table_snapshot(table_snapshot.table) if old else None
        listed = collections if len(new.tables) <= LISTED_ALWAYS else {"data_collections": str(table_snapshot.table)}
        yield from _table_steps(earlier, table_snapshot, listed)
    if (before, new.status) == ("running", "paused"):
        yield "PAUSED", collections
    if new.status in ENDS and before not in ENDS:
        reason = {"reason": new.reason} if new.reason else {}
        yield ENDS[new.status], {**(collections if new.status != "completed" else {}), **reason}


def _table_steps(
    old: TableSnapshot | None, new: TableSnapshot, collections: Mapping[str, str]
) -> Iterator[tuple[Type, dict[str, str]]]:
    if new.published_chunks > (old.published_chunks if old else 0):
        yield (
            "IN_PROGRESS",
            {
                **collections,
                "current_collection_in_progress": str(new.table),
                "chunks_published": str(new.published_chunks),
                "total_chunks": str(new.chunks),
                "total_rows_scanned": str(new.rows_read),
            },
        )
    if not new.is_open and (old is None or old.is_open):
        yield (
            "TABLE_SCAN_COMPLETED",
            {
                **collections,
                "scanned_collection": str(new.table),
                "total_rows_scanned": str(new.rows_read),
                "status": _scan_status(new),
                **({"reason": new.reason} if new.reason else {}),
            },
        )


def _scan_status(table_snapshot: TableSnapshot) -> str:
    match table_snapshot.status:
        case "completed":
            return "SUCCEEDED" if table_snapshot.rows_read else "EMPTY"
        case "stopped":
            return "SKIPPED"
        case _:
            return "SQL_EXCEPTION"
