"""The ports of a verification in memory. Whatever is to happen meanwhile happens between any two of their steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error
from airflow_provider_db2cdc.cdc.capture.registration import check_state
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan, TableSnapshot, chunk_bounds
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, Comparison, unexplained
from airflow_provider_db2cdc.cdc.verify.gap import unverifiable
from airflow_provider_db2cdc.cdc.verify.report import TableReport, VerifiedChunks
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.ports import Watermark
from airflow_provider_db2cdc.verify.ports import StatePosition, Totals
from support.memory_journal import JournalRows, MemoryJournal
from support.memory_reader import MemoryReader
from support.memory_source import MemorySource, Row, in_columns, lsn
from support.memory_target import MemoryTarget

Rows = Mapping[Hashable, Row]


def nothing() -> None:
    """Let nothing happen."""


@dataclass
class MemoryRows:
    """Rows of a source by key, with the chunks of the keys, as they were read. `size` counts the rows."""

    rows: Rows
    chunk_of: Callable[[Hashable], int]
    table_snapshot: TableSnapshot
    span: ChunkSpan

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows)


@dataclass
class MemoryComparer:
    """A comparer of a source and a target in memory. With `quick` it compares counts."""

    source: MemorySource
    target: MemoryTarget
    journal: JournalRows = field(default_factory=JournalRows)
    quick: bool = False
    meanwhile: Callable[[], None] = nothing
    versions: dict[tuple[TableId, int], Rows] = field(default_factory=dict)
    reads: list[ChunkSpan] = field(default_factory=list)

    def check_filled(self, task: TableTask) -> None:
        """Look for the table in the target and in the journal."""
        table = task.table
        if self._last(table) is None or table not in self.target.state:
            raise TargetError(f"{table} is not in the target yet", "Run a tick of the pipeline first.")
        if table in MemoryJournal(self.journal).read(sys.maxsize, sys.maxsize).initially_loading:
            raise TargetError(f"{table} is still being filled by its first snapshot")
        lacking = [name for name in task.schema.names if name not in self.target.schemas[table].names]
        if lacking:
            raise TargetError(f"{table}: its current state has no column {', '.join(lacking)} yet")

    def position(self, task: TableTask) -> StatePosition:
        """Return the last applied batch, and after that copy the state."""
        last = self._last(task.table)
        if last is None:
            raise TargetError(f"{task.table} is not in the target any more")
        self.meanwhile()
        version = len(self.target.commits[task.table])
        rows = {key: row for key, (row, _) in self.target.state[task.table].items()}
        self.versions[task.table, version] = rows
        self.meanwhile()
        return StatePosition(last.upto, last.capture, version)

    @contextmanager
    def read(self, task: TableTask, table_snapshot: TableSnapshot, span: ChunkSpan) -> Iterator[MemoryRows]:
        """Read key after key, as a scan does that commits overtake."""
        self.meanwhile()
        self.reads.append(span)
        low, high = chunk_bounds(table_snapshot, span.first)[0], chunk_bounds(table_snapshot, span.last)[1]
        read: dict[Hashable, Row] = {}
        keys = [int(row[0] or 0) for row in self.source.read(task.table, low, high)]
        for key in keys:
            for row in in_columns(task.schema, self.source.read(task.table, (str(key - 1),), (str(key),))):
                read[row[:1]] = row
            self.meanwhile()
        yield MemoryRows(read, lambda key: chunk_of(table_snapshot, key), table_snapshot, span)
        self.meanwhile()

    def totals(self, task: TableTask, rows: MemoryRows, position: StatePosition) -> Totals:
        """Compare all rows."""
        state = self._state(task, rows, position)
        is_equal = len(state) == rows.size if self.quick else state == rows.rows
        self.meanwhile()
        return Totals(position, rows.size, len(state), is_equal)

    def compare(
        self, task: TableTask, rows: MemoryRows, totals: Totals, window: LsnRange, suspects: Any
    ) -> tuple[Comparison, Any]:
        """Compare by key."""
        self.meanwhile()
        state, changes = self._state(task, rows, totals.position), self.source.captured_changes(task.table, window)
        self.meanwhile()
        if self.quick:
            return self._compare_counts(rows, totals, [change.key for change in changes])
        changed = {change.key for change in changes}
        differing = {
            key: kind_of(rows.rows.get(key), state.get(key))
            for key in {*rows.rows, *state} - changed
            if rows.rows.get(key) != state.get(key) and (suspects is None or key in suspects)
        }
        in_range = [key for key in changed if rows.span.first <= rows.chunk_of(key) <= rows.span.last]
        differences = []
        for chunk in sorted({rows.chunk_of(key) for key in differing}):
            kinds = [kind for key, kind in differing.items() if rows.chunk_of(key) == chunk]
            counts = [kinds.count(kind) for kind in ("missing", "surplus", "different")]
            differences.append(ChunkDifference(chunk, chunk, *chunk_bounds(rows.table_snapshot, chunk), *counts))
        found = tuple(differences)
        return Comparison(totals.source_rows, totals.state_rows, len(in_range), found), {*differing}

    def _compare_counts(self, rows: MemoryRows, totals: Totals, changed: Sequence[Hashable]) -> tuple[Comparison, Any]:
        span = rows.span
        changes = sum(span.first <= rows.chunk_of(key) <= span.last for key in changed)
        missing, surplus = unexplained(totals.source_rows, totals.state_rows, changes)
        low, high = chunk_bounds(rows.table_snapshot, span.first)[0], chunk_bounds(rows.table_snapshot, span.last)[1]
        found = ChunkDifference(span.first, span.last, low, high, missing, surplus)
        differences = (found,) if found.rows else ()
        return Comparison(totals.source_rows, totals.state_rows, changes, differences), None

    def _state(self, task: TableTask, rows: MemoryRows, position: StatePosition) -> Rows:
        first, last = rows.span.first, rows.span.last
        version = self.versions[task.table, position.version]
        return {key: row for key, row in version.items() if first <= rows.chunk_of(key) <= last}

    def _last(self, table: TableId) -> AppliedBatch | None:
        applied = [batch for batch in self.target.applied if batch.table == table]
        return max(applied, key=lambda batch: batch.batch, default=None)


def chunk_of(table_snapshot: TableSnapshot, key: Hashable) -> int:
    """Return the number of the chunk that a key lies in."""
    assert isinstance(key, tuple)
    return sum(key[0] > int(bound[0]) for bound in table_snapshot.bounds)


def kind_of(source: Row | None, state: Row | None) -> str:
    """Return how a row of the state differs from the source's."""
    return "missing" if state is None else "surplus" if source is None else "different"


