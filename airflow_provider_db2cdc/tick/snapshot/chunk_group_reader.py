"""The reading half of a snapshot in a tick: it chooses the next chunks and stages their rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.snapshot.chunk_sizing import (
    ReadPace,
    first_chunks,
    free_slots,
    more_chunks,
    next_group_chunks,
    readers,
    sub_group_size,
)
from airflow_provider_db2cdc.cdc.snapshot.heal import needs_one_group
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, next_group, next_table_to_chunk
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkRange,
    ChunkSpan,
    KeyedChunks,
    KeylessRead,
    TableSnapshot,
    with_chunks,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import describe, log_progress
from airflow_provider_db2cdc.tick.ports import SourceReader
from airflow_provider_db2cdc.tick.snapshot.run import SnapshotRun

CUT_AHEAD = 16
"""The chunks whose bounds are found before a group begins, so that a group can have several small tables."""


@dataclass(frozen=True)
class StagedGroup:
    """The chunk ranges that were read together, by table, and the mark that capture has to pass."""

    chunk_ranges: Mapping[TableId, ChunkRange]
    high_mark: str


@dataclass
class ChunkGroupReader:
    """Read the groups of a snapshot one after the other, in a thread that owns the `connection`.

    After the `deadline`, a value of the monotonic clock, the reader begins no group except the first one. If nothing of
    that could be published, the publisher resets `has_read`. Then the next group counts as the first.
    """

    run: SnapshotRun
    connection: SourceReader
    deadline: float

    def __post_init__(self) -> None:
        self.tick = self.run.tick
        self.watermark = self.connection.watermark
        self.target = self.tick.context.target.for_reader()
        self._begun: dict[TableId, int] = {}
        self._chunks = first_chunks(self.tick.spec.settings)
        self._pace: ReadPace | None = None
        self.has_read = False

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline

    @failpoint("read_group")
    def next(self) -> StagedGroup | None:
        """Read the snapshot's next group. Return None if there is none, if the snapshot stopped, or after the deadline.

        A group is read in sub-groups. The time of each shows how many more chunks fit into the group's time.
        """
        if self.has_read and self.is_late:
            return None
        settings, chunks, done, spent_s = self.tick.spec.settings, self._chunks, 0, 0.0
        snapshot, sub_group = self.find_chunk_bounds(), self._sub_group(chunks)
        spans = self._next_spans(snapshot, sub_group)
        if not spans:
            return None
        opened, chunk_ranges = self.watermark.open(), dict[TableId, ChunkRange]()
        while spans:
            started = time.monotonic()
            chunk_ranges = self._read(spans, chunk_ranges)
            read_s = time.monotonic() - started
            spent_s += read_s
            read = sum(_size(span) for span in spans if span.table in chunk_ranges)
            self._pace = ReadPace(read, read_s)
            self._chunks = next_group_chunks(settings, self._pace)
            done += sub_group
            chunks = 0 if self.is_late else more_chunks(settings, self._pace, spent_s, done, chunks - sub_group)
            # Within a group no further chunk bounds are found. That may take long, and the rows read so far would
            # wait for it.
            sub_group = self._sub_group(chunks)
            spans = self._next_spans(self.run.running(), sub_group)
        closed = self.watermark.close(opened)
        # A group whose reads all failed does not count as the first. However long they took, the other tables still
        # get their read.
        self.has_read = self.has_read or bool(chunk_ranges)
        return StagedGroup(chunk_ranges, closed)

    def find_chunk_bounds(self) -> Snapshot | None:
        """Find the chunk bounds of the tables that come next. Return the snapshot, or None if it stopped."""
        ahead = self.tick.spec.settings.snapshot_group_chunks or max(self._chunks, CUT_AHEAD)
        while (snapshot := self.run.running()) is not None:
            table = next_table_to_chunk(snapshot, self._begun, ahead)
            if table is None:
                break
            self._find_table_bounds(table)
        return snapshot

    def drop_stale(self, group: StagedGroup) -> StagedGroup:
        """Return the group with only the chunk ranges that continue where their table's published chunks end.

        The snapshot may have been paused during the read. Then the chunks are read again once the snapshot continues.
        """
        chunk_ranges = {}
        for table, chunk_range in group.chunk_ranges.items():
            table_snapshot = self.run.table_snapshot(table)
            if self.run.is_open(table) and chunk_range.first == table_snapshot.published_chunks:
                chunk_ranges[table] = chunk_range
            else:
                self.target.drop_staged(chunk_range)
                self._begun[table] = table_snapshot.published_chunks
        return replace(group, chunk_ranges=chunk_ranges)

    def _next_spans(self, snapshot: Snapshot | None, chunks: int) -> list[ChunkSpan]:
        """Return the next chunks to read, up to `chunks`. There are none if the snapshot stopped or has to wait.

        The first span of a table is not longer than a first group. Its rows may take longer than those of other tables.
        """
        if snapshot is None or not chunks:
            return []
        spans = next_group(snapshot, self._begun, chunks)
        if not spans or not self.run.may_publish([span.table for span in spans]):
            return []
        if snapshot.kind == "blocking":
            return spans
        most = first_chunks(self.tick.spec.settings)
        return [
            span if self._may_be_long(span) else replace(span, last=min(span.last, span.first + most - 1))
            for span in spans
        ]

    def _may_be_long(self, span: ChunkSpan) -> bool:
        return span.table in self._begun or self.run.table_snapshot(span.table).in_one_group

    def _read(self, spans: Sequence[ChunkSpan], staged: Mapping[TableId, ChunkRange]) -> dict[TableId, ChunkRange]:
        """Stage more chunks of a group, and return all its chunk ranges, without tables whose read fails."""
        by_table = {span.table: span for span in spans}
        tasks = [self.tick.tasks[table] for table in by_table]
        at_once, readers_by_table = self._readers(spans)
        chunk_ranges = self.run.each(
            tasks,
            lambda task: self._stage(task, by_table[task.table], staged.get(task.table), readers_by_table[task.table]),
            at_once,
        )
        self._begun |= {table: span.last + 1 for table, span in by_table.items()}
        return {
            **{table: chunk_range for table, chunk_range in staged.items() if table not in by_table},
            **chunk_ranges,
        }

    def _find_table_bounds(self, table: TableId) -> None:
        task, table_snapshot = self.tick.tasks[table], self.run.table_snapshot(table)

        def find_bounds(task: TableTask) -> Sequence[Sequence[str]]:
            with _naming_the_request(table_snapshot, self.run.id):
                return self.connection.find_bounds(task, table_snapshot)

        bounds = self.tick.each([task], find_bounds)
        if table not in bounds:
            self.run.fail(table)
            return
        log_progress(f"table={table} snapshot={self.run.id}: {len(bounds[table]) + 1} chunks")
        columns, in_one_group = task.schema.fingerprint, needs_one_group(table_snapshot, task.schema)
        self.run.update_table(table, lambda found: with_chunks(found, bounds[table], columns, in_one_group))

    @property
    def _free_slots(self) -> int | None:
        """The number of Spark's slots for reads while a group is published.

        It is None if no group is being published, or if the number of slots is unknown.
        """
        slots = self.target.slots() if self.run.publishing.is_set() else None
        return None if slots is None else free_slots(slots)

    def _sub_group(self, chunks: int) -> int:
        """Return how many of a group's next chunks are read in one sub-group."""
        free = self._free_slots
        return chunks if free is None or self._pace is None else sub_group_size(chunks, self._pace, free)

    def _readers(self, spans: Sequence[ChunkSpan]) -> tuple[int | None, Mapping[TableId, int]]:
        """Return how many tables are read in parallel (None: as configured), and the number of readers for each."""
        settings, free = self.tick.spec.settings, self._free_slots
        if free is None:
            return None, {span.table: settings.parallel_reads for span in spans}
        return readers(settings, {span.table: _size(span) for span in spans}, free)

    def _stage(self, task: TableTask, span: ChunkSpan, staged: ChunkRange | None, readers: int) -> ChunkRange:
        """Stage chunks of a table after those that the group has `staged`, if any, and return the range of both."""
        chunk_range = staged or self._begin_chunk_range(task, span)
        table_snapshot = self.run.table_snapshot(task.table)
        with _naming_the_request(table_snapshot, self.run.id):
            chunk_range = self.target.stage(task, table_snapshot, chunk_range, span, readers)
        # After the read, so that a change of the columns during the read is noticed.
        if (error := self.connection.column_errors([task]).get(task.table)) is not None:
            raise error
        return chunk_range

    def _begin_chunk_range(self, task: TableTask, span: ChunkSpan) -> ChunkRange:
        """Return a chunk range with no chunk read yet. Its low watermark is the table's current position."""
        self.tick.positions.check_window(task)
        table_snapshot, position = self.run.table_snapshot(task.table), self.tick.positions.position(task)
        kind = KeyedChunks if task.schema.key else KeylessRead
        return kind(
            self.run.id, self.run.kind, span.first, span.first - 1, position.upto, position.batch, position.batch,
            table_snapshot.fingerprint, condition=table_snapshot.condition or table_snapshot.select,
            differences_only=table_snapshot.differences_only,
        )  # fmt: skip


def _size(span: ChunkSpan) -> int:
    return span.last - span.first + 1


@contextmanager
def _naming_the_request(table_snapshot: TableSnapshot, snapshot: str) -> Iterator[None]:
    """Name the requested select or condition in the error of a failed read, because it may be the cause.

    :raises SourceError: a read with a select or a condition failed.
    """
    try:
        yield
    except Db2CdcError:
        raise
    except Exception as error:
        if table_snapshot.select:
            raise SourceError(
                f"{table_snapshot.table}: what is selected in its place cannot be read: {describe(error)}",
                f"Correct snapshot.select.statement.overrides.{table_snapshot.table}. If a signal gave the select, "
                f"stop snapshot {snapshot} and ask again with another one.",
            ) from error
        if table_snapshot.condition:
            raise SourceError(
                f"{table_snapshot.table}: the rows that snapshot {snapshot} asks for by its condition cannot be read: "
                f"{describe(error)}",
                "If the condition is why (a division, a cast), stop the snapshot and ask again with another one.",
            ) from error
        raise
