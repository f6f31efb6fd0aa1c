"""Each notification of Debezium's documentation (its table of types and of additional_data), and their order."""

from dataclasses import replace
from typing import Any

import pytest
from support.present import present

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.notification import LISTED_ALWAYS, notifications
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    KeyedChunks,
    TableSnapshot,
    with_chunks,
    with_failure,
    with_published,
    with_stop,
)
from airflow_provider_db2cdc.cdc.table import TableId

A, B = TableId("S", "A"), TableId("S", "B")
AT = 1_700_000_000_000
BOTH = {"connector_name": "db2", "data_collections": "S.A,S.B"}


def snapshot(*parts: TableSnapshot, kind: SnapshotKind = "incremental", **more: Any) -> Snapshot:
    return Snapshot("id-1", kind, parts or (TableSnapshot(A), TableSnapshot(B)), **more)


def read(
    table_snapshot: TableSnapshot, chunks: int = 3, upto: int = 0, rows: int = 10, found: int | None = None
) -> TableSnapshot:
    """Return the table snapshot after chunks up to `upto` were published with `rows` of the `found` rows."""
    if table_snapshot.status == "waiting":
        table_snapshot = with_chunks(table_snapshot, [(str(at),) for at in range(chunks - 1)], "f")
    counts = (ChunkCounts((), (), rows if found is None else found, 0),)
    at = (Lsn(bytes(16)), 6, 6, table_snapshot.fingerprint, table_snapshot.rows_published)
    return with_published(
        table_snapshot,
        KeyedChunks(
            "id-1",
            "incremental",
            table_snapshot.published_chunks,
            upto,
            *at,
            counts=counts,
            read_before=table_snapshot.rows_read,
        ),
        rows,
    )


def notified(old: Snapshot | None, new: Snapshot) -> list[tuple[str, dict[str, str]]]:
    return [(one.type, dict(one.additional_data)) for one in notifications(old, new, AT)]


def types(old: Snapshot | None, new: Snapshot) -> list[str]:
    return [one.type for one in notifications(old, new, AT)]


def test_start_is_notified_with_its_tables() -> None:
    assert notified(None, snapshot()) == [("STARTED", BOTH)]


def test_published_chunks_are_notified_as_progress() -> None:
    old = snapshot()
    new = old.with_table(read(TableSnapshot(A), upto=1, rows=20))
    data = {
        **BOTH,
        "current_collection_in_progress": "S.A",
        "chunks_published": "2",
        "total_chunks": "3",
        "total_rows_scanned": "20",
    }
    assert notified(old, new) == [("IN_PROGRESS", data)]


def test_notification_on_one_of_many_tables_names_only_that_table() -> None:
    """A notification for each of a thousand tables with the names of all took 60 MB."""
    tables = [TableId("S", f"T{at:02}") for at in range(LISTED_ALWAYS + 1)]
    old = snapshot(*map(TableSnapshot, tables))
    listed = [
        one["data_collections"] for _, one in notified(old, old.with_table(read(TableSnapshot(tables[3]), chunks=1)))
    ]
    assert listed == ["S.T03", "S.T03"]
    [(_, begun)] = notified(None, old)
    assert begun["data_collections"].count(",") == LISTED_ALWAYS
    few = snapshot(*map(TableSnapshot, tables[:-1]))
    [(_, one), _] = notified(few, few.with_table(read(TableSnapshot(tables[3]), chunks=1)))
    assert one["data_collections"].count(",") == LISTED_ALWAYS - 1


ENDS = [
    (read(TableSnapshot(A), chunks=2, upto=1, rows=5), {"status": "SUCCEEDED", "total_rows_scanned": "5"}),
    (read(TableSnapshot(A), chunks=1, upto=0, rows=0), {"status": "EMPTY", "total_rows_scanned": "0"}),
    (read(TableSnapshot(A), chunks=2, upto=1, rows=0), {"status": "EMPTY", "total_rows_scanned": "0"}),
    (read(TableSnapshot(A), chunks=1, upto=0, rows=0, found=5), {"status": "SUCCEEDED", "total_rows_scanned": "5"}),
    (with_stop(TableSnapshot(A), "asked for"), {"status": "SKIPPED", "total_rows_scanned": "0", "reason": "asked for"}),
    (
        with_failure(TableSnapshot(A), "no grant", tries=1),
        {"status": "SQL_EXCEPTION", "total_rows_scanned": "0", "reason": "no grant"},
    ),
]


@pytest.mark.parametrize(
    ("table_snapshot", "said"), ENDS, ids=["read", "empty", "emptied", "all gave way", "stopped", "failed"]
)
def test_end_of_a_table_is_notified_with_its_status(table_snapshot: TableSnapshot, said: dict[str, str]) -> None:
    old = snapshot()
    last = notified(old, old.with_table(table_snapshot))[-1]
    assert last == ("TABLE_SCAN_COMPLETED", {**BOTH, "scanned_collection": "S.A", **said})


