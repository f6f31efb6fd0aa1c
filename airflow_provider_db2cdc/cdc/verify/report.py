"""The report of a verification: which chunks of a table it has compared, and where it continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import Bound
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.comparison import Comparison


@dataclass(frozen=True)
class VerifiedChunks:
    """The chunks `first` to `last` of a table, as they were compared after `reads` reads.

    Keys that changed after `low`, up to `high`, were not compared. Both are None if all rows were equal at once.
    """

    table: TableId
    first: int
    last: int
    comparison: Comparison
    reads: int
    state_version: int
    low: Lsn | None = None
    high: Lsn | None = None
    started_at_ms: int = 0
    ended_at_ms: int = 0


@dataclass(frozen=True)
class TableReport:
    """What a verification has recorded of a table: where its chunks end, and those that are compared.

    `fingerprint` is that of the columns that are compared. `chunks` are in order and without a hole.
    """

    table: TableId
    fingerprint: str
    bounds: tuple[Bound, ...]
    chunks: tuple[VerifiedChunks, ...] = ()

    @property
    def chunk_count(self) -> int:
        """The number of chunks of the table."""
        return len(self.bounds) + 1

    @property
    def next_chunk(self) -> int:
        """The number of the first chunk that is not compared yet."""
        return self.chunks[-1].last + 1 if self.chunks else 0

    @property
    def is_complete(self) -> bool:
        """Whether all chunks are compared."""
        return self.next_chunk >= self.chunk_count

    @cached_property
    def totals(self) -> Comparison:
        """The sum of all comparisons."""
        found = [chunks.comparison for chunks in self.chunks]
        return Comparison(
            sum(comparison.source_rows for comparison in found),
            sum(comparison.state_rows for comparison in found),
            sum(comparison.keys_changed for comparison in found),
            tuple(difference for comparison in found for difference in comparison.differences),
        )

    def with_chunks(self, recorded: Sequence[VerifiedChunks]) -> TableReport:
        """Return the report with recorded chunks.

        Two processes may have continued the same verification. Chunks that both have recorded count once.
        """
        report = self
        for chunks in sorted(recorded, key=lambda chunks: (chunks.first, -chunks.last)):
            if chunks.first == report.next_chunk:
                report = replace(report, chunks=(*report.chunks, chunks))
        return report
