"""One table of a twin of the target port, to which a run applies batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import ANY

import pytest

from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings, PlannedRepair, Repair
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    ChunkSpan,
    KeyedChunks,
    KeylessRead,
    TableSnapshot,
)
from airflow_provider_db2cdc.tick.ports import TableBatch, Tables
from support.memory_twin import Twin

BOUNDS = (("3",), ("6",))
SPANS = ((0, 1), (2, 2))
DELTA = pytest.param("delta", marks=[pytest.mark.spark, pytest.mark.sandbox])
BY_TWIN = pytest.mark.parametrize("kind", ["memory", DELTA])
"""Run a test for each implementation of the port."""

Values = Mapping[int, int | None]


def at_any_time(applied: AppliedBatch) -> AppliedBatch:
    """Return what equals the same batch, applied later."""
    return replace(applied, as_of_ms=ANY)


def without_chunks(applied: AppliedBatch) -> AppliedBatch:
    """Return what another run returns later for the same batch. It does not have the rows that were read."""
    return replace(at_any_time(applied), chunk_range=None, snapshot=None, published={})


@dataclass
class Table:
    """A table of a twin, to which a run applies batches. `last` is its last applied batch, `at` its position."""

    twin: Twin
    last: AppliedBatch | None = None
    batch: int = 0

    def __post_init__(self) -> None:
        self.at = self.twin.captured()
        self.tables = self.twin.open()
        self.planned: list[PlannedBatch] = []

    def plan(self, chunk_range: ChunkRange | None = None) -> PlannedBatch:
        """Plan the next batch, of everything that is committed."""
        self.batch += 1
        upto = self.twin.captured()
        task, rows = self.twin.task(upto), self.twin.count(LsnRange(self.at, upto))
        origin = (1_000, task.capture.identity)
        planned = PlannedBatch(
            self.batch, "run", "plan", task.table, self.at, upto, *origin, chunk_range, has_offset=True, rows=rows
        )
        self.at = upto
        return planned

    def prepare(self, is_begun: bool = False, abandoned: Sequence[PlannedBatch] = ()) -> None:
        """Prepare the table for the next batch."""
        self.tables.prepare(self.twin.task(self.at), self.last, is_begun, abandoned, self.batch + 1)

    def apply(self, planned: PlannedBatch, tables: Tables | None = None, **facts: bool) -> AppliedBatch:
        """Apply a batch, as a run that died before it recorded it."""
        batch = TableBatch(self.twin.task(planned.upto), planned, self.last, **facts)
        return (tables or self.tables).apply(batch)

    def done(self, planned: PlannedBatch, **facts: bool) -> AppliedBatch:
        """Apply a batch and record it."""
        self.last = self.apply(planned, None, **facts)
        self.twin.record(self.last)
        self.planned.append(planned)
        return self.last

    def begin(self, values: Values) -> AppliedBatch:
        """Apply the first batch: these rows."""
        self.twin.commit(values)
        self.prepare()
        return self.done(self.plan())

    def begin_with_snapshot(self, values: Values) -> ChunkRange:
        """Apply the first batch: these rows, as a snapshot reads them. Return what was staged for it."""
        self.twin.commit(values)
        self.at = self.twin.captured()
        self.prepare(is_begun=True)
        staged = self.stage()
        self.done(self.plan(staged), is_begun=True)
        return staged

    def again(self, planned: PlannedBatch) -> AppliedBatch:
        """Apply a batch again, as the next run does."""
        return self.apply(planned, self.twin.open(), is_redone=True)

    def plan_repair(self, repair: Repair) -> PlannedBatch:
        """Return the next batch as a repair. The batches before it are in the batch log then."""
        if self.planned:
            self.twin.plan(self.planned)
            self.planned = []
        assert self.last is not None
        at, table, identity = self.last.upto, self.last.table, self.last.capture
        found = PlannedRepair(repair, Findings())
        return PlannedBatch(
            self.batch + 1, "run", "repair", table, at, at, 2_000, identity, has_offset=True, repair=found
        )

    def compare(self, repair: Repair) -> Findings:
        """Compare the table as a repair does."""
        planned = self.plan_repair(repair)
        return self.tables.compare(TableBatch(self.twin.task(planned.upto), planned, self.last))

    def repair(self, repair: Repair) -> Findings:
        """Compare the table, and apply and record a batch if something differs."""
        found = self.compare(repair)
        if PlannedRepair(repair, found).is_needed:
            planned = self.plan_repair(repair)
            self.batch += 1
            self.done(planned)
        return found

    def stage(
        self, bounds: tuple[tuple[str, ...], ...] = BOUNDS, spans: Sequence[tuple[int, int]] = SPANS, **facts: Any
    ) -> ChunkRange:
        """Stage chunks of a snapshot, one span after the other."""
        task = self.twin.task(self.at)
        low = (self.at, self.batch, self.batch, task.schema.fingerprint)
        kind = KeyedChunks if task.schema.key else KeylessRead
        name: SnapshotKind = "heal" if facts.get("differences_only") else "incremental"
        staged: ChunkRange = kind("snapshot", name, 0, -1, *low, **facts)
        for first, last in spans:
            span = ChunkSpan(task.table, first, last)
            staged = self.tables.stage(task, self.snapshot(bounds=bounds), staged, span, 2)
        return staged

    def stage_whole(self, **facts: Any) -> ChunkRange:
        """Stage the table as one chunk, which shows every row that is missing."""
        has_key = bool(self.twin.task(self.at).schema.key)
        return self.stage((), [(0, 0)], **{"deletes_by_range" if has_key else "covers_table": True}, **facts)

    def snapshot(self, **facts: Any) -> TableSnapshot:
        """Return a table snapshot under way."""
        schema = self.twin.task(self.at).schema
        return TableSnapshot(schema.table, status="reading", fingerprint=schema.fingerprint, **facts)


NewTable = Callable[[bool], Table]
"""Make a table with or without a key."""
