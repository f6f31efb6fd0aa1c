"""The ports of a verification: what it asks of the source, of the target and of its report.

`spark` implements them on JDBC and Delta. Tests implement them in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.comparison import Comparison
from airflow_provider_db2cdc.cdc.verify.report import TableReport, VerifiedChunks
from airflow_provider_db2cdc.tick.ports import Watermark

SourceRows: TypeAlias = Any
"""Rows of chunks as they were read. Only the implementation that read them can look into them."""

Suspects: TypeAlias = Any
"""Keys that differed in a comparison. Only the implementation that made it can read them."""


@dataclass(frozen=True)
class StatePosition:
    """A version of the current state of a table. It shows each key as of a commit at or after `upto`.

    `capture` is the identity of the capture at `upto`.
    """

    upto: Lsn
    capture: CaptureIdentity
    version: int


@dataclass(frozen=True)
class Totals:
    """The rows of chunks at the source and at a position of the state, and whether both certainly hold the same."""

    position: StatePosition
    source_rows: int
    state_rows: int
    is_equal: bool


class SourceReader(Protocol):
    """A connection to the source for small statements. It belongs to one thread."""

    @property
    def watermark(self) -> Watermark:
        """The watermark that the configuration names."""

    def capture_lsn(self) -> Lsn | None:
        """Return the current capture position, None before capture has begun."""

    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Return the keys that end the chunks of a table, except the last chunk."""

    def check_window(self, task: TableTask, position: StatePosition, window: LsnRange) -> None:
        """Check that the change table had all changes of a window, and still has. Call it after they were read.

        :raises GapError: changes of the window are pruned, or were not captured.
        :raises RegistrationError: the table is not captured any more.
        """

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Return the error of each table whose columns are no longer those of the plan."""


class Source(Protocol):
    """The source of changes."""

    def connect(self) -> AbstractContextManager[SourceReader]:
        """Open a connection."""


class Comparer(Protocol):
    """Rows of the source, and the current states that they are compared with. It writes nothing.

    It belongs to one thread per table.
    """

    def check_filled(self, task: TableTask) -> None:
        """Check that the state of a table can be compared.

        :raises TargetError: the table is not in the target, its first snapshot is not complete, or it lacks columns.
        """

    def position(self, task: TableTask) -> StatePosition:
        """Return the position of the last applied batch, and the newest version of the state after that batch.

        :raises TargetError: the table is not in the target.
        """

    def read(
        self, task: TableTask, table_snapshot: TableSnapshot, span: ChunkSpan
    ) -> AbstractContextManager[SourceRows]:
        """Read chunks of a table at the source. All rows are read when the block begins."""

    def totals(self, task: TableTask, rows: SourceRows, position: StatePosition) -> Totals:
        """Compare rows with a version of the state as a whole."""

    def compare(
        self,
        task: TableTask,
        rows: SourceRows,
        totals: Totals,
        window: LsnRange,
        suspects: Suspects | None,
    ) -> tuple[Comparison, Suspects]:
        """Compare rows by key with the state of their totals, without the keys that have a change row in the window.

        With `suspects` it only reports keys that are among them. It returns the keys that differ, too.
        """


class Report(Protocol):
    """The report of verifications, the only thing that they write."""

    def read(self, verification: str) -> Mapping[TableId, TableReport]:
        """Return what a verification has recorded of each table. Chunks under other columns do not count."""

    def begin(self, verification: str, report: TableReport, at_ms: int) -> None:
        """Record where the chunks of a table end. Earlier chunks of the table do not count any more."""

    def append(self, verification: str, report: TableReport, chunks: VerifiedChunks) -> None:
        """Record chunks that are compared."""


@dataclass(frozen=True)
class Ports:
    """The ports that a verification works with."""

    source: Source
    comparer: Comparer
    report: Report
