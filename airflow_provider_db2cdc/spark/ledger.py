"""The pipeline's own three tables: what was planned (batches), applied (commits), and fits together (manifest).

As Spark's Structured Streaming does it: an offset log before any data, a commit log after the last write. Whoever
finds a batch planned but not applied does that very batch first; a batch means one thing for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.capture import CaptureIdentity
from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot import Slice
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TargetError, TickLostError
from airflow_provider_db2cdc.spark.delta import (
    Pair,
    append,
    append_first,
    create_table,
    literal_frame,
    load,
    sql_name,
    table_exists,
    table_properties,
)
from airflow_provider_db2cdc.spark.target import Owner, owner_of

BATCHES = (
    "batch bigint, run_id string, schema string, table string, after_lsn string, upto_lsn string, "
    "planned_at_ms bigint, capture string, slice string"
)
COMMITS = (
    "batch bigint, schema string, table string, upto_lsn string, capture string, creates bigint, updates bigint, "
    "deletes bigint, reads bigint, commit_ts_ms bigint, state_version bigint, rows bigint, "
    "applied_at_ms bigint, snapshot string, kind string, condition string, low_lsn string, chunks array<struct<"
    "chunk: int, low_bound: string, high_bound: string, rows_read: bigint, rows_counted: bigint, "
    "rows_published: bigint, rows_dropped: bigint>>"
)
"""`chunks` holds a certificate for each chunk of a snapshot that the batch published: its bounds as SQL literals (low
exclusive, high inclusive), what was read, what the source counted right after, what went out as `r`, and what gave way
to the log between `low_lsn` and `upto_lsn`."""

MANIFEST = (
    "batch bigint, frontier string, commit_ts_ms bigint, tables map<string, bigint>, rows map<string, bigint>, "
    "written_at_ms bigint"
)
TIDY_EVERY = 100


@dataclass(frozen=True)
class Entry:
    """One table's part of a planned batch: the range it pulls, and the staged rows it publishes (or sweeps), if any."""

    batch: int
    run_id: str
    table: TableId
    after: Lsn
    upto: Lsn
    planned_at_ms: int
    capture: CaptureIdentity
    slice: Slice | None = None

    @property
    def span(self) -> LsnRange:
        """The batch's range."""
        return LsnRange(self.after, self.upto)


@dataclass(frozen=True)
class Commit:
    """One table's part of a batch as it was applied; `published` are a slice's `r` rows by chunk."""

    batch: int
    table: TableId
    upto: Lsn
    capture: CaptureIdentity
    creates: int
    updates: int
    deletes: int
    reads: int
    commit_ts_ms: int | None
    state_version: int
    rows: int
    slice: Slice | None = None
    published: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """What the ledger says: each table's last commit and number of batches, what is pending, the greatest batch.

    An entry without a commit is pending, but for one that a restart of its table has overtaken. `slices` are each
    table's last applied part of a snapshot, with its commit.
    """

    last: Mapping[TableId, Commit] = field(default_factory=dict)
    applied: Mapping[TableId, int] = field(default_factory=dict)
    pending: Sequence[Entry] = ()
    batch: int = 0
    slices: Mapping[TableId, tuple[Slice, Commit]] = field(default_factory=dict)


