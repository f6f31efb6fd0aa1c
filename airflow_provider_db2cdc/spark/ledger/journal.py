"""The journal of snapshots: what was asked for, how far it is, what was told. It outlives every tick.

Each row is a document of a kind: a signal's outcome, a snapshot, the chunk bounds of one of its tables, a table that
began with a snapshot or without one, a notification. Of all but the last the newest row of an id counts.
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
"""Kinds of which the newest row of each id is read at every tick; bounds, which may be many, of few snapshots alone."""
STATUS = "$.status"
"""Where a snapshot's document says whether it is over."""


@dataclass(frozen=True)
class UnreportedEvents:
    """What the journal holds that no commit has told of: outcomes of signals, notifications."""

    outcomes: tuple[SignalOutcome, ...] = ()
    notifications: tuple[Notification, ...] = ()


@dataclass
class Journal:
    """The journal of one pipeline; `seq` is the number of its newest row.

    Of the tables that began, those `begun` did with a snapshot; of the `skipped` ones SKIPPED was told.
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
    def read(self, told: int, notified: int) -> SnapshotQueue:
        """Return the agenda as it stands; outcomes behind `told` and notifications behind `notified` are the news."""
        found = self._newest(told, notified)
        self.seq = max((int(row["seq"]) for row in found), default=0)
        self.unreported = UnreportedEvents(
            tuple(_documents([row for row in found if row["seq"] > told], "signal", SignalOutcome)),
            tuple(_documents(found, "notification", Notification)),
        )
        self.begun, self.skipped = ({*_documents(found, kind, TableId)} for kind in ("begun", "skipped"))
        snapshots = _documents(found, "snapshot", Snapshot)
        self.bounded = self._read_bounds([one.id for one in snapshots])
        bounded = [_with_bounds(snapshot, self.bounded) for snapshot in snapshots]
        return SnapshotQueue(
            tuple(sorted(bounded, key=lambda snapshot: (snapshot.started_at_ms, snapshot.id))),
            {(outcome.channel, outcome.id): outcome for outcome in _documents(found, "signal", SignalOutcome)},
            frozenset(row["one"] for row in found if row["kind"] == "snapshot" and row["document"] is None),
            frozenset(self.begun),
        )

    def _newest(self, told: int, notified: int) -> list[Row]:
        """Return the newest row of each id, and all news, in their order; without what is over and told of, but its id.

        That may be much after a year in which each tick took a snapshot.
        """
        name = self.layout.internal("journal")
        if not table_exists(self.spark, name):
            return []
        kind = F.col("kind")
        is_news = (F.col("seq") > notified) & (kind == "notification")
        one = F.when(kind.isin(*KEPT), F.col("id")).when(is_news, F.col("seq").cast("string"))
        grouped = load(self.spark, name).groupBy("kind", one.alias("one"))
        newest = grouped.agg(F.max("seq").alias("seq"), F.max_by("document", "seq").alias("document"))
        is_open = F.get_json_object("document", STATUS).isin(*OPEN)
        is_kept = F.col("one").isNotNull() & ((kind != "snapshot") | (F.col("seq") > told) | is_open)
        found = newest.select("kind", "one", "seq", F.when(is_kept, F.col("document")).alias("document")).collect()
        return sorted(found, key=lambda row: int(row["seq"]))

    @failpoint("write_journal")
    def write(
        self,
        snapshots: Iterable[Snapshot],
        outcomes: Iterable[SignalOutcome],
        notifications: Iterable[Notification],
        skipped: Collection[TableId],
        at_ms: int,
    ) -> None:
        """Append what has changed, and of which tables SKIPPED is told by that.

        :raises TickLostError: another run wrote these rows first.
        """
        documents: list[tuple[str, str, Any]] = []
        for snapshot in snapshots:
            documents += self._new_bounds(snapshot)
            documents.append(("snapshot", snapshot.id, to_data(_without_bounds(snapshot))))
            documents += [("begun", _id(table), to_data(table)) for table in self._new_begun(snapshot)]
        documents += [("signal", json.dumps([one.channel, one.id]), to_data(one)) for one in outcomes]
        documents += [("notification", one.id, to_data(one)) for one in notifications]
        documents += [("skipped", _id(table), to_data(table)) for table in skipped]
        if documents:
            self._append(documents, at_ms)
            self.bounded |= {id_: _bounds(document) for kind, id_, document in documents if kind == "bounds"}
            self.begun |= {from_data(TableId, document) for kind, _, document in documents if kind == "begun"}
            self.skipped |= {*skipped}

    def _read_bounds(self, snapshots: Sequence[str]) -> dict[str, tuple[Bound, ...]]:
        """Return the bounds of some snapshots' tables."""
        if not snapshots:
            return {}
        # The ids of their bounds are arrays, in JSON, that begin with the snapshot's.
        is_of_them = (F.col("kind") == "bounds") & F.get_json_object("id", "$[0]").isin(*snapshots)
        rows = load(self.spark, self.layout.internal("journal")).where(is_of_them)
        newest = rows.groupBy("id").agg(F.max_by("document", "seq").alias("document"))
        return {row["id"]: _bounds(json.loads(row["document"])) for row in newest.collect()}

    def _new_bounds(self, snapshot: Snapshot) -> list[tuple[str, str, Any]]:
        """Return the bounds that were not written yet: they seldom change, and may be many."""
        new = []
        for part in snapshot.tables:
            name = _bounds_id(snapshot, part)
            # Also that there are none any more: else those of before would be read back.
            if self.bounded.get(name, ()) != part.bounds:
                new.append(("bounds", name, to_data(part.bounds)))
        return new

    def _new_begun(self, snapshot: Snapshot) -> list[TableId]:
        """Return the tables that begin with a snapshot, of which that was not written yet."""
        tables = [part.table for part in snapshot.tables if snapshot.kind == "initial"]
        return [table for table in tables if table not in self.begun]

    def _append(self, documents: Sequence[tuple[str, str, Any]], at_ms: int) -> None:
        name = self.layout.internal("journal")
        if not table_exists(self.spark, name):
            create_table(self.spark, name, JOURNAL, {**self.owner.properties, **LOG, STATISTICS: "seq"})
        # Numbered by its first row: a run that was overtaken would write a number that is there.
        pair = (f"db2cdc/{self.owner.pipeline}/journal", self.seq + 1)
        rows = [
            (self.seq + at, self.run_id, kind, id_, json.dumps(document, sort_keys=True), at_ms)
            for at, (kind, id_, document) in enumerate(documents, 1)
        ]
        if not append_first(literal_frame(self.spark, rows, JOURNAL), name, pair):
            raise ConcurrentRunError(
                f"another run wrote to the journal of pipeline {self.owner.pipeline!r} at the same moment",
                "Two ticks of one pipeline ran at once: let the other one finish; max_active_runs=1 keeps them apart.",
            )
        self.seq += len(rows)


def _documents(rows: Sequence[Row], kind: str, type_: type[T]) -> list[T]:
    """Return the documents of a kind, of the rows that have theirs."""
    there = (row["document"] for row in rows if row["kind"] == kind and row["document"] is not None)
    return [from_data(type_, json.loads(document)) for document in there]


def _id(table: TableId) -> str:
    return json.dumps([table.schema, table.name])


def _bounds_id(snapshot: Snapshot, part: TableSnapshot) -> str:
    return json.dumps([snapshot.id, part.table.schema, part.table.name, part.fingerprint])


def _bounds(document: list[list[str]]) -> tuple[Bound, ...]:
    return tuple(tuple(bound) for bound in document)


def _without_bounds(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, tables=tuple(replace(part, bounds=()) for part in snapshot.tables))


def _with_bounds(snapshot: Snapshot, bounds: Mapping[str, tuple[Bound, ...]]) -> Snapshot:
    return replace(
        snapshot,
        tables=tuple(replace(part, bounds=bounds.get(_bounds_id(snapshot, part), ())) for part in snapshot.tables),
    )
