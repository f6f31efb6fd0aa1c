"""The tables of a target in memory, filled from a source in memory by the plain rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error
from airflow_provider_db2cdc.cdc.event.change_event import Event, events_of
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings, Replay
from airflow_provider_db2cdc.cdc.snapshot.heal import begins_heal, ends_heal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    ChunkSpan,
    DeleteMissing,
    KeyedChunks,
    TableSnapshot,
    chunk_bounds,
)
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConcurrentRunError, TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import now_ms
from airflow_provider_db2cdc.tick.ports import StateDiff, TableBatch
from support.memory_repair import Corrections, apply_repair, compare_table, put_late
from support.memory_rows import folded_by_copies, folded_by_key, keyed_changes, keyless_changes, misnumbered, numbered
from support.memory_snapshot import published, snapshot_events, source_events
from support.memory_source import MemorySource, Row, changes_in_columns, in_columns, number
from support.memory_target import Logged, MemoryTarget, widened


@dataclass(frozen=True)
class MemoryTables:
    """The tables of a target in memory, filled from a source in memory. `staged` are the chunks that a run has read."""

    target: MemoryTarget
    source: MemorySource
    staged: dict[str, dict[int, list[Row]]] = field(default_factory=dict)

    def for_reader(self) -> MemoryTables:
        """Return the same tables. A lock protects them."""
        return self

    def slots(self) -> int | None:
        """Return two."""
        return 2

    @failpoint("prepare_table")
    def prepare(
        self, task: TableTask, last: AppliedBatch | None, is_begun: bool, abandoned: Sequence[PlannedBatch], batch: int
    ) -> None:
        """Create or widen the tables, restore lost rows, and fence the writers of abandoned batches."""
        target, table = self.target, task.table
        with target.lock:
            if last is not None and not is_begun and table not in target.state:
                raise TargetError(f"{table}: its tables are not there any more")
            target.log.setdefault(table, [])
            target.state.setdefault(table, {})
            target.commits.setdefault(table, [])
            self._widen(target.schemas.get(table, task.schema), task.schema, is_begun)
            is_changed = last is not None and is_begun and self._is_changed(last)
            for planned in abandoned:
                target.fences[table] = max(planned.batch, target.fences.get(table, 0))
        for planned in abandoned:
            if planned.repair is None:
                self._merge(task.schema, planned.batch, is_abandoned=True)
        if is_changed or any(planned.repair is not None for planned in abandoned):
            self._refill(task.schema, batch)

    @failpoint("check_readable")
    def check_readable(self, task: TableTask, planned: PlannedBatch, capture_lsn: Lsn) -> None:
        """Look for a pending batch's changes in the change log, where the source may have pruned them."""
        now = CapturePoint(capture_lsn, task.capture.identity, task.capture.pruned_upto)
        gap = find_gap(CapturePoint(planned.after, planned.capture), now)
        if gap and not planned.span.empty and self._logged_rows(planned) < (planned.rows or 1):
            raise gap_error(task.table, gap)

    def check_idle(self, task: TableTask, last: AppliedBatch, batch: int) -> AppliedBatch:
        """Check the state's versions in each batch, because it takes no time."""
        if task.table not in self.target.state:
            raise TargetError(f"{task.table}: its tables are not there any more")
        self._check_healed(last)
        self.target.check_foreign(task.table, last.state_version)
        return replace(last, state_version=len(self.target.commits[task.table]))

    def apply(self, batch: TableBatch) -> AppliedBatch:
        """Write one batch: into the change log, then into the state."""
        if batch.planned.repair is not None:
            return self._repair(batch)
        table, planned, last = batch.task.table, batch.planned, None if batch.is_begun else batch.last
        accepts, now = batch.accepted_since is not None, len(self.target.commits[table])
        if last is not None and not accepts:
            self._check_healed(last)
        is_changed = self.target.check_foreign(table, now if last is None else last.state_version, accepts)
        since = batch.accepted_since if is_changed else None if last is None else last.foreign_since
        if since is not None and begins_heal(planned.chunk_range):
            self._refill(batch.task.schema, planned.batch)
        applied = self._apply(batch)
        if self.target.check_foreign(table, now, accepts):
            since = planned.batch
        elif since is not None and ends_heal(applied.chunk_range, since):
            since = None
        return replace(applied, foreign_since=since)

    def _apply(self, batch: TableBatch) -> AppliedBatch:
        table, planned = batch.task.table, batch.planned
        self._append_changes(planned, batch.task.schema)
        chunk_range = self._usable_range(batch)
        if chunk_range is not None:
            staged = self.staged.get(chunk_range.read_id, {})
            reads, deletes, chunk_range = snapshot_events(self.target, staged, planned, chunk_range)
            if not isinstance(chunk_range, DeleteMissing):
                self.append(table, planned.batch, "reads", reads)
            if deletes:
                self.append(table, planned.batch, "deletes", deletes)
        if not self._merge(batch.task.schema, planned.batch) and self.target.is_applied(table, planned.batch):
            raise ConcurrentRunError(f"another run has finished batch {planned.batch} of {table} meanwhile")
        return self._applied(batch, chunk_range)

    def compare(self, batch: TableBatch) -> Findings:
        """Compare a table as a repair says."""
        if batch.task.table not in self.target.state:
            raise TargetError(f"{batch.task.table}: its tables are not there any more")
        found = compare_table(self.target, self.source, batch).found
        return replace(found, is_foreign=self._is_foreign(batch))

    def _is_foreign(self, batch: TableBatch) -> bool:
        assert batch.last is not None
        return self._is_changed(batch.last)

    def _repair(self, batch: TableBatch) -> AppliedBatch:
        """Repair a table. Foreign changes of it stay known to the guard, unless this try has compared all keys."""
        table, planned, is_foreign = batch.task.table, batch.planned, self._is_foreign(batch)
        applied, is_written = apply_repair(self, batch)
        is_whole = isinstance(planned.repair and planned.repair.repair, Replay) and is_written
        if self.target.is_applied(table, planned.batch):
            raise ConcurrentRunError(f"another run has finished batch {planned.batch} of {table} meanwhile")
        if is_foreign and not is_whole:
            return applied
        return replace(applied, state_version=len(self.target.commits[table]), foreign_since=None)

    @failpoint("append_changes")
    def append_late(self, table: TableId, batch: int, added: list[Logged]) -> bool:
        """Put events under their batches, once."""
        return self.target.once(table, "backfill", batch, lambda: put_late(self.target, table, added))

    @failpoint("merge_state")
    def merge_corrections(self, table: TableId, batch: int, corrections: Corrections) -> bool:
        """Set and delete rows of the state, once."""
        return self.target.once(table, "state", batch, lambda: self.target.put_rows(table, corrections))

    def diff(self, task: TableTask, chunk_range: KeyedChunks, last: AppliedBatch | None) -> StateDiff:
        """Return nothing, because `apply` compares by itself."""
        return None

    @failpoint("stage_chunks")
    def stage(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, span: ChunkSpan, readers: int
    ) -> ChunkRange:
        """Read chunks, each in one moment, and keep them."""
        rows = self.staged.get(chunk_range.read_id, {})
        counts = list(chunk_range.counts)
        for chunk in range(span.first, span.last + 1):
            low, high = chunk_bounds(table_snapshot, chunk)
            rows[chunk] = in_columns(task.schema, self.source.read(task.table, low, high))
            counts.append(ChunkCounts(low, high, len(rows[chunk]), len(rows[chunk])))
        read_id = chunk_range.read_id or uuid4().hex
        self.staged[read_id] = rows
        return replace(chunk_range, last=span.last, read_id=read_id, counts=tuple(counts))

    def drop_staged(self, chunk_range: ChunkRange) -> None:
        """Forget the rows of a read."""
        self.staged.pop(chunk_range.read_id, None)

    def free_memory(self) -> None:
        """Do nothing, because memory has no frames."""

    @failpoint("append_changes")
    def append(self, table: TableId, batch: int, step: str, events: Iterable[Event]) -> bool:
        """Append the events of one step of a batch to the change log, once."""
        width = len(self.target.schemas[table].columns)
        logged = [(batch, step, widened(event, width)) for event in events]
        if step != "changes" and batch <= self.target.excluded.get(table, 0):
            raise ConcurrentRunError(f"another run has redone batch {batch} of {table} without its chunk range")
        return self.target.once(table, step, batch, lambda: self.target.log[table].extend(logged))

    def _is_changed(self, last: AppliedBatch) -> bool:
        return last.foreign_since is not None or not all(self.target.commits[last.table][last.state_version :])

    def _check_healed(self, last: AppliedBatch) -> None:
        if last.foreign_since is not None:
            raise TargetError(f"{last.table}: somebody else has changed its current state", "Heal the table.")

    @failpoint("refill_state")
    def _refill(self, schema: TableSchema, batch: int) -> None:
        """Put rows back that the state has lost, once. Copies that are not numbered without a gap are written again."""
        table, state = schema.table, self.target.state[schema.table]
        gone = {} if schema.key else dict.fromkeys(misnumbered(state))
        is_trimmed = table in self.target.horizons
        kept = numbered({key: state[key] for key in gone}) if is_trimmed else {}
        held = (state.keys() - gone.keys()) | kept.keys()
        lost = {key: row for key, row in self._folded(schema).items() if key not in held}
        self.target.once(table, "refill", batch, lambda: self.target.put_rows(table, {**gone, **kept, **lost}))

    def _widen(self, known: TableSchema, schema: TableSchema, is_begun: bool) -> None:
        """Take over a table's columns. Rows that are there have nulls in the columns that it gained."""
        table, gained = schema.table, len(schema.columns) - len(known.columns)
        if schema.columns[: len(known.columns)] != known.columns or (gained and not schema.key and not is_begun):
            raise TargetError(f"{table}: its columns are others than those of its current state")
        self.target.widen(schema)

    def _append_changes(self, planned: PlannedBatch, schema: TableSchema) -> None:
        """Append the change rows of a batch's range, and check that no counted row was pruned before it was read.

        A batch without changes does not use up its transaction id, as on Delta.
        """
        table = planned.table
        if planned.span.empty or planned.rows == 0:
            return
        rows = changes_in_columns(schema, self.source.captured_changes(table, planned.span))
        self.append(table, planned.batch, "changes", events_of(rows))
        wanted = planned.rows or 0
        if len(rows) < wanted and self._logged_rows(planned) < wanted:
            raise gap_error(table, f"of {wanted} change rows some were pruned before they were read")

    def _logged_rows(self, planned: PlannedBatch) -> int:
        """Return how many change rows the events of a batch come from: two for an update."""
        events = source_events(self.target, planned.table, planned.batch - 1, planned.batch)
        return sum(2 if event.op == "u" else 1 for event in events)

    def _usable_range(self, batch: TableBatch) -> ChunkRange | None:
        """Return a batch's chunk range, unless another run has read it, or under other columns.

        Then its writers are refused.
        """
        chunk_range, table = batch.planned.chunk_range, batch.task.table
        if chunk_range is None or isinstance(chunk_range, DeleteMissing):
            return chunk_range
        if chunk_range.fingerprint == batch.task.schema.fingerprint and chunk_range.read_id in self.staged:
            return chunk_range
        self.target.excluded[table] = max(batch.planned.batch, self.target.excluded.get(table, 0))
        return None

    def _folded(self, schema: TableSchema) -> dict[Hashable, tuple[Row, int]]:
        return (folded_by_key if schema.key else folded_by_copies)(self.target.log[schema.table])

    @failpoint("merge_state")
    def _merge(self, schema: TableSchema, batch: int, is_abandoned: bool = False) -> bool:
        """Write a batch's effects to the state, once. Return False if they were written before."""
        state, table = self.target.state[schema.table], schema.table
        own = [logged for logged in self.target.log[table] if logged[0] == batch]
        changed = keyed_changes(own, state) if schema.key else keyless_changes(own, state)
        rows = {key: None if image is None else (image, batch) for key, image in changed.items()}
        return not own or self.target.once(
            table, "state", batch, lambda: self.target.put_rows(table, rows), is_abandoned
        )

    def _applied(self, batch: TableBatch, chunk_range: ChunkRange | None) -> AppliedBatch:
        planned, last = batch.planned, None if batch.is_begun else batch.last
        events = [event for at, _, event in self.target.log[planned.table] if at == planned.batch]
        ops = Counter(event.op for event in events)
        own = source_events(self.target, planned.table, planned.batch - 1, planned.batch)
        read = {event.after for event in events if event.op == "r"}
        return AppliedBatch(
            batch=planned.batch,
            table=planned.table,
            upto=planned.upto,
            capture=planned.capture,
            creates=ops["c"],
            updates=ops["u"],
            deletes=ops["d"],
            reads=ops["r"],
            commit_ts_ms=None,
            as_of_ms=_as_of_ms(batch, own),
            state_version=len(self.target.commits[planned.table]),
            rows=len(self.target.state[planned.table]),
            chunk_range=chunk_range,
            published=published(self.staged.get(chunk_range.read_id, {}) if chunk_range else {}, read),
            snapshot=None if chunk_range is None else chunk_range.snapshot,
            commit_lsn=max((event.commit for event in own), default=None if last is None else last.commit_lsn),
        )


def _as_of_ms(batch: TableBatch, events: Sequence[Event]) -> int:
    """Return the greatest time of a commit, which is its number. Rows of a snapshot have none."""
    if batch.last is None or batch.planned.chunk_range is not None:
        return now_ms()
    return max([batch.last.as_of_ms, *(number(event.commit) for event in events)])
