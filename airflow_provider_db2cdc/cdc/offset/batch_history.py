"""The batches that a pipeline has planned and applied, and what they show of each table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.repair.repair import PlannedRepair, RepairKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, DeleteMissing
from airflow_provider_db2cdc.cdc.table import TableId


@dataclass(frozen=True)
class PlannedBatch:
    """One table's part of a planned batch: the range it pulls, and its chunk range, if any.

    The chunk range is the staged rows that the batch publishes, or the deletion of missing rows. `plan_id` names the
    only plan that it belongs to. `has_offset` says whether the store had an offset of the table when the tick was
    planned. `rows` is the number of change rows that the source then had in the range, None if they were not counted.
    A batch with a `repair` pulls nothing: its range is empty, and it begins no table.
    """

    batch: int
    run_id: str
    plan_id: str
    table: TableId
    after: Lsn
    upto: Lsn
    planned_at_ms: int
    capture: CaptureIdentity
    chunk_range: ChunkRange | None = None
    has_offset: bool = False
    rows: int | None = None
    repair: PlannedRepair | None = None

    @property
    def span(self) -> LsnRange:
        """The batch's range."""
        return LsnRange(self.after, self.upto)


@dataclass(frozen=True)
class AppliedBatch:
    """One table's part of a batch as it was applied. `published` has the `r` rows of a chunk range by chunk.

    `commit_lsn` and `commit_ts_ms` are the newest commit applied since the table was begun, and its time. If the table
    was begun again without a commit since, only the time is set, and it is the earlier one.

    `as_of_ms`: the source committed no row of the state and no deletion later. It is the greatest time of all commits
    so far. Rows of a snapshot and commits without a time count with the time at which the job applied them, and a
    repair with that of its plan.

    `snapshot` is the snapshot whose chunk range was published. It is None where the chunk range of a planned batch was
    excluded, because its columns changed. `state_id` and `state_version` identify the Delta table and its version that
    the batch left as the current state. `changes_id` and `changes_version` do so for the change log.

    `foreign_since`: another writer has changed the state, after this batch or a later one. A heal that began after it
    and has ended resets it to None.
    """

    batch: int
    table: TableId
    upto: Lsn
    capture: CaptureIdentity
    creates: int
    updates: int
    deletes: int
    reads: int
    commit_ts_ms: int | None
    as_of_ms: int
    state_version: int
    rows: int
    chunk_range: ChunkRange | None = None
    published: Mapping[int, int] = field(default_factory=dict)
    snapshot: str | None = None
    commit_lsn: Lsn | None = None
    state_id: str = ""
    changes_id: str = ""
    changes_version: int = 0
    foreign_since: int | None = None
    repair: RepairKind | None = None


@dataclass(frozen=True)
class BatchHistory:
    """The contents of the batch log: each table's last applied batch, pending batches, the greatest batch.

    A planned batch that is not applied is pending, unless a restart of its table has overtaken it. `chunk_ranges` has
    each table's last applied chunk range, with its applied batch. `tables_with_offset` are tables whose offset a plan
    has found in the store. No tick of any other table has come so far as to store one. `applied` has all applied
    batches that were read, with their planned batches.
    """

    last: Mapping[TableId, AppliedBatch] = field(default_factory=dict)
    tables_with_offset: frozenset[TableId] = frozenset()
    pending: tuple[PlannedBatch, ...] = ()
    newest_batch: int = 0
    chunk_ranges: Mapping[TableId, tuple[ChunkRange, AppliedBatch]] = field(default_factory=dict)
    applied: Mapping[TableId, Sequence[tuple[PlannedBatch, AppliedBatch]]] = field(default_factory=dict)

    def newest(self, table: TableId) -> PlannedBatch | None:
        """Return the planned batch of a table's last applied batch that is no repair, None if there is none."""
        pairs = reversed(self.applied.get(table, ()))
        return next((planned for planned, _ in pairs if planned.repair is None), None)


def begins(planned: PlannedBatch) -> bool:
    """Whether a batch begins a table, with a snapshot or without one.

    A redo of the batch must come to the same answer, and the table is not new any more by then. So only the batch
    decides: no other batch has an empty range and no rows, except a repair. The deletion of missing rows ends a
    snapshot, and begins nothing.
    """
    if planned.repair is not None or isinstance(planned.chunk_range, DeleteMissing):
        return False
    chunk_range = planned.chunk_range
    return (
        planned.span.empty if chunk_range is None else chunk_range.snapshot_kind == "initial" and chunk_range.first == 0
    )


def advanced(planned: PlannedBatch, last: AppliedBatch) -> AppliedBatch:
    """Return the applied batch of a range without changes of the table: the offset moves, the tables stay."""
    moved = replace(last, batch=planned.batch, upto=planned.upto, capture=planned.capture)
    bare = replace(moved, creates=0, updates=0, deletes=0, reads=0, repair=None)
    return replace(bare, snapshot=None, chunk_range=None, published={})


def is_uncounted(planned: PlannedBatch, planned_upto: Lsn) -> bool:
    """Whether a batch needs a count of its own: its range is not the plan's, which goes up to `planned_upto`.

    Each window of a snapshot needs one. A window without changes may be one that the capture agent did not capture.
    """
    is_beyond = not planned.span.empty and (planned.rows is None or planned.upto > planned_upto)
    return is_beyond or planned.chunk_range is not None


def build_history(batches: Iterable[PlannedBatch], applied_batches: Iterable[AppliedBatch]) -> BatchHistory:
    """Return the history of planned and applied batches. A batch that was recorded as applied twice counts once."""
    applied_by_key = {(applied_batch.batch, applied_batch.table): applied_batch for applied_batch in applied_batches}
    planned_by_table: dict[TableId, list[PlannedBatch]] = defaultdict(list)
    for planned in sorted(batches, key=lambda planned: planned.batch):
        planned_by_table[planned.table].append(planned)
    applied = {
        table: [
            (planned, applied_by_key[key])
            for planned in table_batches
            if (key := (planned.batch, table)) in applied_by_key
        ]
        for table, table_batches in planned_by_table.items()
    }
    last = {table: pairs[-1][1] for table, pairs in applied.items() if pairs}
    last_batch = {table: applied_batch.batch for table, applied_batch in last.items()}
    pending = [
        planned
        for table_batches in planned_by_table.values()
        for planned in table_batches
        if planned.batch > last_batch.get(planned.table, 0)
    ]
    chunk_ranges = {
        table: (planned.chunk_range, applied_batch)
        for table, pairs in applied.items()
        for planned, applied_batch in pairs
        if planned.chunk_range is not None and applied_batch.snapshot == planned.chunk_range.snapshot
    }
    return BatchHistory(
        last=last,
        tables_with_offset=frozenset(
            table
            for table, table_batches in planned_by_table.items()
            if any(planned.has_offset for planned in table_batches)
        ),
        pending=tuple(sorted(pending, key=lambda planned: planned.batch)),
        newest_batch=max((table_batches[-1].batch for table_batches in planned_by_table.values()), default=0),
        chunk_ranges=chunk_ranges,
        applied={table: pairs for table, pairs in applied.items() if pairs},
    )