def test_progress_and_end_of_a_table_are_notified_once() -> None:
    old = snapshot()
    new = old.with_table(read(TableSnapshot(A), chunks=1))
    assert types(old, new) == ["IN_PROGRESS", "TABLE_SCAN_COMPLETED"]
    assert types(new, new) == []
    assert types(new, new.with_table(read(TableSnapshot(B)))) == ["IN_PROGRESS"]


def test_failure_that_is_retried_is_not_an_end() -> None:
    old = snapshot()
    assert types(old, old.with_table(with_failure(TableSnapshot(A), "lost the connection"))) == []


def ended(*parts: TableSnapshot) -> Snapshot:
    new = snapshot()
    for table_snapshot in parts:
        new = new.with_table(table_snapshot)
    return new


ENDINGS = [
    (ended(read(TableSnapshot(A), 1), read(TableSnapshot(B), 1)), ("COMPLETED", {"connector_name": "db2"})),
    (
        ended(read(TableSnapshot(A), 1), with_stop(TableSnapshot(B), "asked for")),
        ("COMPLETED", {"connector_name": "db2", "reason": "stopped: S.B (asked for)"}),
    ),
    (
        ended(with_stop(TableSnapshot(A), "asked for"), with_stop(TableSnapshot(B), "asked for")),
        ("ABORTED", {**BOTH, "reason": "stopped: S.A (asked for); stopped: S.B (asked for)"}),
    ),
    (
        ended(read(TableSnapshot(A), 1), with_failure(TableSnapshot(B), "no grant", tries=1)),
        ("ABORTED", {**BOTH, "reason": "failed: S.B (no grant)"}),
    ),
]


@pytest.mark.parametrize(("new", "last"), ENDINGS, ids=["read", "partly stopped", "stopped", "failed"])
def test_end_is_notified_last(new: Snapshot, last: tuple[str, dict[str, str]]) -> None:
    assert notified(snapshot(), new)[-1] == last
    assert types(snapshot(), new).count(last[0]) == 1
    assert types(new, new) == []


def test_pause_and_resumption_are_notified() -> None:
    running, paused = snapshot(), snapshot(status="paused")
    assert notified(running, paused) == [("PAUSED", BOTH)]
    assert notified(paused, running) == [("RESUMED", BOTH)]
    assert types(paused, paused) == []


def test_stop_of_a_paused_snapshot_is_notified_only_as_aborted() -> None:
    parts = [with_stop(TableSnapshot(table), "asked for") for table in (A, B)]
    new = snapshot(status="paused")
    for table_snapshot in parts:
        new = new.with_table(table_snapshot)
    assert types(snapshot(status="paused"), new) == ["TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "ABORTED"]


def test_all_steps_within_one_tick_are_notified_in_order() -> None:
    new = snapshot().with_table(read(TableSnapshot(A), chunks=1)).with_table(read(TableSnapshot(B), chunks=1))
    assert types(None, new) == [
        "STARTED",
        "IN_PROGRESS",
        "TABLE_SCAN_COMPLETED",
        "IN_PROGRESS",
        "TABLE_SCAN_COMPLETED",
        "COMPLETED",
    ]


def test_progress_is_notified_on_its_side_of_a_pause_or_resumption() -> None:
    old = snapshot()
    new = replace(old.with_table(read(TableSnapshot(A))), status="paused")
    assert types(old, new) == ["IN_PROGRESS", "PAUSED"]
    assert types(new, replace(new.with_table(read(present(new.table_snapshot(A)), upto=1)), status="running")) == [
        "RESUMED",
        "IN_PROGRESS",
    ]


def test_start_and_pause_in_one_tick_are_notified() -> None:
    assert types(None, snapshot(status="paused")) == ["STARTED", "PAUSED"]


@pytest.mark.parametrize(
    ("kind", "aggregate"),
    [
        ("initial", "Initial Snapshot"),
        ("blocking", "Initial Snapshot"),
        ("incremental", "Incremental Snapshot"),
        ("heal", "Incremental Snapshot"),
    ],
)
def test_each_notification_has_the_snapshots_id_kind_and_time(kind: SnapshotKind, aggregate: str) -> None:
    found = notifications(None, snapshot(kind=kind).with_table(read(TableSnapshot(A), chunks=1)), AT)
    assert len(found) == 3
    assert {(one.id, one.aggregate_type, one.timestamp) for one in found} == {("id-1", aggregate, AT)}


def test_no_key_is_notified() -> None:
    table_snapshot = read(with_chunks(TableSnapshot(A), [("'secret'",), ("'hidden'",)], "f"), upto=1)
    text = repr(notifications(None, snapshot().with_table(table_snapshot), AT))
    assert "secret" not in text
    assert "hidden" not in text


def test_additional_data_are_texts() -> None:
    found = notifications(
        None, ended(read(TableSnapshot(A), 1), with_failure(TableSnapshot(B), "no grant", tries=1)), AT
    )
    assert all(isinstance(text, str) for one in found for text in one.additional_data.values())