@dataclass(frozen=True)
class VerifySource:
    """The source of a verification in memory."""

    source: MemorySource
    meanwhile: Callable[[], None] = nothing

    @contextmanager
    def connect(self) -> Iterator[VerifyConnection]:
        """Open a connection."""
        yield VerifyConnection(self.source, self.meanwhile)


@dataclass(frozen=True)
class VerifyConnection:
    """A connection to a source in memory."""

    source: MemorySource
    meanwhile: Callable[[], None] = nothing

    @property
    def watermark(self) -> Watermark:
        """The commits that are done."""
        self.meanwhile()
        return MemoryReader(self.source).watermark

    def capture_lsn(self) -> Lsn | None:
        """Return the newest captured commit."""
        position = lsn(self.source.captured)
        self.meanwhile()
        return position

    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Return the last key of each chunk, except the last one."""
        return MemoryReader(self.source).find_bounds(task, table_snapshot)

    def check_window(self, task: TableTask, position: StatePosition, window: LsnRange) -> None:
        """Compare the registration with the one at the state's position."""
        self.meanwhile()
        now = self.source.registration(task.table)
        read = CapturePoint(window.after, position.capture)
        if gap := find_gap(read, CapturePoint(window.upto, now.identity, now.pruned_upto)):
            raise unverifiable(task.table, gap_error(task.table, gap))
        check_state(now, "ASN")

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Return nothing, because columns never change."""
        return {}


@dataclass
class MemoryReport:
    """Reports in memory."""

    reports: dict[tuple[str, TableId], TableReport] = field(default_factory=dict)

    def read(self, verification: str) -> Mapping[TableId, TableReport]:
        """Return the reports of a verification."""
        return {table: report for (id_, table), report in self.reports.items() if id_ == verification}

    def begin(self, verification: str, report: TableReport, at_ms: int) -> None:
        """Replace a table's report."""
        self.reports[verification, report.table] = replace(report, chunks=())

    @failpoint("append_verified")
    def append(self, verification: str, report: TableReport, chunks: VerifiedChunks) -> None:
        """Add chunks to a table's report, unless it was begun again under other columns."""
        key = (verification, report.table)
        if self.reports[key].fingerprint == report.fingerprint:
            self.reports[key] = self.reports[key].with_chunks([*self.reports[key].chunks, chunks])
