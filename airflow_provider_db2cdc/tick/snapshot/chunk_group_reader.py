"""The reading half of a snapshot's tick: which chunks come next, and their rows staged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.snapshot.chunk_sizing import (
    first_chunks,
    free_slots,
    more_chunks,
    next_group_chunks,
    readers,
    sub_group_size,
)
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, next_group, next_table_to_chunk
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, ChunkSpan, TableSnapshot, with_chunks
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import describe, log_progress
from airflow_provider_db2cdc.tick.ports import SourceReader
from airflow_provider_db2cdc.tick.snapshot.run import SnapshotRun

CUT_AHEAD = 16
"""For so many chunks tables are cut before a group is begun, so that it can have several small ones."""


@dataclass(frozen=True)
class StagedGroup:
    """What was read together, by table, and the mark that capture has to pass."""

    chunk_ranges: Mapping[TableId, ChunkRange]
    high_mark: str


@dataclass
class ChunkGroupReader:
    """Reads one group after the other, by a thread of its own; none is begun behind the `deadline`, but for the first.

    `connection` is that thread's. Who can publish nothing of the first takes `has_read` back.
    """

    run: SnapshotRun
    connection: SourceReader
    deadline: float

    def __post_init__(self) -> None:
        self.tick = self.run.tick
        self.watermark = self.connection.watermark
        self.target = self.tick.target.for_reader()
        self._begun: dict[TableId, int] = {}
        self._chunks = first_chunks(self.tick.spec.settings)
        self._last: tuple[int, float] | None = None
        self.has_read = False

    @property
    def is_late(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() > self.deadline

    @failpoint("read_group")
    def next(self) -> StagedGroup | None:
        """Read the snapshot's next group; None when there is none, it was stopped, or the time is over.

        It is read in pieces: how fast the first one was tells how many chunks more fit into a group's time.
        """
        if self.has_read and self.is_late:
            return None
        settings, chunks, done, spent_s = self.tick.spec.settings, self._chunks, 0, 0.0
        snapshot, piece = self.find_chunk_bounds(), self._piece(chunks)
        spans = self._readings(snapshot, piece)
        if not spans:
            return None
        opened, slices = self.watermark.open(), dict[TableId, ChunkRange]()
        while spans:
            started = time.monotonic()
            slices = self._read(spans, slices)
            read_s = time.monotonic() - started
            spent_s += read_s
            read = sum(_size(span) for span in spans if span.table in slices)
            self._chunks, self._last = next_group_chunks(settings, read, read_s), (read, read_s)
            done += piece
            chunks = 0 if self.is_late else more_chunks(settings, read, read_s, spent_s, done, chunks - piece)
            # No table is cut meanwhile, which may take long: what was read would wait for it.
            piece = self._piece(chunks)
            spans = self._readings(self.run.running(), piece)
        closed = self.watermark.close(opened)
        # A table whose read fails, however long that takes, is not to keep the others from theirs.
        self.has_read = self.has_read or bool(slices)
        return StagedGroup(slices, closed)

    def find_chunk_bounds(self) -> Snapshot | None:
        """Find where the chunks end of the tables that come next, and return the snapshot; None if it was stopped."""
        ahead = self.tick.spec.settings.snapshot_group_chunks or max(self._chunks, CUT_AHEAD)
        while (snapshot := self.run.running()) is not None:
            table = next_table_to_chunk(snapshot, self._begun, ahead)
            if table is None:
                break
            self._chunk(table)
        return snapshot

    def drop_stale(self, group: StagedGroup) -> StagedGroup:
        """Return the group with those slices that go on where their tables' published chunks end.

        While it was read its snapshot may have been paused: then its chunks are read again once that goes on.
        """
        slices = {}
        for table, chunk_range in group.chunk_ranges.items():
            part = self.run.table_snapshot(table)
            if self.run.is_open(table) and chunk_range.first == part.published_chunks:
                slices[table] = chunk_range
            else:
                self._begun[table] = part.published_chunks
        return replace(group, chunk_ranges=slices)

    def _readings(self, snapshot: Snapshot | None, chunks: int) -> list[ChunkSpan]:
        """Return what to read next, up to that many chunks; nothing where there is none, or it has to wait.

        Of a table that nothing was read of, no more than a first group begins with: its rows may take longer.
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
            one if one.table in self._begun else replace(one, last=min(one.last, one.first + most - 1)) for one in spans
        ]

    def _read(self, spans: Sequence[ChunkSpan], before: Mapping[TableId, ChunkRange]) -> dict[TableId, ChunkRange]:
        """Read some chunks more of a group, and return its slices, without those of tables whose read fails."""
        by_table = {span.table: span for span in spans}
        tasks = [self.tick.tasks[table] for table in by_table]
        at_once, of_each = self._readers(spans)
        slices = self.run.each(
            tasks,
            lambda task: self._stage(task, by_table[task.table], before.get(task.table), of_each[task.table]),
            at_once,
        )
        self._begun |= {table: span.last + 1 for table, span in by_table.items()}
        return {**{table: chunk_range for table, chunk_range in before.items() if table not in by_table}, **slices}

    def _chunk(self, table: TableId) -> None:
        task, part = self.tick.tasks[table], self.run.table_snapshot(table)

        def ends(task: TableTask) -> Sequence[Sequence[str]]:
            with _naming_what_was_asked(part, self.run.id):
                return self.connection.find_bounds(task, part)

        found = self.tick.each([task], ends)
        if table not in found:
            self.run.fail(table)
            return
        log_progress(f"table={table} snapshot={self.run.id}: {len(found[table]) + 1} chunks")
        self.run.update_table(table, lambda part: with_chunks(part, found[table], task.schema.fingerprint))

    @property
    def _free(self) -> int | None:
        """How many of Spark's slots are read with beside what is published; None: nothing is, or nobody knows."""
        all_of_them = self.target.slots() if self.run.publishing.is_set() else None
        return None if all_of_them is None else free_slots(all_of_them)

    def _piece(self, chunks: int) -> int:
        """Return how many of a group's next chunks are read at once."""
        free = self._free
        return chunks if free is None or self._last is None else sub_group_size(chunks, *self._last, free)

    def _readers(self, spans: Sequence[ChunkSpan]) -> tuple[int | None, Mapping[TableId, int]]:
        """Return how many tables are read side by side, and by how many readers each."""
        settings, free = self.tick.spec.settings, self._free
        if free is None:
            return None, {span.table: settings.parallel_reads for span in spans}
        return readers(settings, {span.table: _size(span) for span in spans}, free)

    def _stage(self, task: TableTask, span: ChunkSpan, before: ChunkRange | None, readers: int) -> ChunkRange:
        """Stage some chunks of a table behind those that the group has of it, if any, and return its slice of both."""
        chunk_range = before or self._begin_slice(task, span)
        table_snapshot = self.run.table_snapshot(task.table)
        with _naming_what_was_asked(table_snapshot, self.run.id):
            chunk_range = self.target.stage(task, table_snapshot, chunk_range, span, readers)
        if (error := self.connection.column_errors([task]).get(task.table)) is not None:
            raise error
        return chunk_range

    def _begin_slice(self, task: TableTask, span: ChunkSpan) -> ChunkRange:
        """Return a slice of which nothing is read yet: its low mark is how far the table stands now."""
        self.tick.positions.check_window(task)
        part, low = self.run.table_snapshot(task.table), self.tick.positions.position(task)
        return ChunkRange(
            self.run.id, self.run.kind, span.first, span.first - 1, low.upto, low.batch, low.batch,
            part.fingerprint, condition=part.condition or part.select,
        )  # fmt: skip


def _size(span: ChunkSpan) -> int:
    return span.last - span.first + 1


@contextmanager
def _naming_what_was_asked(part: TableSnapshot, snapshot: str) -> Iterator[None]:
    """Tell of a select or a condition of somebody's own where a read fails that it may be the reason of."""
    try:
        yield
    except Db2CdcError:
        raise
    except Exception as error:
        if part.select:
            raise SourceError(
                f"{part.table}: what is selected in its place cannot be read: {describe(error)}",
                f"Correct snapshot.select.statement.overrides.{part.table}. If a signal gave the select, stop snapshot "
                f"{snapshot} and ask again with another one.",
            ) from error
        if part.condition:
            raise SourceError(
                f"{part.table}: the rows that snapshot {snapshot} asks for by its condition cannot be read: "
                f"{describe(error)}",
                "If the condition is why (a division, a cast), stop the snapshot and ask again with another one.",
            ) from error
        raise
