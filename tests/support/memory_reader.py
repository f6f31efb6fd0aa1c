"""The readers of a source in memory: its change rows, keys and watermarks, as a job reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error
from airflow_provider_db2cdc.cdc.capture.registration import check_state
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch, is_uncounted
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.ports import Fail, Watermark
from support.memory_source import MemorySource, lsn

UNDER_WAY = "while this tick was under way"


@dataclass(frozen=True)
class PlannedSource:
    """A source, and the tasks of the plan that reads it."""

    source: MemorySource
    tasks: Sequence[TableTask]

    @contextmanager
    def connect(self) -> Iterator[MemoryReader]:
        """Open a reader."""
        yield MemoryReader(self.source, self.tasks)


@dataclass(frozen=True)
class MemoryReader:
    """A reader of a source in memory."""

    source: MemorySource
    tasks: Sequence[TableTask] = ()

    @property
    def watermark(self) -> Watermark:
        """The commits that are done."""
        return MemoryWatermark(self.source)

    def capture_lsn(self) -> Lsn | None:
        """Return the newest captured commit."""
        return lsn(self.source.captured)

    def with_row_counts(self, batches: Sequence[PlannedBatch], fail: Fail) -> list[PlannedBatch]:
        """Count the change rows in the batches' ranges, then check that none can have been lost before the count."""
        counted = []
        for planned in batches:
            if not is_uncounted(planned, planned.upto):
                counted.append(planned)
                continue
            rows = len(self.source.captured_changes(planned.table, planned.span))
            if (error := self._count_error(planned, rows)) is None:
                counted.append(replace(planned, rows=rows))
            else:
                fail(planned.table, error)
        return counted

    def _count_error(self, planned: PlannedBatch, rows: int) -> Exception | None:
        table, now = planned.table, self.source.registration(planned.table)
        if table in self.source.locked:
            return OSError("deadlock or timeout")
        end = CapturePoint(planned.upto, now.identity, now.pruned_upto)
        if gap := find_gap(CapturePoint(planned.after, planned.capture), end):
            return gap_error(table, gap)
        try:
            check_state(now, "ASN")
        except RegistrationError as error:
            return error
        return self.column_errors([task for task in self.tasks if rows and task.table == table]).get(table)

    @failpoint("find_chunk_bounds")
    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Return the last key of each chunk, except the last one."""
        keys = [] if task.table in self.source.keyless else sorted(self.source.rows[task.table])
        rows = self.source.chunk_rows
        return [(str(key),) for key in keys[rows - 1 : -1 : rows]]

    @failpoint("check_counts")
    def check_counts(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, window: LsnRange
    ) -> None:
        """Accept every count, because rows are read in one moment."""

    def check_request(self, task: TableTask, table_snapshot: TableSnapshot) -> None:
        """Accept every request."""

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Return an error for each table that has gained a column since the plan."""
        gained = [task.table for task in tasks if task.schema.names != self.source.schema(task.table).names]
        return {table: SourceError(f"{table}: a column came {UNDER_WAY}") for table in gained}

    def signals(self) -> list[Signal]:
        """Return the rows of the signal table."""
        return [*self.source.signals]


@dataclass(frozen=True)
class MemoryWatermark:
    """Marks are numbers of commits."""

    source: MemorySource

    def low_mark(self, planned: str) -> str:
        """Return the planned commit, or the newest one."""
        return planned or str(self.source.commits)

    def open(self) -> str:
        """Mark nothing."""
        return ""

    def close(self, opened: str) -> str:
        """Return the newest commit."""
        return str(self.source.commits)

    def reached(self, mark: str) -> Lsn | None:
        """Return the capture position after the agent has had its turn, None if it has not passed the mark."""
        with self.source.lock:
            if not self.source.is_stalled:
                self.source.captured = max(self.source.captured, int(mark))
            return lsn(self.source.captured) if self.source.captured >= int(mark) else None
