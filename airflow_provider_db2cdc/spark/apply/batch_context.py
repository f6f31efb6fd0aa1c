"""One batch of one table while it is applied: what each of its steps needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, PlannedBatch
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, DeleteMissing
from airflow_provider_db2cdc.spark.apply.staged_rows import StagedRows
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.envelope import Envelopes
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.tick.ports import TableBatch


@dataclass(frozen=True)
class BatchContext:
    """One table's part of a batch, with the source that it reads and the replica that it writes.

    `is_foreign`: another writer has changed the state, and a heal accepts that.
    """

    replica: Replica
    spec: JobSpec
    source: JdbcSource
    staged: StagedRows
    batch: TableBatch
    is_foreign: bool = False

    @property
    def planned(self) -> PlannedBatch:
        """The batch as it was planned."""
        return self.batch.planned

    @property
    def events(self) -> DataFrame:
        """The rows that the change log has of the batch by now."""
        return self.replica.batch_events(self.planned.batch)

    @property
    def envelopes(self) -> Envelopes:
        """The batch's events as rows of the change log."""
        return Envelopes(self.replica.schema, self.spec, self.planned)

    @cached_property
    def chunk_range(self) -> ChunkRange | None:
        """The batch's chunk range. None if another run has read it, or under other columns, or a redo has excluded it.

        A deletion of missing rows has no rows of any columns.
        """
        chunk_range = self.planned.chunk_range
        if chunk_range is None or isinstance(chunk_range, DeleteMissing):
            return chunk_range
        is_usable = chunk_range.read_id in self.staged and chunk_range.fingerprint == self.replica.schema.fingerprint
        return chunk_range if is_usable and not self.replica.has_excluded_chunks(self.planned.batch) else None

    def staged_rows(self, chunk_range: ChunkRange) -> DataFrame:
        """Return the rows (`row`, `chunk`) that were read for a chunk range."""
        return self.staged.rows(self.replica.spark, chunk_range.read_id)

    @property
    def excludes_chunks(self) -> bool:
        """Whether the batch is applied without its chunk range. Its chunks are read again later."""
        return self.chunk_range is None and self.planned.chunk_range is not None

    @property
    def has_own_window(self) -> bool:
        """Whether the chunk range's window is the batch's range: no batch pulled changes since its low watermark."""
        return self.chunk_range is not None and self.chunk_range.low_watermark == self.planned.after

    @property
    def held(self) -> AppliedBatch | None:
        """The applied batch that says what the state holds, None if that is unknown.

        If the table starts with this batch, its state may have been moved away. If the batch excludes its chunk range,
        a first try may have written rows of it. Another writer may have changed any rows.
        """
        is_unknown = self.batch.is_begun or self.excludes_chunks or self.is_foreign
        return None if is_unknown else self.batch.last

    @property
    def rows_before(self) -> int | None:
        """The number of the state's rows before the batch, None if it is unknown.

        A state that is not empty although the last applied batch left 0 rows has rows of unknown origin.
        """
        return (self.held.rows or None) if self.held is not None else None
