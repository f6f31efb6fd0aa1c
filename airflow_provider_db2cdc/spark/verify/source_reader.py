"""The source port of a verification, on JDBC connections of the Spark driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.cdc.verify.gap import unverifiable
from airflow_provider_db2cdc.errors import GapError
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import find_bounds
from airflow_provider_db2cdc.spark.jdbc.column_check import column_errors
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection, JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.jdbc.registration_check import registration_errors
from airflow_provider_db2cdc.spark.jdbc.watermark import watermark
from airflow_provider_db2cdc.sql.asn import global_row
from airflow_provider_db2cdc.tick.ports import Watermark
from airflow_provider_db2cdc.verify.ports import StatePosition


@dataclass(frozen=True)
class VerifyReaders:
    """Open readers of the source that is verified."""

    spark: SparkSession
    spec: VerifySpec

    @contextmanager
    def connect(self) -> Iterator[VerifyReader]:
        """Open a connection in the driver's JVM."""
        with driver_connection(self.spark, JdbcSource(self.spec.source)) as connection:
            yield VerifyReader(self.spec, connection)


@dataclass(frozen=True)
class VerifyReader:
    """One JDBC connection to the source."""

    spec: VerifySpec
    connection: DriverConnection

    @cached_property
    def watermark(self) -> Watermark:
        """The watermark that the configuration names."""
        spec = self.spec
        return watermark(spec.settings.watermarking, self.connection, spec.source.asn_schema, spec.signal_table)

    def capture_lsn(self) -> Lsn | None:
        """Return the greatest SYNCHPOINT."""
        synchpoint = self.connection.text_rows(global_row(self.spec.source.asn_schema).text)[0][0]
        return Lsn.parse(synchpoint) if synchpoint else None

    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Walk the key of a table in steps of a chunk."""
        return find_bounds(self.connection, task.schema, self.spec.settings, table_snapshot)

    def check_window(self, task: TableTask, position: StatePosition, window: LsnRange) -> None:
        """Compare the registration with the one at the state's position, and with what is pruned."""
        capture = replace(task.capture, identity=position.capture)
        errors = registration_errors(self.spec.source.asn_schema, [capture], [window], self.connection)
        error = errors.get(task.table)
        if isinstance(error, GapError):
            raise unverifiable(task.table, error) from error
        if error is not None:
            raise error

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Compare the columns in the catalog with those of the plan."""
        return column_errors(tasks, self.connection)
