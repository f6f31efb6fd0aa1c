"""The journal of snapshots: requests, progress and notifications. It outlives every tick.

Each row is a document of one kind. A `signal` is an outcome of a signal. `bounds` are the chunk bounds of a table.
`begun` and `skipped` name a table that started with a snapshot or without one. The others are `snapshot` and
`notification`. Except for notifications the newest row of an id is valid.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue
from airflow_provider_db2cdc.cdc.snapshot.snapshot import OPEN, Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import Bound, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import LOG, Owner
from airflow_provider_db2cdc.spark.delta.table_io import (
    STATISTICS,
    append_first,
    create_table,
    literal_frame,
    load,
    table_exists,
)

T = TypeVar("T")

JOURNAL = "seq bigint, run_id string, kind string, id string, document string, at_ms bigint"
KEPT = ("signal", "snapshot", "begun", "skipped")
"""Kinds whose newest rows every tick reads. Bounds may be many: they are read only for the snapshots that it keeps."""

STATUS = "$.status"
"""The JSON path of a snapshot's status, which shows whether the snapshot is over."""


@dataclass(frozen=True)
class UnreportedEvents:
    """Outcomes of signals and notifications in the journal that no commit of offsets has reported."""

    outcomes: tuple[SignalOutcome, ...] = ()
    notifications: tuple[Notification, ...] = ()


