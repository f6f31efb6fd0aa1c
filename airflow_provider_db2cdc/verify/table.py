"""The verification of one table: its chunks, group by group."""

from __future__ import annotations

import time
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot.chunk_sizing import ReadPace, first_chunks, next_group_chunks
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.types import sorts_alike
from airflow_provider_db2cdc.cdc.verify.comparison import Comparison, next_step
from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.cdc.verify.report import TableReport, VerifiedChunks
from airflow_provider_db2cdc.errors import CaptureStoppedError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import log_progress, now_ms
from airflow_provider_db2cdc.verify.ports import Ports, SourceReader, StatePosition, Suspects

POLL_S = 0.5


@dataclass(frozen=True)
class ChunkRead:
    """One read of chunks, and its comparison. Without a window all rows were equal at once."""

    comparison: Comparison
    position: StatePosition
    window: LsnRange | None = None
    suspects: Suspects | None = None


@dataclass
class TableVerification:
    """Verify one table in the thread that owns the connection `reader`.

    After the `deadline`, a value of the monotonic clock, it begins no group of chunks. Without one it ends when all
    chunks are compared. `report` is how far it is.
    """

    spec: VerifySpec
    ports: Ports
    reader: SourceReader
    task: TableTask
    deadline: float | None
    report: TableReport | None = None

    def run(self) -> TableReport:
        """Compare the chunks that are not compared yet, and return the report."""
        # Before the bounds are found, which takes long.
        self.ports.comparer.check_filled(self.task)
        report = self.report = self.report or self._begin()
        chunks, settings = first_chunks(self.spec.settings), self.spec.settings
        while not report.is_complete and not self._is_late:
            started = time.monotonic()
            span = self._next_span(report, chunks)
            found = self._verify(span)
            self.ports.report.append(self.spec.verification, report, found)
            report = self.report = report.with_chunks([found])
            self._log(report, found)
            pace = ReadPace(span.last - span.first + 1, (time.monotonic() - started) / found.reads)
            chunks = next_group_chunks(settings, pace)
        return report

    @property
    def _is_late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _begin(self) -> TableReport:
        bounds = self.reader.find_bounds(self.task, TableSnapshot(self.task.table))
        named = tuple(tuple(bound) for bound in bounds)
        report = TableReport(self.task.table, self.task.schema.fingerprint, named)
        log_progress(f"verify table={self.task.table}: {report.chunk_count} chunks")
        self.ports.report.begin(self.spec.verification, report, now_ms())
        return report

    def _next_span(self, report: TableReport, chunks: int) -> ChunkSpan:
        """Return the next chunks to compare.

        Where Spark sorts keys differently from the source, it cannot find a chunk's rows in the state. Then the table
        is compared as a whole. A comparison of counts needs no more of such a table either.
        """
        schema, last = self.task.schema, report.chunk_count - 1
        if schema.key and sorts_alike(map(schema.column, schema.key)):
            last = min(last, report.next_chunk + chunks - 1)
        return ChunkSpan(self.task.table, report.next_chunk, last)

    def _verify(self, span: ChunkSpan) -> VerifiedChunks:
        """Read chunks and compare them, until there is nothing to confirm and not too much has changed meanwhile."""
        started_at_ms, reads = now_ms(), list[ChunkRead]()
        while not reads or (step := next_step([read.comparison for read in reads])) != "done":
            is_confirming = bool(reads) and step == "confirm"
            reads.append(self._read(span, reads[-1].suspects if is_confirming else None))
        last = reads[-1]
        return VerifiedChunks(
            span.table,
            span.first,
            span.last,
            last.comparison,
            len(reads),
            last.position.version,
            last.window.after if last.window else None,
            last.window.upto if last.window else None,
            started_at_ms,
            now_ms(),
        )

    @failpoint("verify_chunks")
    def _read(self, span: ChunkSpan, suspects: Suspects | None) -> ChunkRead:
        """Read chunks and compare them with the state.

        What the read shows is a commit's state at or after `low`, and what the state shows is one at or after its
        position. The mark is taken after both. So keys without a change between them hold the same at all these
        commits. The changes are read before the check that none of them is lost.
        """
        comparer, task = self.ports.comparer, self.task
        assert self.report is not None
        low = self._capture_lsn()
        with comparer.read(task, TableSnapshot(task.table, bounds=self.report.bounds), span) as rows:
            position = comparer.position(task)
            totals = comparer.totals(task, rows, position)
            if totals.is_equal:
                self._check_columns()
                return ChunkRead(Comparison(totals.source_rows, totals.state_rows), position)
            # It may have begun again. Its state lacks changes from before its new position until its snapshot ends.
            comparer.check_filled(task)
            high = self._passed(self.reader.watermark.low_mark(""))
            after = min(position.upto, low)
            window = LsnRange(after, max(after, high))
            comparison, found = comparer.compare(task, rows, totals, window, suspects)
        self.reader.check_window(task, position, window)
        self._check_columns()
        return ChunkRead(comparison, position, window, found)

    def _check_columns(self) -> None:
        if (error := self.reader.column_errors([self.task]).get(self.task.table)) is not None:
            raise error

    def _capture_lsn(self) -> Lsn:
        position = self.reader.capture_lsn()
        if position is None:
            raise CaptureStoppedError("the capture agent never ran", "Start it, and verify again.")
        return position

    @failpoint("await_verified_mark")
    def _passed(self, mark: str) -> Lsn:
        timeout_s = self.spec.settings.high_mark_timeout_s
        deadline = time.monotonic() + timeout_s
        while (lsn := self.reader.watermark.reached(mark)) is None:
            if time.monotonic() > deadline:
                raise CaptureStoppedError(
                    f"capture did not pass the end of the read within {timeout_s:.0f} s",
                    "Is the capture agent running? A longer wait is high.mark.timeout.s.",
                )
            time.sleep(POLL_S)
        return lsn

    def _log(self, report: TableReport, found: VerifiedChunks) -> None:
        rows = sum(difference.rows for difference in found.comparison.differences)
        outcome = f"{rows} rows differ" if rows else "equal"
        changed = f", {found.comparison.keys_changed} keys changed" if found.comparison.keys_changed else ""
        log_progress(
            f"verify table={self.task.table}: {report.next_chunk} of {report.chunk_count} chunks compared, the last "
            f"{found.last - found.first + 1} with {found.comparison.source_rows} rows: {outcome}{changed}"
        )
