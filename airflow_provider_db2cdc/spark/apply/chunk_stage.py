"""Chunks that a snapshot reads into a table's staging table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import ApplySettings
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY as KEY_PROPERTY
from airflow_provider_db2cdc.cdc.selection.select_override import PROPERTY as SELECT_PROPERTY
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    ChunkSpan,
    TableSnapshot,
    chunk_bounds,
)
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.staging import Staging
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import ChunkReader
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch, JdbcSource


@dataclass(frozen=True)
class ChunkStager:
    """Read chunks of one table from the source into its staging table."""

    staging: Staging
    source: JdbcSource
    settings: ApplySettings

    @failpoint("stage_chunks")
    def stage(self, part: TableSnapshot, chunk_range: ChunkRange, span: ChunkSpan, readers: int) -> ChunkRange:
        """Read a chunk span into the staging table, after the chunks of its range. Return the range with both.

        The source counts after the read and before the high watermark: so the window has every change between the two.
        If a key need not be unique and rows share one, the whole range is read again: a scan meets a moved row twice.
        It is also read again if another run has staged rows meanwhile.

        :raises SourceError: when several rows share a key in both reads.
        """
        staging, reader = self.staging, ChunkReader(self.staging.spark, self.source, self.staging.schema, part)
        fetch = Fetch(self.settings.snapshot_fetch_rows, self.settings.snapshot_isolation)

        def rows(span: ChunkSpan) -> DataFrame:
            return reader.rows(span, fetch, readers)

        version = staging.add(rows(span), chunk_range.staging_version) if chunk_range.counts else None
        whole, unread = replace(span, first=chunk_range.first), replace(chunk_range, counts=())
        if version is None:
            span, chunk_range, version = whole, unread, staging.write(rows(whole))
        if _may_share_keys(staging.schema, part) and not (doubled := staging.doubled(version)).isEmpty():
            span, chunk_range, version = whole, unread, staging.write(rows(whole))
            self._check_unique(doubled, version)
        newest = staging.rows(version).where(F.col("chunk") >= span.first)
        read = {int(row[0]): int(row[1]) for row in newest.groupBy("chunk").count().collect()}
        counted = reader.counts(span, self.settings.parallel_reads)
        counts = (
            ChunkCounts(*chunk_bounds(part, chunk), read.get(chunk, 0), count)
            for chunk, count in sorted(counted.items())
        )
        return replace(chunk_range, last=span.last, staging_version=version, counts=(*chunk_range.counts, *counts))

    def _check_unique(self, doubled_first: DataFrame, second: int) -> None:
        """Refuse rows that share a key in both reads. A merge cannot tell several rows of one key apart.

        No batch is planned for them yet. So the next tick uses the corrected configuration.
        """
        schema = self.staging.schema
        doubled = doubled_first.intersect(self.staging.doubled(second)).count()
        if doubled:
            raise SourceError(
                f"{schema.table}: its key ({', '.join(schema.key)}) is not unique: {doubled} keys are each of several "
                "of the rows read",
                f"Name columns whose values are unique with {KEY_PROPERTY}, or correct its select in "
                f"{SELECT_PROPERTY}.",
            )


def _may_share_keys(schema: TableSchema, part: TableSnapshot) -> bool:
    """Whether rows that are read may share a key: Db2 does not enforce a unique key, or a select yields the rows."""
    return bool(schema.key) and (not schema.unique or bool(part.select))
