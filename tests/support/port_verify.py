"""The verification of one table of a twin: its ports, and what differs between the source and the state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.verify.comparison import Comparison
from airflow_provider_db2cdc.tick.ports import Journal
from airflow_provider_db2cdc.verify.ports import Comparer, Ports, StatePosition, Totals
from support.memory_journal import JournalRows, MemoryJournal
from support.memory_twin import MemoryTwin
from support.memory_verify import MemoryComparer, MemoryReport, VerifySource
from support.port_table import BOUNDS, Table

CHUNK_ROWS = 3
Place = tuple[int, Sequence[str], Sequence[str], tuple[int, int, int]]
"""A place that differs: its chunk, its ends, and the missing, surplus and different rows."""


class VerifyTwin(Protocol):
    """An implementation of the ports of a verification, for one table. It cuts chunks of `CHUNK_ROWS` rows."""

    def ports(self, quick: bool = False) -> Ports:
        """Return the ports as another job has them."""

    def journal(self) -> Journal:
        """Return the pipeline's journal as another run has it."""


@dataclass
class MemoryVerifyTwin:
    """The ports in memory."""

    twin: MemoryTwin
    rows: JournalRows = field(default_factory=JournalRows)
    reports: dict[bool, MemoryReport] = field(
        default_factory=lambda: {quick: MemoryReport() for quick in (False, True)}
    )

    def ports(self, quick: bool = False) -> Ports:
        """Return new ports on the same rows."""
        source, target = self.twin.source, self.twin.target
        return Ports(VerifySource(source), MemoryComparer(source, target, self.rows, quick), self.reports[quick])

    def journal(self) -> Journal:
        """Open the journal."""
        return MemoryJournal(self.rows)


@dataclass
class Verification:
    """A table of a twin that is compared. `quick` compares counts."""

    table: Table
    twin: VerifyTwin
    quick: bool = False

    @cached_property
    def ports(self) -> Ports:
        """The ports of one job."""
        return self.twin.ports(self.quick)

    @property
    def comparer(self) -> Comparer:
        """The comparer of the job."""
        return self.ports.comparer

    @property
    def task(self) -> TableTask:
        """The table as a plan finds it now."""
        return self.table.twin.task(self.table.at)

    @contextmanager
    def read(self, first: int = 0, last: int = 2) -> Iterator[Any]:
        """Read chunks of the table."""
        task = self.task
        cut = TableSnapshot(task.table, bounds=BOUNDS)
        with self.comparer.read(task, cut, ChunkSpan(task.table, first, last)) as rows:
            yield rows

    def totals(self, rows: Any, position: StatePosition | None = None) -> Totals:
        """Compare rows with the state as a whole, by default with its newest version."""
        return self.comparer.totals(self.task, rows, position or self.comparer.position(self.task))

    def compare(self, rows: Any, window: LsnRange | None = None, suspects: Any = None) -> tuple[Comparison, Any]:
        """Compare rows with the newest version by key, by default without a window."""
        at = self.table.at
        return self.comparer.compare(self.task, rows, self.totals(rows), window or LsnRange(at, at), suspects)

    def begin_initial_snapshot(self) -> None:
        """Record that the table's first snapshot is under way."""
        journal = self.twin.journal()
        journal.read(0, 0)
        reading = replace(TableSnapshot(self.task.table), status="reading")
        journal.write([Snapshot(f"initial {self.task.table}", "initial", (reading,), "file")], [], [], [], 9)


def places(comparison: Comparison) -> list[Place]:
    """Return the places that differ."""
    return [
        (place.first, place.low, place.high, (place.missing, place.surplus, place.different))
        for place in comparison.differences
    ]
