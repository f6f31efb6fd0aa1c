"""The source port of a tick, on JDBC connections of the Spark driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import JobSpec, TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, TableSnapshot
from airflow_provider_db2cdc.spark.jdbc.change_count import with_row_counts
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import check_counts, check_part
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.jdbc.reader import Reader
from airflow_provider_db2cdc.sql.signal import given_signals
from airflow_provider_db2cdc.tick.log import describe, log_progress
from airflow_provider_db2cdc.tick.ports import Fail


@dataclass(frozen=True)
class JdbcReaders:
    """Open readers of the source that a job reads."""

    spark: SparkSession
    spec: JobSpec

    @contextmanager
    def connect(self) -> Iterator[JdbcReader]:
        """Open a connection in the driver's JVM."""
        with driver_connection(self.spark, JdbcSource(self.spec.source)) as connection:
            yield JdbcReader(self.spec, connection)


@dataclass(frozen=True)
class JdbcReader(Reader):
    """One JDBC connection to the source."""

    spec: JobSpec

    def with_row_counts(self, batches: Sequence[PlannedBatch], fail: Fail) -> list[PlannedBatch]:
        """Count the change rows in the batches' ranges."""
        return with_row_counts(self.spec, batches, self.connection, fail)

    def check_counts(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, window: LsnRange
    ) -> None:
        """Compare the chunks that were read with the source's counts and its changes."""
        check_counts(self.connection, task, table_snapshot, chunk_range, window)

    def check_request(self, task: TableTask, table_snapshot: TableSnapshot) -> None:
        """Let the source judge a condition, a select and a surrogate key."""
        check_part(self.connection, task.schema, table_snapshot)

    def signals(self) -> list[Signal]:
        """Read the signal table, if it is a channel. A failure is only logged: the tick continues without it."""
        table = self.spec.signal_table
        if table is None or not table.is_channel:
            return []
        try:
            rows = self.connection.text_rows(given_signals(table))
        except Exception as error:
            log_progress(f"signals: {table.table} cannot be read, the tick goes on without it: {describe(error)}")
            return []
        return [Signal(row[0] or "", row[1] or "", row[2] or "", SOURCE_CHANNEL) for row in rows]
