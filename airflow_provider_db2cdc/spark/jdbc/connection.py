"""Access to the source: frames that Spark reads in parallel, and single statements on a driver connection."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.cdc.document import PASSWORD_ENV, USER_ENV
from airflow_provider_db2cdc.cdc.job import Isolation, SourceSpec
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.sql.chunk import Bound, ChunkKey, alike, bound_after, key_literal

JDBC_ISOLATION: Mapping[Isolation, int] = {"read_committed": 2, "repeatable_read": 4, "exclusive": 8}
"""java.sql.Connection's levels; Db2 calls them CS, RS and RR."""

CURRENTLY_COMMITTED, WAIT_FOR_OUTCOME = 1, 2
"""Constants of IBM's driver: what a read does with a row that an open transaction has changed.

Without either, a server may be set to skip such rows (DB2_SKIPDELETED, DB2_EVALUNCOMMITTED).
"""


@dataclass(frozen=True)
class Fetch:
    """How a read fetches rows: how many per round trip, and its isolation."""

    rows: int = 10_000
    isolation: Isolation = "read_committed"


FETCH = Fetch()


class JdbcSource:
    """One source database over JDBC. Credentials come from the environment of the job.

    :raises ConfigurationError: when the environment lacks the user or the password.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        if not (os.environ.get(USER_ENV) and os.environ.get(PASSWORD_ENV)):
            raise ConfigurationError(
                f"the job's environment lacks {USER_ENV} or {PASSWORD_ENV}",
                "Start it through Db2CdcApplyOperator or `db2cdc tick`, which pass them on.",
            )

    @failpoint("read_frame")
    def frame(self, spark: SparkSession, select: str, how: Fetch = FETCH) -> DataFrame:
        """Return the rows of a select as one partition. An action reads them."""
        return spark.read.format("jdbc").options(**self.login(how), url=self.url(how), query=select).load()

    @failpoint("read_parts")
    def parts(self, spark: SparkSession, select: str, predicates: list[str], how: Fetch) -> DataFrame:
        """Return the rows of a select: one partition per predicate on its columns, in the order of `predicates`."""
        return spark.read.jdbc(self.url(how), f"({select}) AS S", predicates=predicates, properties=self.login(how))

    def url(self, fetch: Fetch = FETCH) -> str:
        """Return the URL of a connection that reads only committed rows, and skips none of them.

        The options are in the URL, not in the properties. Spark passes property names in lower case, which the driver
        ignores.
        """
        resolution = CURRENTLY_COMMITTED if fetch.isolation == "read_committed" else WAIT_FOR_OUTCOME
        options = f"defaultIsolationLevel={JDBC_ISOLATION[fetch.isolation]};concurrentAccessResolution={resolution};"
        return f"{self.spec.jdbc_url}{'' if self.spec.jdbc_url.endswith(';') else ':'}{options}"

    def login(self, fetch: Fetch) -> dict[str, str]:
        """Return the driver's properties for a read."""
        return {
            "driver": self.spec.driver,
            "user": os.environ[USER_ENV],
            "password": os.environ[PASSWORD_ENV],
            "fetchsize": str(fetch.rows),
        }


class DriverConnection:
    """A JDBC connection in the JVM of Spark's driver, for small statements. A lock runs them one at a time."""

    def __init__(self, jvm: Any, connection: Any) -> None:
        self._jvm = jvm
        self._connection = connection
        self._one_at_a_time = threading.Lock()

    @failpoint("query_source")
    def text_rows(self, select: str) -> list[list[str | None]]:
        """Return all rows of a select as texts of the JDBC driver. Bit data is in upper-case hex digits."""
        with self._one_at_a_time:
            return self._text_rows(select)

    def _text_rows(self, select: str) -> list[list[str | None]]:
        statement = self._connection.createStatement()
        try:
            results = statement.executeQuery(select)
            count = results.getMetaData().getColumnCount()
            columns = range(1, count + 1)
            binary = [results.getMetaData().getColumnType(column) in (-2, -3, -4) for column in columns]
            rows = []
            while results.next():
                rows.append([_text(results, column, binary[column - 1]) for column in columns])
            return rows
        finally:
            statement.close()

    def execute(self, statement: str) -> None:
        """Execute and commit one statement that changes rows."""
        with self._one_at_a_time:
            prepared = self._connection.createStatement()
            try:
                prepared.executeUpdate(statement)
            finally:
                prepared.close()

    @failpoint("find_chunk_bounds")
    def chunk_bounds(self, cut: ChunkKey, rows: int) -> list[Bound]:
        """Return the keys that end the table's chunks of `rows` rows, except the last chunk's.

        :raises SourceError: when a key ends two chunks. Without this check the walk would never end.
        """
        bounds: list[Bound] = []
        seen: set[Bound] = set()
        while next_rows := self._next_bound(cut, bounds, rows):
            bound = tuple(key_literal(column, text) for column, text in zip(cut.columns, next_rows[0], strict=True))
            if bound in seen:
                raise SourceError(
                    f"{cut.table}: a chunk ends at a key that ended one before it",
                    "The columns that chunks are cut by are not unique, or their values do not come back from a "
                    "literal as they are.",
                )
            bounds.append(bound)
            seen.add(bound)
        return bounds

    def _next_bound(self, cut: ChunkKey, bounds: Sequence[Bound], rows: int) -> list[list[str | None]]:
        """Return a row with the next bound, no row at the end of the table.

        If the last two bounds share leading columns, it first looks only at rows that have these values, too.
        """
        shared = alike(*bounds[-2:]) if len(bounds) > 1 else 0
        nearest = self.text_rows(bound_after(cut, bounds[-1], rows, shared)) if shared else []
        return nearest or self.text_rows(bound_after(cut, bounds[-1] if bounds else None, rows))


@failpoint("connect_source")
@contextmanager
def driver_connection(spark: SparkSession, source: JdbcSource) -> Iterator[DriverConnection]:
    """Open a connection with the JDBC driver that Spark reads with, and close it at the end of the block."""
    with connect(spark._jvm, source) as connection:
        yield connection


@contextmanager
def connect(jvm: Any, source: JdbcSource) -> Iterator[DriverConnection]:
    """Open a connection in a JVM that has the driver's jar, and close it at the end of the block."""
    registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    registry.register(source.spec.driver)
    driver = registry.get(source.spec.driver)
    properties = jvm.java.util.Properties()
    properties.setProperty("user", os.environ[USER_ENV])
    properties.setProperty("password", os.environ[PASSWORD_ENV])
    connection = driver.connect(source.url(), properties)
    try:
        yield DriverConnection(jvm, connection)
    finally:
        connection.close()


def _text(results: Any, column: int, binary: bool) -> str | None:
    if binary:
        raw = results.getBytes(column)
        return None if raw is None else bytes(raw).hex().upper()
    text = results.getString(column)
    return None if text is None else str(text)
