"""A target in memory, behind the same ports as Delta: batch log, journal, change logs, states and staged rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from airflow_provider_db2cdc.cdc.event.change_event import Event, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import net_effects
from airflow_provider_db2cdc.cdc.event.snapshot_window import surviving, vanished
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch, build_history
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    ChunkSpan,
    TableSnapshot,
    chunk_bounds,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.ports import StateDiff, TableBatch
from support.memory_source import MemorySource, Row

Logged = tuple[int, str, Event]
"""An event of the change log: its batch, the step that wrote it, and the event."""


@dataclass
class MemoryTarget:
    """What outlives a tick.

    `versions` are Delta's transaction ids: of each table and step the newest batch that was written.
    """

    log: dict[TableId, list[Logged]] = field(default_factory=dict)
    state: dict[TableId, dict[Hashable, tuple[Hashable, int]]] = field(default_factory=dict)
    staged: dict[TableId, list[dict[int, list[Row]]]] = field(default_factory=dict)
    versions: dict[tuple[TableId, str], int] = field(default_factory=dict)
    fences: dict[TableId, int] = field(default_factory=dict)
    planned: list[PlannedBatch] = field(default_factory=list)
    applied: list[AppliedBatch] = field(default_factory=list)
    manifest: list[Lsn] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def once(self, table: TableId, step: str, batch: int, write: Callable[[], None]) -> bool:
        """Write under a transaction id; return False where this version of it, or a later one, was written before.

        :raises TargetError: the batch is abandoned.
        """
        with self.lock:
            if batch <= self.fences.get(table, 0):
                raise TargetError(f"{table}: a later plan has given up batch {batch}")
            if batch <= self.versions.get((table, step), 0):
                return False
            write()
            self.versions[table, step] = batch
            return True


@dataclass(frozen=True)
class MemoryBatchLog:
    """A batch log in memory."""

    target: MemoryTarget

    @failpoint("read_history")
    def history(self, since: Mapping[TableId, int]) -> BatchHistory:
        """Return all batches. More than requested does no harm."""
        with self.target.lock:
            return build_history(self.target.planned, self.target.applied)

    def optimize(self, before: int, batch: int) -> None:
        """Do nothing, because memory has no small files."""

    @failpoint("plan_batch")
    def plan(self, batches: Sequence[PlannedBatch]) -> None:
        """Write planned batches. The first writer of a number wins."""
        with self.target.lock:
            if any(planned.batch == batches[0].batch for planned in self.target.planned):
                raise ConcurrentRunError(f"batch {batches[0].batch} was planned by another run")
            self.target.planned += batches

    @failpoint("commit_batch")
    def commit(self, applied: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write applied batches."""
        with self.target.lock:
            self.target.applied += applied

    @failpoint("publish_manifest")
    def write_manifest(self, batch: int, frontier: Lsn, applied: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write the frontier."""
        self.target.manifest.append(frontier)

    def first_planned_at_ms(self) -> int:
        """Return when the first batch was planned."""
        return min((planned.planned_at_ms for planned in self.target.planned), default=0)


@dataclass(frozen=True)
class MemoryTables:
    """The tables of a target in memory, filled from a source in memory."""

    target: MemoryTarget
    source: MemorySource

    def for_reader(self) -> MemoryTables:
        """Return the same tables. A lock protects them."""
        return self

    def slots(self) -> int | None:
        """Return two."""
        return 2

    @failpoint("prepare_table")
    def prepare(
        self, task: TableTask, last: AppliedBatch | None, is_begun: bool, abandoned: Sequence[int], batch: int
    ) -> None:
        """Fence the writers of abandoned batches."""
        with self.target.lock:
            self.target.log.setdefault(task.table, [])
            self.target.state.setdefault(task.table, {})
            if abandoned:
                self.target.fences[task.table] = max(*abandoned, self.target.fences.get(task.table, 0))

    @failpoint("check_readable")
    def check_readable(self, task: TableTask, planned: PlannedBatch, capture_lsn: Lsn) -> None:
        """Accept every batch, because a source in memory prunes nothing."""

    def check_idle(self, task: TableTask, last: AppliedBatch, batch: int) -> AppliedBatch:
        """Return the last applied batch, because only the pipeline writes here."""
        return last

    def apply(self, batch: TableBatch) -> AppliedBatch:
        """Write one batch: into the change log, then into the state."""
        table, planned = batch.task.table, batch.planned
        changes = events_of(self.source.captured_changes(table, planned.span)) if not planned.span.empty else []
        self.append(table, planned.batch, "changes", changes)
        chunk_range = self._append_snapshot(table, planned, planned.chunk_range)
        self._merge(table, planned.batch)
        return self._applied(batch, chunk_range)

    def diff(self, task: TableTask, chunk_range: ChunkRange, last: AppliedBatch | None) -> StateDiff:
        """Return nothing, because `apply` compares by itself."""
        return None

    @failpoint("stage_chunks")
    def stage(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, span: ChunkSpan, readers: int
    ) -> ChunkRange:
        """Read chunks, each in one moment, and stage them as a new version."""
        versions = self.target.staged.setdefault(task.table, [])
        rows = dict(versions[chunk_range.staging_version]) if chunk_range.counts else {}
        counts = list(chunk_range.counts)
        for chunk in range(span.first, span.last + 1):
            low, high = chunk_bounds(table_snapshot, chunk)
            rows[chunk] = self.source.read(task.table, low, high)
            counts.append(ChunkCounts(low, high, len(rows[chunk]), len(rows[chunk])))
        versions.append(rows)
        return replace(chunk_range, last=span.last, staging_version=len(versions) - 1, counts=tuple(counts))

    def delete_staged(self, task: TableTask, chunk_range: ChunkRange) -> None:
        """Keep the rows. Memory is freed with the test."""

    @failpoint("append_changes")
    def append(self, table: TableId, batch: int, step: str, events: Iterable[Event]) -> bool:
        """Append the events of one step of a batch to the change log, once."""
        logged = [(batch, step, event) for event in events]
        return self.target.once(table, step, batch, lambda: self.target.log[table].extend(logged))

    def _append_snapshot(self, table: TableId, planned: PlannedBatch, chunk_range: ChunkRange | None) -> Any:
        if chunk_range is None:
            return None
        if chunk_range.delete_missing:
            self._append_deletes(table, planned, self._missing(table, chunk_range))
            return chunk_range
        staged = [row for rows in self.target.staged[table][chunk_range.staging_version].values() for row in rows]
        effects = net_effects(self._window(table, chunk_range.low_batch, planned.batch))
        read = surviving([((row[0],), row) for row in staged], effects)
        self.append(
            table, planned.batch, "reads", [Event(planned.upto, 0, "r", key, None, row) for key, row in read.items()]
        )
        if chunk_range.deletes_by_range:
            found = {(row[0],) for row in staged}
            self._append_deletes(
                table,
                planned,
                {key for key in self._within(table, chunk_range) if key not in found and key not in effects},
            )
        return chunk_range

    def _append_deletes(self, table: TableId, planned: PlannedBatch, keys: Iterable[Any]) -> None:
        state = self.target.state[table]
        gone = [Event(planned.upto, 0, "d", key, state[key][0], None) for key in keys]
        self.append(table, planned.batch, "deletes", gone)

    def _missing(self, table: TableId, chunk_range: ChunkRange) -> set[Any]:
        read = {event.key for at, _, event in self.target.log[table] if at > chunk_range.low_batch and event.op == "r"}
        batches = {key: at for key, (_, at) in self.target.state[table].items()}
        return vanished(batches, read, chunk_range.low_batch)

    def _within(self, table: TableId, chunk_range: ChunkRange) -> list[Any]:
        low, high = chunk_range.counts[0].low, chunk_range.counts[-1].high
        return [
            key
            for key in self.target.state[table]
            if (not low or key[0] > int(low[0])) and (not high or key[0] <= int(high[0]))
        ]

    def _window(self, table: TableId, low_batch: int, batch: int) -> list[Event]:
        """Return the events of a window that the source's changes made."""
        log = self.target.log[table]
        return [event for at, step, event in log if low_batch < at <= batch and step == "changes"]

    @failpoint("merge_state")
    def _merge(self, table: TableId, batch: int) -> None:
        def write() -> None:
            state = self.target.state[table]
            own = [(step, event) for at, step, event in self.target.log[table] if at == batch]
            effects = net_effects([event for step, event in own if step == "changes"])
            images = {key: effect.image for key, effect in effects.items()}
            images |= {event.key: event.after for step, event in own if step != "changes"}
            for key, image in images.items():
                state.pop(key, None)
                if image is not None:
                    state[key] = (image, batch)

        self.target.once(table, "state", batch, write)

    def _applied(self, batch: TableBatch, chunk_range: ChunkRange | None) -> AppliedBatch:
        planned = batch.planned
        ops = [event.op for at, _, event in self.target.log[planned.table] if at == planned.batch]
        return AppliedBatch(
            batch=planned.batch,
            table=planned.table,
            upto=planned.upto,
            capture=planned.capture,
            creates=ops.count("c"),
            updates=ops.count("u"),
            deletes=ops.count("d"),
            reads=ops.count("r"),
            commit_ts_ms=None,
            state_version=planned.batch,
            rows=len(self.target.state[planned.table]),
            chunk_range=None if chunk_range is None else replace(chunk_range, needs_another_read=False),
            snapshot=None if chunk_range is None else chunk_range.snapshot,
        )
