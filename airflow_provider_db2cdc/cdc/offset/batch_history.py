"""What a pipeline has planned and applied, batch by batch, and what that says of each table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange
from airflow_provider_db2cdc.cdc.table import TableId


@dataclass(frozen=True)
class PlannedBatch:
    """One table's part of a planned batch: the range it pulls, and the staged rows it publishes (or sweeps), if any.

    `plan_id` names the one plan that it is of. `has_offset` tells whether the store had an offset of the table when the
    tick was planned; `rows` how many change rows the source then had in the range, None where nobody has counted just
    these.
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

    @property
    def span(self) -> LsnRange:
        """The batch's range."""
        return LsnRange(self.after, self.upto)


@dataclass(frozen=True)
class AppliedBatch:
    """One table's part of a batch as it was applied; `published` are a slice's `r` rows by chunk.

    `commit_lsn` and `commit_ts_ms` are the newest commit applied since the table was begun, and its time; of a table
    that was begun anew without one since, the time alone is that of before.

    `snapshot` is the one whose slice was published: none where an entry's slice was left out, as its columns changed.
    `state_id` and `state_version` say which version of which Delta table the batch has left as the current state,
    `changes_id` and `changes_version` the same of the change log.
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
    state_version: int
    rows: int
    chunk_range: ChunkRange | None = None
    published: Mapping[int, int] = field(default_factory=dict)
    snapshot: str | None = None
    commit_lsn: Lsn | None = None
    state_id: str = ""
    changes_id: str = ""
    changes_version: int = 0


@dataclass(frozen=True)
class BatchHistory:
    """What the ledger says: each table's last commit, what is pending, the greatest batch.

    An entry without a commit is pending, but for one that a restart of its table has overtaken. `chunk_ranges` are each
    table's last applied part of a snapshot, with its commit. `tables_with_offset` are tables whose offset a plan has
    found in the store: none of the others' ticks has come as far as to put one there. `applied` are all commits that
    were read, with their entries.
    """

    last: Mapping[TableId, AppliedBatch] = field(default_factory=dict)
    tables_with_offset: frozenset[TableId] = frozenset()
    pending: tuple[PlannedBatch, ...] = ()
    newest_batch: int = 0
    chunk_ranges: Mapping[TableId, tuple[ChunkRange, AppliedBatch]] = field(default_factory=dict)
    applied: Mapping[TableId, Sequence[tuple[PlannedBatch, AppliedBatch]]] = field(default_factory=dict)

    def newest(self, table: TableId) -> PlannedBatch | None:
        """Return the entry of a table's last commit, None where there is none."""
        return next((planned for planned, _ in reversed(self.applied.get(table, ()))), None)


def begins(planned: PlannedBatch) -> bool:
    """Whether a batch begins a table, with a snapshot or without one: no other is without changes and rows.

    A redo of such a batch does not know any more that the table was new.
    """
    chunk_range = planned.chunk_range
    return (
        planned.span.empty if chunk_range is None else chunk_range.snapshot_kind == "initial" and chunk_range.first == 0
    )


def advanced(planned: PlannedBatch, last: AppliedBatch) -> AppliedBatch:
    """Return the commit of a range that held no change of the table: its offset moves, its tables do not."""
    moved = replace(last, batch=planned.batch, upto=planned.upto, capture=planned.capture)
    return replace(moved, creates=0, updates=0, deletes=0, reads=0, snapshot=None, chunk_range=None, published={})


def is_uncounted(planned: PlannedBatch, planned_upto: Lsn) -> bool:
    """Whether a batch needs a count of its own: its range is not the plan's, which goes up to `planned_upto`.

    Each window of a snapshot needs one. A window without changes may be one that the capture agent did not capture.
    """
    is_beyond = not planned.span.empty and (planned.rows is None or planned.upto > planned_upto)
    return is_beyond or planned.chunk_range is not None


def build_history(batches: Iterable[PlannedBatch], commits: Iterable[AppliedBatch]) -> BatchHistory:
    """Return what entries and their commits say together; a part that was marked as applied twice counts once."""
    marks = {(commit.batch, commit.table): commit for commit in commits}
    planned_by_table: dict[TableId, list[PlannedBatch]] = defaultdict(list)
    for planned in sorted(batches, key=lambda planned: planned.batch):
        planned_by_table[planned.table].append(planned)
    applied = {
        table: [(planned, marks[part]) for planned in parts if (part := (planned.batch, table)) in marks]
        for table, parts in planned_by_table.items()
    }
    last = {table: parts[-1][1] for table, parts in applied.items() if parts}
    behind = {table: commit.batch for table, commit in last.items()}
    pending = [
        planned
        for parts in planned_by_table.values()
        for planned in parts
        if planned.batch > behind.get(planned.table, 0)
    ]
    slices = {
        table: (planned.chunk_range, commit)
        for table, parts in applied.items()
        for planned, commit in parts
        if planned.chunk_range is not None and commit.snapshot == planned.chunk_range.snapshot
    }
    return BatchHistory(
        last=last,
        tables_with_offset=frozenset(
            table for table, parts in planned_by_table.items() if any(planned.has_offset for planned in parts)
        ),
        pending=tuple(sorted(pending, key=lambda planned: planned.batch)),
        newest_batch=max((parts[-1].batch for parts in planned_by_table.values()), default=0),
        chunk_ranges=slices,
        applied={table: parts for table, parts in applied.items() if parts},
    )
