"""The reading half of a snapshot's tick: which chunks come next, and their rows staged."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.pace import (
    first_chunks,
    free_slots,
    more_chunks,
    next_group_chunks,
    piece_beside,
    readers,
)
from airflow_provider_db2cdc.cdc.part import Part, Reading, Slice, chunked
from airflow_provider_db2cdc.cdc.snapshot import Snapshot, next_group, next_to_chunk
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import Db2CdcError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.altered import altered
from airflow_provider_db2cdc.spark.batch import stage_chunks
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.progress import describe, say
from airflow_provider_db2cdc.spark.session import TableSessions, slots
from airflow_provider_db2cdc.spark.share import Share
from airflow_provider_db2cdc.spark.snapshot import chunk_ends
from airflow_provider_db2cdc.spark.target import Target
from airflow_provider_db2cdc.sql.chunk import Bound

CUT_AHEAD = 16
"""For so many chunks tables are cut before a group is begun, so that it can have several small ones."""


@dataclass(frozen=True)
class Group:
    """What was read together, by table, and the mark that capture has to pass."""

    slices: Mapping[TableId, Slice]
    mark: str


@dataclass
class Reader:
    """Reads one group after the other, by a thread of its own; none is begun behind the `deadline`, but for the first.

    `connection` is that thread's. Who can publish nothing of the first takes `has_read` back.
    """

    share: Share
    connection: DriverConnection
    deadline: float

    def __post_init__(self) -> None:
        self.tick = self.share.tick
        self.marks = self.share.marks(self.connection)
        self.sessions = TableSessions(self.tick.spark, self.tick.place.owner.mark)
        self._begun: dict[TableId, int] = {}
        self._chunks = first_chunks(self.tick.spec.settings)
        self._last: tuple[int, float] | None = None
        self.has_read = False

    @property
    def is_late(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() > self.deadline

    @failpoint("read_group")
    def next(self) -> Group | None:
        """Read the snapshot's next group; None when there is none, it was stopped, or the time is over.

        It is read in pieces: how fast the first one was tells how many chunks more fit into a group's time.
        """
        if self.has_read and self.is_late:
            return None
        settings, chunks, done, spent_s = self.tick.spec.settings, self._chunks, 0, 0.0
        snapshot, piece = self.cut(), self._piece(chunks)
        readings = self._readings(snapshot, piece)
        if not readings:
            return None
        opened, slices = self.marks.open(), dict[TableId, Slice]()
        while readings:
            started = time.monotonic()
            slices = self._read(readings, slices)
            read_s = time.monotonic() - started
            spent_s += read_s
            read = sum(_size(reading) for reading in readings if reading.table in slices)
            self._chunks, self._last = next_group_chunks(settings, read, read_s), (read, read_s)
            done += piece
            chunks = 0 if self.is_late else more_chunks(settings, read, read_s, spent_s, done, chunks - piece)
            # No table is cut meanwhile, which may take long: what was read would wait for it.
            piece = self._piece(chunks)
            readings = self._readings(self.share.running(), piece)
        closed = self.marks.close(opened)
        # A table whose read fails, however long that takes, is not to keep the others from theirs.
        self.has_read = self.has_read or bool(slices)
        return Group(slices, closed)

    def cut(self) -> Snapshot | None:
        """Find where the chunks end of the tables that come next, and return the snapshot; None if it was stopped."""
        ahead = self.tick.spec.settings.snapshot_group_chunks or max(self._chunks, CUT_AHEAD)
        while (snapshot := self.share.running()) is not None:
            table = next_to_chunk(snapshot, self._begun, ahead)
            if table is None:
                break
            self._chunk(table)
        return snapshot

    def going_on(self, group: Group) -> Group:
        """Return the group with those slices that go on where their tables' published chunks end.

        While it was read its snapshot may have been paused: then its chunks are read again once that goes on.
        """
        slices = {}
        for table, of in group.slices.items():
            part = self.share.part(table)
            if self.share.wants(table) and of.first == part.done:
                slices[table] = of
            else:
                self._begun[table] = part.done
        return replace(group, slices=slices)

    def _readings(self, snapshot: Snapshot | None, chunks: int) -> list[Reading]:
        """Return what to read next, up to that many chunks; nothing where there is none, or it has to wait.

        Of a table that nothing was read of, no more than a first group begins with: its rows may take longer.
        """
        if snapshot is None or not chunks:
            return []
        readings = next_group(snapshot, self._begun, chunks)
        if not readings or not self.share.is_together([reading.table for reading in readings]):
            return []
        if snapshot.kind == "blocking":
            return readings
        most = first_chunks(self.tick.spec.settings)
        return [
            one if one.table in self._begun else replace(one, last=min(one.last, one.first + most - 1))
            for one in readings
        ]

    def _read(self, readings: Sequence[Reading], before: Mapping[TableId, Slice]) -> dict[TableId, Slice]:
        """Read some chunks more of a group, and return its slices, without those of tables whose read fails."""
        by_table = {reading.table: reading for reading in readings}
        tasks = [self.tick.tasks[table] for table in by_table]
        at_once, of_each = self._readers(readings)
        slices = self.share.each(
            tasks,
            lambda task: self._stage(task, by_table[task.table], before.get(task.table), of_each[task.table]),
            at_once,
        )
        self._begun |= {table: reading.last + 1 for table, reading in by_table.items()}
        return {**{table: of for table, of in before.items() if table not in by_table}, **slices}

    def _chunk(self, table: TableId) -> None:
        task, part = self.tick.tasks[table], self.share.part(table)

        def ends(task: TableTask) -> list[Bound]:
            with _naming_what_was_asked(part, self.share.id):
                return chunk_ends(self.connection, task.schema, self.tick.spec.settings, part)

        found = self.tick.each([task], ends)
        if table not in found:
            self.share.fail(table)
            return
        say(f"table={table} snapshot={self.share.id}: {len(found[table]) + 1} chunks")
        self.share.turn(table, lambda part: chunked(part, found[table], task.schema.fingerprint))

    @property
    def _free(self) -> int | None:
        """How many of Spark's slots are read with beside what is published; None: nothing is, or nobody knows."""
        all_of_them = slots(self.tick.spark) if self.share.publishing.is_set() else None
        return None if all_of_them is None else free_slots(all_of_them)

    def _piece(self, chunks: int) -> int:
        """Return how many of a group's next chunks are read at once."""
        free = self._free
        return chunks if free is None or self._last is None else piece_beside(chunks, *self._last, free)

    def _readers(self, readings: Sequence[Reading]) -> tuple[int | None, Mapping[TableId, int]]:
        """Return how many tables are read side by side, and by how many readers each."""
        settings, free = self.tick.spec.settings, self._free
        if free is None:
            return None, {reading.table: settings.parallel_reads for reading in readings}
        return readers(settings, {reading.table: _size(reading) for reading in readings}, free)

    def _stage(self, task: TableTask, reading: Reading, before: Slice | None, readers: int) -> Slice:
        """Stage some chunks of a table behind those that the group has of it, if any, and return its slice of both."""
        of = before or self._begin_slice(task, reading)
        settings = self.tick.spec.settings
        rows = (reading.last - of.first + 1) * settings.snapshot_chunk_rows
        about = sys.maxsize if settings.snapshot_chunk_bytes else rows
        target = Target(self.sessions.of(task.table, about), self.tick.place, task.schema)
        part = self.share.part(task.table)
        with _naming_what_was_asked(part, self.share.id):
            of = stage_chunks(target, self.tick.spec, self.tick.source, part, of, reading, readers)
        if (error := altered([task], self.connection).get(task.table)) is not None:
            raise error
        return of

    def _begin_slice(self, task: TableTask, reading: Reading) -> Slice:
        """Return a slice of which nothing is read yet: its low mark is how far the table stands now."""
        self.tick.standing.check_window(task)
        part, low = self.share.part(task.table), self.tick.standing.of(task)
        return Slice(
            self.share.id, self.share.kind, reading.first, reading.first - 1, low.upto, low.batch, low.batch,
            part.fingerprint, condition=part.condition or part.select,
        )  # fmt: skip


def _size(reading: Reading) -> int:
    return reading.last - reading.first + 1


@contextmanager
def _naming_what_was_asked(part: Part, snapshot: str) -> Iterator[None]:
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