class Ledger:
    """The tables of one pipeline."""

    def __init__(self, spark: SparkSession, layout: Layout, pipeline: str) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self._batches, self._commits, self._manifest = (
            layout.internal(name) for name in ("batches", "commits", "manifest")
        )
        self._is_fresh = False

    def prepare(self) -> Owner:
        """Create the tables where they are missing and return whose target it is.

        :raises TargetError: the target belongs to another pipeline or cannot be written.
        """
        fresh = Owner(self.pipeline, uuid4().hex)
        self._is_fresh = not table_exists(self.spark, self._batches)
        for name, ddl in ((self._batches, BATCHES), (self._commits, COMMITS), (self._manifest, MANIFEST)):
            if not table_exists(self.spark, name):
                create_table(self.spark, name, ddl, fresh.properties)
        owner = owner_of(table_properties(self.spark, self._batches))
        if owner is None or owner.pipeline != self.pipeline:
            raise TargetError(
                f"the target belongs to pipeline {owner.pipeline!r}" if owner else "the target is somebody else's",
                f"Give pipeline {self.pipeline!r} a target of its own.",
            )
        return owner

    def history(self, since: int = 0) -> History:
        """Read what was planned and applied from a batch on; nothing of a ledger that this run has begun."""
        if self._is_fresh:
            return History()
        keys = ["batch", "schema", "table"]
        commits = self._since(self._commits, since).dropDuplicates(keys)
        applied = commits.select(*keys, F.struct(*commits.columns).alias("applied"))
        batches = self._since(self._batches, since)
        entries = batches.select(*keys, F.struct(*batches.columns).alias("entry")).join(applied, keys, "left")
        tables = entries.groupBy("schema", "table").agg(
            F.max_by("applied", F.when(F.col("applied").isNotNull(), F.col("batch"))).alias("last"),
            F.count("applied").alias("applied"),
            F.max_by(F.struct("entry.slice", "applied"), _batch_of_slice()).alias("sliced"),
            F.collect_list(F.when(F.col("applied").isNull(), F.col("entry"))).alias("pending"),
            F.max("batch").alias("batch"),
        )
        found = tables.collect()
        last = [_commit(row["last"].asDict()) for row in found if row["last"] is not None]
        behind = {commit.table: commit.batch for commit in last}
        planned = [_entry(entry.asDict()) for row in found for entry in row["pending"]]
        pending = [entry for entry in planned if entry.batch > behind.get(entry.table, 0)]
        return History(
            last={commit.table: commit for commit in last},
            applied={TableId(row["schema"], row["table"]): int(row["applied"]) for row in found},
            pending=sorted(pending, key=lambda entry: entry.batch),
            batch=max((int(row["batch"]) for row in found), default=0),
            slices={
                commit.table: (_slice(row["sliced"]["slice"]), commit)
                for row in found
                if row["sliced"] is not None
                for commit in [_commit(row["sliced"]["applied"].asDict())]
            },
        )

    def _since(self, name: DeltaName, batch: int) -> DataFrame:
        """Return the rows from a batch on, as one partition: they are few, and what is grouped is shuffled nowhere."""
        return load(self.spark, name).where(F.col("batch") >= batch).coalesce(1)

    def plan(self, entries: Sequence[Entry]) -> None:
        """Write the entries of one new batch, first writer wins.

        :raises TickLostError: another run has planned this batch number.
        """
        batch, rows = entries[0].batch, [_entry_row(entry) for entry in entries]
        if append_first(literal_frame(self.spark, rows, BATCHES), self._batches, self._pair("plan", batch)):
            return
        written = load(self.spark, self._batches).where(F.col("batch") == batch).select("run_id").distinct().collect()
        raise TickLostError(
            f"run {', '.join(row[0] for row in written)} planned batch {batch} of pipeline {self.pipeline!r} first",
            "Nothing was written by this run. Two ticks of one pipeline ran at once: let the other one finish; "
            "max_active_runs=1 keeps them apart.",
        )

    def commit(self, commits: Sequence[Commit], at_ms: int) -> None:
        """Mark tables of a batch as applied; a second mark of the same changes nothing that is read from here."""
        append(literal_frame(self.spark, [_commit_row(commit, at_ms) for commit in commits], COMMITS), self._commits)

    def publish(self, batch: int, frontier: Lsn, commits: Sequence[Commit], at_ms: int) -> None:
        """Write the manifest of one frontier: Delta versions that show the source as of one commit."""
        times = [commit.commit_ts_ms for commit in commits if commit.commit_ts_ms is not None]
        versions = {str(commit.table): commit.state_version for commit in commits}
        counts = {str(commit.table): commit.rows for commit in commits}
        row = (batch, str(frontier), max(times, default=None), versions, counts, at_ms)
        append(literal_frame(self.spark, [row], MANIFEST), self._manifest, self._pair("manifest", batch))

    def tidy(self, batch: int) -> None:
        """Compact the small files that a tick leaves, now and then."""
        if batch and batch % TIDY_EVERY == 0:
            for name in (self._batches, self._commits, self._manifest):
                self.spark.sql(f"OPTIMIZE {sql_name(name)}")

    def _pair(self, step: str, batch: int) -> Pair:
        return f"db2cdc/{self.pipeline}/{step}", batch


def _batch_of_slice() -> Column:
    """Return an applied entry's batch where it is a part of a snapshot, else null."""
    return F.when(F.col("applied").isNotNull() & F.col("entry.slice").isNotNull(), F.col("batch"))


def _identity_text(identity: CaptureIdentity) -> str:
    return json.dumps(to_data(identity), sort_keys=True)


def _identity(text: str) -> CaptureIdentity:
    return from_data(CaptureIdentity, json.loads(text))


def _slice(text: str) -> Slice:
    return from_data(Slice, json.loads(text))


def _entry_row(entry: Entry) -> tuple[object, ...]:
    span = (str(entry.after), str(entry.upto))
    named = (entry.batch, entry.run_id, entry.table.schema, entry.table.name)
    part = None if entry.slice is None else json.dumps(to_data(entry.slice), sort_keys=True)
    return (*named, *span, entry.planned_at_ms, _identity_text(entry.capture), part)


def _commit_row(commit: Commit, at_ms: int) -> tuple[object, ...]:
    named = (commit.batch, commit.table.schema, commit.table.name, str(commit.upto), _identity_text(commit.capture))
    counts = (commit.creates, commit.updates, commit.deletes, commit.reads, commit.commit_ts_ms)
    return (*named, *counts, commit.state_version, commit.rows, at_ms, *_slice_row(commit))


def _slice_row(commit: Commit) -> tuple[object, ...]:
    of = commit.slice
    if of is None:
        return (None, None, None, None, None)
    chunks = [
        (at, ", ".join(c.low), ", ".join(c.high), c.read, c.counted, out, c.read - out)
        for at, c in enumerate(of.counts, of.first)
        for out in [commit.published.get(at, 0)]
    ]
    return (of.snapshot, of.kind, of.condition, str(of.low), chunks)


def _entry(row: dict[str, object]) -> Entry:
    return Entry(
        batch=int(str(row["batch"])),
        run_id=str(row["run_id"]),
        table=TableId(str(row["schema"]), str(row["table"])),
        after=Lsn.parse(str(row["after_lsn"])),
        upto=Lsn.parse(str(row["upto_lsn"])),
        planned_at_ms=int(str(row["planned_at_ms"])),
        capture=_identity(str(row["capture"])),
        slice=None if row["slice"] is None else _slice(str(row["slice"])),
    )


def _commit(row: dict[str, object]) -> Commit:
    names = ("creates", "updates", "deletes", "reads", "state_version", "rows", "batch")
    counted: dict[str, Any] = {name: int(str(row[name])) for name in names}
    return Commit(
        table=TableId(str(row["schema"]), str(row["table"])),
        upto=Lsn.parse(str(row["upto_lsn"])),
        capture=_identity(str(row["capture"])),
        commit_ts_ms=None if row["commit_ts_ms"] is None else int(str(row["commit_ts_ms"])),
        **counted,
    )
