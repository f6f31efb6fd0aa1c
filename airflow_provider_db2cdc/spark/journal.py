"""The journal of snapshots: what was asked for, how far it is, what was told. It outlives every tick.

Each row is a document of a kind: a signal's outcome, a snapshot, the chunk bounds of one of its tables, a table that
began without a snapshot, a notification. Of all but the last the newest row of an id counts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.agenda import Agenda
from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.notification import Notification
from airflow_provider_db2cdc.cdc.part import Bound, Part
from airflow_provider_db2cdc.cdc.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TickLostError
from airflow_provider_db2cdc.spark.delta import (
    STATISTICS,
    append_first,
    create_table,
    literal_frame,
    load,
    table_exists,
)
from airflow_provider_db2cdc.spark.place import Owner

JOURNAL = "seq bigint, run_id string, kind string, id string, document string, at_ms bigint"
KEPT = ("signal", "snapshot", "skipped")
"""Kinds of which the newest row of each id is read at every tick; bounds, which may be many, of few snapshots alone."""


@dataclass(frozen=True)
class News:
    """What the journal holds that no commit has told of: ids of snapshots, outcomes of signals, notifications."""

    snapshots: frozenset[str] = frozenset()
    outcomes: tuple[SignalOutcome, ...] = ()
    notifications: tuple[Notification, ...] = ()


@dataclass
class Journal:
    """The journal of one pipeline; `seq` is the number of its newest row, of `skipped` tables SKIPPED was told."""

    spark: SparkSession
    layout: Layout
    owner: Owner
    run_id: str
    seq: int = 0
    news: News = field(default_factory=News)
    bounded: dict[str, tuple[Bound, ...]] = field(default_factory=dict)
    skipped: set[TableId] = field(default_factory=set)

    def read(self, told: int) -> Agenda:
        """Return the agenda as it stands; rows behind `told` become the news."""
        name = self.layout.internal("journal")
        if not table_exists(self.spark, name):
            return Agenda()
        kind = F.col("kind")
        is_news = (F.col("seq") > told) & (kind != "bounds")
        one = F.when(kind.isin(*KEPT), F.col("id")).when(is_news, F.col("seq").cast("string"))
        newest = load(self.spark, name).groupBy("kind", one.alias("one"))
        found = newest.agg(F.max("seq").alias("seq"), F.max_by("document", "seq").alias("document")).collect()
        found.sort(key=lambda row: int(row["seq"]))
        self.seq = max((int(row["seq"]) for row in found), default=0)
        self.news = _news([row for row in found if row["seq"] > told])
        documents = {(row["kind"], row["one"]): json.loads(row["document"]) for row in found if row["kind"] in KEPT}
        self.skipped = {from_data(TableId, document) for (kind, _), document in documents.items() if kind == "skipped"}
        signals = [from_data(SignalOutcome, document) for (kind, _), document in documents.items() if kind == "signal"]
        snapshots = [from_data(Snapshot, document) for (kind, _), document in documents.items() if kind == "snapshot"]
        self.bounded = self._read_bounds([one.id for one in snapshots if one.open or one.id in self.news.snapshots])
        bounded = [_with_bounds(snapshot, self.bounded) for snapshot in snapshots]
        return Agenda(
            tuple(sorted(bounded, key=lambda snapshot: (snapshot.started_at_ms, snapshot.id))),
            {(outcome.channel, outcome.id): outcome for outcome in signals},
        )

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
        documents += [("signal", json.dumps([one.channel, one.id]), to_data(one)) for one in outcomes]
        documents += [("notification", one.id, to_data(one)) for one in notifications]
        documents += [("skipped", json.dumps([one.schema, one.name]), to_data(one)) for one in skipped]
        if documents:
            self._append(documents, at_ms)
            self.bounded |= {id_: _bounds(document) for kind, id_, document in documents if kind == "bounds"}
            self.skipped |= {*skipped}

    def _read_bounds(self, snapshots: Sequence[str]) -> dict[str, tuple[Bound, ...]]:
        """Return the bounds of some snapshots' tables; those that are over and told of have no use for theirs."""
        if not snapshots:
            return {}
        # The ids of their bounds are arrays, in JSON, that begin with the snapshot's.
        of_snapshots = [F.col("id").startswith(f"{json.dumps([id_])[:-1]}, ") for id_ in snapshots]
        rows = load(self.spark, self.layout.internal("journal")).where(F.col("kind") == "bounds")
        newest = rows.where(reduce(or_, of_snapshots)).groupBy("id").agg(F.max_by("document", "seq").alias("document"))
        return {row["id"]: _bounds(json.loads(row["document"])) for row in newest.collect()}

    def _new_bounds(self, snapshot: Snapshot) -> list[tuple[str, str, Any]]:
        """Return the bounds that were not written yet: they seldom change, and may be many."""
        new = []
        for part in snapshot.parts:
            name = _bounds_id(snapshot, part)
            # Also that there are none any more: else those of before would be read back.
            if self.bounded.get(name, ()) != part.bounds:
                new.append(("bounds", name, to_data(part.bounds)))
        return new

    def _append(self, documents: Sequence[tuple[str, str, Any]], at_ms: int) -> None:
        name = self.layout.internal("journal")
        if not table_exists(self.spark, name):
            create_table(self.spark, name, JOURNAL, {**self.owner.properties, STATISTICS: "seq"})
        # Numbered by its first row: a run that was overtaken would write a number that is there.
        pair = (f"db2cdc/{self.owner.pipeline}/journal", self.seq + 1)
        rows = [
            (self.seq + at, self.run_id, kind, id_, json.dumps(document, sort_keys=True), at_ms)
            for at, (kind, id_, document) in enumerate(documents, 1)
        ]
        if not append_first(literal_frame(self.spark, rows, JOURNAL), name, pair):
            raise TickLostError(
                f"another run wrote to the journal of pipeline {self.owner.pipeline!r} at the same moment",
                "Two ticks of one pipeline ran at once: let the other one finish; max_active_runs=1 keeps them apart.",
            )
        self.seq += len(rows)


def _news(rows: Sequence[Row]) -> News:
    def documents(kind: str) -> list[Any]:
        return [json.loads(row["document"]) for row in rows if row["kind"] == kind]

    return News(
        frozenset(document["id"] for document in documents("snapshot")),
        tuple(from_data(SignalOutcome, document) for document in documents("signal")),
        tuple(from_data(Notification, document) for document in documents("notification")),
    )


def _bounds_id(snapshot: Snapshot, part: Part) -> str:
    return json.dumps([snapshot.id, part.table.schema, part.table.name, part.fingerprint])


def _bounds(document: list[list[str]]) -> tuple[Bound, ...]:
    return tuple(tuple(bound) for bound in document)


def _without_bounds(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, parts=tuple(replace(part, bounds=()) for part in snapshot.parts))


def _with_bounds(snapshot: Snapshot, bounds: Mapping[str, tuple[Bound, ...]]) -> Snapshot:
    return replace(
        snapshot,
        parts=tuple(replace(part, bounds=bounds.get(_bounds_id(snapshot, part), ())) for part in snapshot.parts),
    )
