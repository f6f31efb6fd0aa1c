"""The ports of a tick: what it asks of the source and of the target. Their docstrings are the contract.

`spark` implements them on JDBC and Delta. Tests implement them in memory, and hold both to one contract suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, ChunkSpan, KeyedChunks, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId

StateDiff: TypeAlias = object
"""The difference between a chunk range and the state. Only the implementation that made it can read it."""

Fail: TypeAlias = Callable[[TableId, Exception], None]


@dataclass(frozen=True)
class TableBatch:
    """One table's part of a batch, with what the tick knows of the table.

    `last` is the last applied batch, None before the first. `is_begun` says that the table begins with this batch, so
    `last` does not say what the state holds. `is_redone` says that an earlier try may have written some of it. `diff`
    is the comparison of its chunk range with the state, if one was made. `is_healed`: a heal of the whole table is open
    or requested. So changes that another writer has made to the state are accepted.
    """

    task: TableTask
    planned: PlannedBatch
    last: AppliedBatch | None
    is_begun: bool = False
    is_redone: bool = False
    diff: StateDiff | None = None
    is_healed: bool = False

    @property
    def accepted_since(self) -> int | None:
        """The batch after which a change counts as made that is found before this batch. None if none is accepted.

        The first try of a redone batch may have compared rows before the change.
        """
        if not self.is_healed or self.last is None or self.is_begun:
            return None
        return self.planned.batch if self.is_redone else self.last.batch


class Watermark(Protocol):
    """Mark moments of the source. A mark is a text. It becomes a watermark, an LSN, once capture has passed it.

    For the high watermark call `open` before a read and `close` after it. Then call `reached` until it returns an LSN.
    Every commit that the read can have seen is at or before that LSN, and is captured. For the low watermark call
    `low_mark`, then `reached` likewise.
    """

    def low_mark(self, planned: str) -> str:
        """Return the mark of a snapshot's beginning.

        It is the source's clock as the plan has it (`planned`). It is now if that is empty, or for a watermark that
        does not go by clocks.
        """

    def open(self) -> str:
        """Mark the beginning of a read."""

    def close(self, opened: str) -> str:
        """Mark the end of a read, and return the mark to wait for."""

    def reached(self, mark: str) -> Lsn | None:
        """Return the watermark, None while capture has not passed the mark."""


class SourceReader(Protocol):
    """A connection to the source for small statements. It belongs to one thread."""

    @property
    def watermark(self) -> Watermark:
        """The watermark that the configuration names."""

    def capture_lsn(self) -> Lsn | None:
        """Return the current capture position, None before capture has begun."""

    def with_row_counts(self, batches: Sequence[PlannedBatch], fail: Fail) -> list[PlannedBatch]:
        """Return planned batches with the number of change rows in their ranges.

        A batch whose range is the plan's keeps the plan's count. A table that cannot be counted is given to `fail` and
        excluded. Otherwise changes that are pruned before they are read would go unnoticed. The same holds for a table
        whose registration or columns have changed.
        """

    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Return the keys that end the chunks of a table, except the last chunk."""

    def check_counts(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, window: LsnRange
    ) -> None:
        """Compare the rows that were read of each chunk with the source's count.

        :raises SourceError: they differ by more than the changes in the window explain.
        """

    def check_request(self, task: TableTask, table_snapshot: TableSnapshot) -> None:
        """Check the condition, the select and the surrogate key of a requested table.

        :raises SignalError: the source refuses one of them.
        """

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Return the error of each table whose columns are no longer those of the plan."""

    def signals(self) -> list[Signal]:
        """Return the rows of the signal table, none if that channel is disabled or the table cannot be read."""


class Source(Protocol):
    """The source of changes."""

    def connect(self) -> AbstractContextManager[SourceReader]:
        """Open a connection."""


class Tables(Protocol):
    """The change log and the current state of every table. An object belongs to one thread per table.

    Each write carries a transaction id of the table, the step and the batch. It is skipped if that id is there. A run
    that another run has overtaken gets an error, and its write has no effect.
    """

    def for_reader(self) -> Tables:
        """Return the same tables for the thread that reads snapshots."""

    def slots(self) -> int | None:
        """Return how many tasks run in parallel, None if that is not known."""

    def prepare(
        self, task: TableTask, last: AppliedBatch | None, is_begun: bool, abandoned: Sequence[PlannedBatch], batch: int
    ) -> None:
        """Create the tables, or add columns that the source gained. Close `abandoned` batches to their writers.

        The state gets what the change log has of these batches, in their order.

        If a table begins again (`is_begun`) with `batch`, rows that its state has lost to other writers are restored
        first.

        :raises TargetError: the table belongs to another pipeline, is gone, or has a column of another type.
        """

    def check_readable(self, task: TableTask, planned: PlannedBatch, capture_lsn: Lsn) -> None:
        """Check that a pending batch can be applied: its changes are at the source or in the change log.

        :raises GapError: its changes are in neither.
        """

    def check_idle(self, task: TableTask, last: AppliedBatch, batch: int) -> AppliedBatch:
        """Return the last applied batch of a table that `batch` brings no changes.

        Once in many batches the table is checked first.

        :raises TargetError: another writer has changed rows, or a table is gone.
        """

    def apply(self, batch: TableBatch) -> AppliedBatch:
        """Write one batch of a table: into the change log, then from the change log into the state.

        A repair compares again, appends the events that the log lacks, and corrects the rows that differ. Each event
        stands under the batch that pulled its commit. A corrected row has the batch and the commit of its event.

        A second call for the same batch changes nothing, and returns the same.

        A change of the state by another writer that is accepted is recorded (`foreign_since`), until a heal has ended
        that began after it.

        :raises GapError: changes were pruned before they were read.
        :raises TargetError: another writer has changed rows, or a later plan has abandoned the batch.
        :raises ConcurrentRunError: another run has applied more meanwhile.
        """

    def compare(self, batch: TableBatch) -> Findings:
        """Compare a table as the repair of a batch says. Write nothing. The batch need not be planned.

        :raises SourceError: change rows of the interval cannot be read as events.
        :raises TargetError: a table is gone, or the change log cannot be trusted.
        """

    def diff(self, task: TableTask, chunk_range: KeyedChunks, last: AppliedBatch | None) -> StateDiff:
        """Compare the staged rows of a chunk range that deletes by range with the state."""

    def stage(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, span: ChunkSpan, readers: int
    ) -> ChunkRange:
        """Read chunks of a table, keep them with those of the chunk range, and return the range with them.

        Only this run has the rows. If another run redoes their batch, it excludes them. Their chunks are then read
        again.
        """

    def drop_staged(self, chunk_range: ChunkRange) -> None:
        """Free the storage of what was read for a chunk range that is applied, or that is not to be published."""

    def free_memory(self) -> None:
        """Free what applied batches have left in memory. It is called after each group of a snapshot."""


class BatchLog(Protocol):
    """What the pipeline has planned and applied, batch by batch."""

    def history(self, since: Mapping[TableId, int]) -> BatchHistory:
        """Return the batches of each table from a batch on, or for batch 0 from its last applied batch on.

        The result also has the batches of tables that are not named, from the greatest of these batches on.
        """

    def optimize(self, before: int, batch: int) -> None:
        """Compact the log's small files, once in many batches. `before` is the last batch of the previous tick."""

    def plan(self, batches: Sequence[PlannedBatch]) -> None:
        """Write the planned batches of one new batch number. The first writer of a batch number wins.

        :raises ConcurrentRunError: another run has planned this batch number.
        """

    def commit(self, applied: Sequence[AppliedBatch], at_ms: int) -> None:
        """Record applied batches. A repeated commit of the same batches has no effect on what is read."""

    def write_manifest(self, batch: int, frontier: Lsn, applied: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write the table versions that show the source as of one commit."""

    def first_planned_at_ms(self) -> int:
        """Return when the first of all batches was planned, in epoch milliseconds, or 0 before there is one."""


class UnreportedEvents(Protocol):
    """The outcomes and notifications in the journal that no tick has reported."""

    @property
    def outcomes(self) -> tuple[SignalOutcome, ...]:
        """Outcomes of signals."""

    @property
    def notifications(self) -> tuple[Notification, ...]:
        """Notifications."""


class Journal(Protocol):
    """The snapshots, outcomes of signals and notifications of a pipeline, kept between ticks."""

    @property
    def seq(self) -> int:
        """The number of the newest row, 0 before the first."""

    @property
    def unreported(self) -> UnreportedEvents:
        """What no tick has reported, as of the last `read`."""

    @property
    def skipped(self) -> set[TableId]:
        """The tables for which it is recorded that they began without a snapshot."""

    def read(self, reported_seq: int, notified_seq: int) -> SnapshotQueue:
        """Return the snapshot queue, and keep what is not reported yet as `unreported`.

        That is the outcomes after row `reported_seq` and the notifications after row `notified_seq`.
        """

    def write(
        self,
        snapshots: Sequence[Snapshot],
        outcomes: Sequence[SignalOutcome],
        notifications: Sequence[Notification],
        skipped: Sequence[TableId],
        at_ms: int,
    ) -> None:
        """Append the given rows.

        :raises ConcurrentRunError: another run wrote these rows first.
        """
