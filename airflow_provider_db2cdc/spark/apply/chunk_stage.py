"""Chunks that a snapshot reads and keeps until capture has passed the read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
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
from airflow_provider_db2cdc.spark.apply.staged_rows import StagedRows
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import ChunkReader
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch, JdbcSource


@dataclass(frozen=True)
class ChunkStager:
    """Read chunks of one table from the source. With `is_few` the plan has counted few rows in the table."""

    spark: SparkSession
    staged: StagedRows
    schema: TableSchema
    source: JdbcSource
    settings: ApplySettings
    is_few: bool

    @failpoint("stage_chunks")
    def stage(self, part: TableSnapshot, chunk_range: ChunkRange, span: ChunkSpan, readers: int) -> ChunkRange:
        """Read a chunk span after the chunks of its range. Return the range with both.

        The source counts after the read and before the high watermark: so the window has every change between the two.
        If a key need not be unique and rows share one, the whole range is read again: a scan meets a moved row twice.

        :raises SourceError: when several rows share a key in both reads.
        """
        reader, staged = ChunkReader(self.spark, self.source, self.schema, part), self.staged
        fetch = Fetch(self.settings.snapshot_fetch_rows, self.settings.snapshot_isolation)
        read_id = staged.add(reader.rows(span, fetch, readers), self.is_few, chunk_range.read_id)
        if _may_share_keys(self.schema, part) and not (doubled := self._doubled(read_id)).isEmpty():
            span, chunk_range, first_id = (
                replace(span, first=chunk_range.first),
                replace(chunk_range, counts=()),
                read_id,
            )
            read_id = staged.add(reader.rows(span, fetch, readers), self.is_few)
            self._check_unique(doubled, self._doubled(read_id))
            staged.drop(first_id)
        read = {int(row[0]): int(row[1]) for row in staged.newest(read_id).groupBy("chunk").count().collect()}
        counted = reader.counts(span, self.settings.parallel_reads)
        counts = (
            ChunkCounts(*chunk_bounds(part, chunk), read.get(chunk, 0), count)
            for chunk, count in sorted(counted.items())
        )
        return replace(chunk_range, last=span.last, read_id=read_id, counts=(*chunk_range.counts, *counts))

    def _doubled(self, read_id: str) -> DataFrame:
        """Return the keys (the key's columns) that several rows of a read share."""
        keys = [F.col("row").getField(name).alias(name) for name in self.schema.key]
        counted = self.staged.rows(self.spark, read_id).groupBy(*keys).agg(F.count("*").alias("__rows"))
        return counted.where("__rows > 1").drop("__rows")

    def _check_unique(self, doubled_first: DataFrame, doubled_second: DataFrame) -> None:
        """Refuse rows that share a key in both reads. A merge needs one row for each key.

        No batch is planned for them yet. So the next tick uses the corrected configuration.
        """
        schema, doubled = self.schema, doubled_first.intersect(doubled_second).count()
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
