"""The comparison of counts with the current state: no row leaves the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import Bound, ChunkSpan, TableSnapshot, chunk_bounds
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, Comparison, unexplained
from airflow_provider_db2cdc.spark.events.state_rows import key_range
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import ChunkReader, chunk_key
from airflow_provider_db2cdc.spark.jdbc.connection import driver_connection
from airflow_provider_db2cdc.spark.verify.state import States
from airflow_provider_db2cdc.sql.moves import chunk_moves, count_moves
from airflow_provider_db2cdc.verify.ports import StatePosition, Suspects, Totals


@dataclass(frozen=True)
class CountedRows:
    """The number of rows that the source has between two keys."""

    rows: int
    low: Bound
    high: Bound
    span: ChunkSpan


@dataclass(frozen=True)
class CountComparer:
    """Compare numbers of rows. Each change row of the window may explain a difference of one."""

    states: States

    def check_filled(self, task: TableTask) -> None:
        """Check the target's tables."""
        self.states.check_filled(task)

    def position(self, task: TableTask) -> StatePosition:
        """Return the state's newest version."""
        return self.states.position(task)

    @contextmanager
    def read(self, task: TableTask, table_snapshot: TableSnapshot, span: ChunkSpan) -> Iterator[CountedRows]:
        """Let the source count the rows of each chunk."""
        reader = ChunkReader(self.states.session(task, 0), self.states.source, task.schema, table_snapshot)
        counted = reader.counts(span, self.states.settings.parallel_reads)
        low, high = chunk_bounds(table_snapshot, span.first)[0], chunk_bounds(table_snapshot, span.last)[1]
        yield CountedRows(sum(counted.values()), low, high, span)

    def totals(self, task: TableTask, rows: CountedRows, position: StatePosition) -> Totals:
        """Count the rows of the state."""
        within = key_range(task.schema, rows.low, rows.high) if rows.low or rows.high else ""
        session = self.states.session(task, rows.rows)
        state_rows = self.states.rows(session, task, position.version, within).count()
        return Totals(position, rows.rows, state_rows, rows.rows == state_rows)

    def compare(
        self, task: TableTask, rows: CountedRows, totals: Totals, window: LsnRange, suspects: Suspects | None
    ) -> tuple[Comparison, Suspects]:
        """Count the changes that may have brought a row into the chunks, or taken one out of them."""
        session = self.states.session(task, 0)
        cut = chunk_key(task.schema, TableSnapshot(task.table))
        moves = chunk_moves(task.schema, task.capture, cut, rows.low, rows.high)
        with driver_connection(session, self.states.source) as connection:
            [[counted]] = connection.text_rows(count_moves(task.capture, window, [moves]).text)
        changes = int(counted or 0)
        missing, surplus = unexplained(totals.source_rows, totals.state_rows, changes)
        found = ChunkDifference(rows.span.first, rows.span.last, rows.low, rows.high, missing, surplus)
        differences = (found,) if found.rows else ()
        return Comparison(totals.source_rows, totals.state_rows, changes, differences), None
