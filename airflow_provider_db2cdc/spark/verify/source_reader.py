"""The source port of a verification, on JDBC connections of the Spark driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.cdc.verify.gap import unverifiable
from airflow_provider_db2cdc.errors import GapError
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.jdbc.reader import Reader
from airflow_provider_db2cdc.spark.jdbc.registration_check import registration_errors
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
class VerifyReader(Reader):
    """One JDBC connection to the source."""

    spec: VerifySpec

    def check_window(self, task: TableTask, position: StatePosition, window: LsnRange) -> None:
        """Compare the registration with the one at the state's position, and with what is pruned."""
        capture = replace(task.capture, identity=position.capture)
        errors = registration_errors(self.spec.source.asn_schema, [capture], [window], self.connection)
        error = errors.get(task.table)
        if isinstance(error, GapError):
            raise unverifiable(task.table, error) from error
        if error is not None:
            raise error
