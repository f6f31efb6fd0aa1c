"""The source as Spark sees it: frames read in parallel, and the driver's few statements."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.cdc.job import PASSWORD_ENV, USER_ENV, SourceSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import CaptureStoppedError, ConfigurationError, SourceError
from airflow_provider_db2cdc.sql import asn
from airflow_provider_db2cdc.sql.chunk import Bound, bound_after, key_literal

POLL_S = 0.5


class JdbcSource:
    """One source database over JDBC, read committed; credentials come from the environment of the job."""

    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        if not (os.environ.get(USER_ENV) and os.environ.get(PASSWORD_ENV)):
            raise ConfigurationError(
                f"the job's environment lacks {USER_ENV} or {PASSWORD_ENV}",
                "Start it through Db2CdcApplyOperator or `db2cdc tick`, which pass them on.",
            )

    def frame(self, spark: SparkSession, select: str) -> DataFrame:
        """Return the select's rows as one partition, read when an action runs."""
        return spark.read.format("jdbc").options(**self._options(), query=select).load()

    def frames(self, spark: SparkSession, selects: Sequence[str]) -> DataFrame:
        """Return the rows of selects of equal columns, each a partition of its own on its own connection."""
        first, *others = (self.frame(spark, select) for select in selects)
        for other in others:
            first = first.unionAll(other)
        return first

    def _options(self) -> dict[str, str]:
        return {
            "url": self.spec.jdbc_url,
            "driver": self.spec.driver,
            "user": os.environ[USER_ENV],
            "password": os.environ[PASSWORD_ENV],
            "fetchsize": "10000",
            "defaultIsolationLevel": "2",
        }


class DriverConnection:
    """A JDBC connection in the driver's JVM for single small statements."""

    def __init__(self, jvm: Any, connection: Any) -> None:
        self._jvm = jvm
        self._connection = connection

    def text_rows(self, select: str) -> list[list[str | None]]:
        """Return all rows as the driver's texts; bit data as hex."""
        statement = self._connection.createStatement()
        try:
            results = statement.executeQuery(select)
            count = results.getMetaData().getColumnCount()
            binary = [results.getMetaData().getColumnType(at) in (-2, -3, -4) for at in range(1, count + 1)]
            rows = []
            while results.next():
                rows.append([_text(results, at, binary[at - 1]) for at in range(1, count + 1)])
            return rows
        finally:
            statement.close()

    def chunk_bounds(self, schema: TableSchema, rows: int) -> list[Bound]:
        """Return the keys that end the table's chunks of `rows` rows, but for the last chunk's."""
        columns = [schema.column(name) for name in schema.key]
        bounds: list[Bound] = []
        while found := self.text_rows(bound_after(schema, bounds[-1] if bounds else None, rows)):
            bound = [key_literal(c, text or "") for c, text in zip(columns, found[0], strict=True)]
            if bounds and bound == bounds[-1]:
                raise SourceError(
                    f"{schema.table}: the chunk after a key ends at that same key",
                    "Its key's values do not come back from a literal as they are: please report the key's types.",
                )
            bounds.append(bound)
        return bounds

    def await_capture(self, asn_schema: str, timeout_s: float) -> Lsn:
        """Return a high mark: a synchpoint at which capture had passed the moment of this call.

        Reads the source's clock, waits until the global row's SYNCHTIME has passed it, takes its SYNCHPOINT.
        Writes nothing to the source.

        :raises CaptureStoppedError: capture did not get there within `timeout_s`.
        """
        clock = self.text_rows(asn.source_clock().text)[0][0] or ""
        deadline = time.monotonic() + timeout_s
        while True:
            synchpoint, synchtime = self.text_rows(asn.global_row(asn_schema).text)[0]
            if synchpoint and synchtime and synchtime > clock:
                return Lsn.parse(synchpoint)
            if time.monotonic() > deadline:
                raise CaptureStoppedError(
                    f"capture stands at {synchtime} and did not pass the snapshot's read at {clock} "
                    f"within {timeout_s:.0f} s",
                    "Is the capture agent running? A longer wait is high.mark.timeout.s.",
                )
            time.sleep(POLL_S)


@contextmanager
def driver_connection(spark: SparkSession, source: JdbcSource) -> Iterator[DriverConnection]:
    """Open a connection through the JDBC driver that the job has anyway."""
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    registry.register(source.spec.driver)
    driver = registry.get(source.spec.driver)
    properties = jvm.java.util.Properties()
    properties.setProperty("user", os.environ[USER_ENV])
    properties.setProperty("password", os.environ[PASSWORD_ENV])
    connection = driver.connect(source.spec.jdbc_url, properties)
    try:
        yield DriverConnection(jvm, connection)
    finally:
        connection.close()


def _text(results: Any, at: int, binary: bool) -> str | None:
    if binary:
        raw = results.getBytes(at)
        return None if raw is None else bytes(raw).hex().upper()
    text = results.getString(at)
    return None if text is None else str(text)