@dataclass
class Journal:
    """The journal of one pipeline.

    `seq` is the number of its newest row. `begun` are tables that started with a snapshot. `skipped` are tables for
    which the notification SKIPPED is written.
    """

    spark: SparkSession
    layout: Layout
    owner: Owner
    run_id: str
    seq: int = 0
    unreported: UnreportedEvents = field(default_factory=UnreportedEvents)
    bounded: dict[str, tuple[Bound, ...]] = field(default_factory=dict)
    begun: set[TableId] = field(default_factory=set)
    skipped: set[TableId] = field(default_factory=set)

    @failpoint("read_journal")
    def read(self, reported_seq: int, notified_seq: int) -> SnapshotQueue:
        """Return the current snapshot queue, and set `unreported`.

        Unreported are outcomes after row number `reported_seq` and notifications after row number `notified_seq`.
        """
        rows = self._newest_rows(reported_seq, notified_seq)
        self.seq = max((int(row["seq"]) for row in rows), default=0)
        self.unreported = UnreportedEvents(
            tuple(_documents([row for row in rows if row["seq"] > reported_seq], "signal", SignalOutcome)),
            tuple(_documents(rows, "notification", Notification)),
        )
        self.begun, self.skipped = ({*_documents(rows, kind, TableId)} for kind in ("begun", "skipped"))
        snapshots = _documents(rows, "snapshot", Snapshot)
        self.bounded = self._read_bounds([snapshot.id for snapshot in snapshots])
        bounded = [_with_bounds(snapshot, self.bounded) for snapshot in snapshots]
        return SnapshotQueue(
            tuple(sorted(bounded, key=lambda snapshot: (snapshot.started_at_ms, snapshot.id))),
            {(outcome.channel, outcome.id): outcome for outcome in _documents(rows, "signal", SignalOutcome)},
            frozenset(row["item"] for row in rows if row["kind"] == "snapshot" and row["document"] is None),
            frozenset(self.begun),
        )

    def _newest_rows(self, reported_seq: int, notified_seq: int) -> list[Row]:
        """Return the newest row of each id and all unreported notifications, in their order.

        A snapshot that is over and reported has no document, only its id: after a year there may be very many.
        """
        name = self.layout.internal("journal")
        if not table_exists(self.spark, name):
            return []
        kind = F.col("kind")
        is_unreported = (F.col("seq") > notified_seq) & (kind == "notification")
        item = F.when(kind.isin(*KEPT), F.col("id")).when(is_unreported, F.col("seq").cast("string"))
        grouped = load(self.spark, name).groupBy("kind", item.alias("item"))
        newest = grouped.agg(F.max("seq").alias("seq"), F.max_by("document", "seq").alias("document"))
        is_open = F.get_json_object("document", STATUS).isin(*OPEN)
        is_kept = F.col("item").isNotNull() & ((kind != "snapshot") | (F.col("seq") > reported_seq) | is_open)
        rows = newest.select("kind", "item", "seq", F.when(is_kept, F.col("document")).alias("document")).collect()
        return sorted(rows, key=lambda row: int(row["seq"]))

    @failpoint("write_journal")
    def write(
        self,
        snapshots: Iterable[Snapshot],
        outcomes: Iterable[SignalOutcome],
        notifications: Iterable[Notification],
        skipped: Collection[TableId],
        at_ms: int,
    ) -> None:
        """Append changed snapshots, outcomes, notifications, and the tables that these notify as SKIPPED.

        :raises ConcurrentRunError: when another run has written rows with the same numbers.
        """
        documents: list[tuple[str, str, Any]] = []
        for snapshot in snapshots:
            documents += self._new_bounds(snapshot)
            documents.append(("snapshot", snapshot.id, to_data(_without_bounds(snapshot))))
            documents += [("begun", _id(table), to_data(table)) for table in self._new_begun(snapshot)]
        documents += [("signal", json.dumps([outcome.channel, outcome.id]), to_data(outcome)) for outcome in outcomes]
        documents += [("notification", notification.id, to_data(notification)) for notification in notifications]
        documents += [("skipped", _id(table), to_data(table)) for table in skipped]
        if documents:
            self._append(documents, at_ms)
            self.bounded |= {id_: _bounds(document) for kind, id_, document in documents if kind == "bounds"}
            self.begun |= {from_data(TableId, document) for kind, _, document in documents if kind == "begun"}
            self.skipped |= {*skipped}

    def _read_bounds(self, snapshots: Sequence[str]) -> dict[str, tuple[Bound, ...]]:
        """Return the chunk bounds of the snapshots' tables, by the ids of these documents."""
        if not snapshots:
            return {}
        # The id of bounds is a JSON array. Its first element is the id of the snapshot.
        is_wanted = (F.col("kind") == "bounds") & F.get_json_object("id", "$[0]").isin(*snapshots)
        rows = load(self.spark, self.layout.internal("journal")).where(is_wanted)
        newest = rows.groupBy("id").agg(F.max_by("document", "seq").alias("document"))
        return {row["id"]: _bounds(json.loads(row["document"])) for row in newest.collect()}

    def _new_bounds(self, snapshot: Snapshot) -> list[tuple[str, str, Any]]:
        """Return documents of bounds that the journal lacks. Bounds seldom change, and may be many."""
        new = []
        for table_snapshot in snapshot.tables:
            id_ = _bounds_id(snapshot, table_snapshot)
            # Empty bounds are written, too. Else the next tick would read the earlier ones back.
            if self.bounded.get(id_, ()) != table_snapshot.bounds:
                new.append(("bounds", id_, to_data(table_snapshot.bounds)))
        return new

    def _new_begun(self, snapshot: Snapshot) -> list[TableId]:
        """Return the tables that start with this snapshot and are not in the journal yet."""
        tables = [table_snapshot.table for table_snapshot in snapshot.tables if snapshot.kind == "initial"]
        return [table for table in tables if table not in self.begun]

    def _append(self, documents: Sequence[tuple[str, str, Any]], at_ms: int) -> None:
        name = self.layout.internal("journal")
        if not table_exists(self.spark, name):
            create_table(self.spark, name, JOURNAL, {**self.owner.properties, **LOG, STATISTICS: "seq"})
        # The transaction id has the number of the first row. An overtaken run would use a number that exists already.
        txn_id = (f"db2cdc/{self.owner.pipeline}/journal", self.seq + 1)
        rows = [
            (seq, self.run_id, kind, id_, json.dumps(document, sort_keys=True), at_ms)
            for seq, (kind, id_, document) in enumerate(documents, self.seq + 1)
        ]
        if not append_first(literal_frame(self.spark, rows, JOURNAL), name, txn_id):
            raise ConcurrentRunError(
                f"another run wrote to the journal of pipeline {self.owner.pipeline!r} at the same moment",
                "Two ticks of one pipeline ran at once: let the other one finish; max_active_runs=1 keeps them apart.",
            )
        self.seq += len(rows)


def _documents(rows: Sequence[Row], kind: str, type_: type[T]) -> list[T]:
    """Return the documents of one kind. Rows without a document are skipped."""
    documents = (row["document"] for row in rows if row["kind"] == kind and row["document"] is not None)
    return [from_data(type_, json.loads(document)) for document in documents]


def _id(table: TableId) -> str:
    return json.dumps([table.schema, table.name])


def _bounds_id(snapshot: Snapshot, table_snapshot: TableSnapshot) -> str:
    table = table_snapshot.table
    return json.dumps([snapshot.id, table.schema, table.name, table_snapshot.fingerprint])


def _bounds(document: list[list[str]]) -> tuple[Bound, ...]:
    return tuple(tuple(bound) for bound in document)


def _without_bounds(snapshot: Snapshot) -> Snapshot:
    without = (replace(table_snapshot, bounds=()) for table_snapshot in snapshot.tables)
    return replace(snapshot, tables=tuple(without))


def _with_bounds(snapshot: Snapshot, bounds: Mapping[str, tuple[Bound, ...]]) -> Snapshot:
    with_bounds = (
        replace(table_snapshot, bounds=bounds.get(_bounds_id(snapshot, table_snapshot), ()))
        for table_snapshot in snapshot.tables
    )
    return replace(snapshot, tables=tuple(with_bounds))
