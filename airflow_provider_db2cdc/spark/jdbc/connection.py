"""The source as Spark sees it: frames read in parallel, and the driver's few statements."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.cdc.job import PASSWORD_ENV, USER_ENV, Isolation, SourceSpec
from airflow_provider_db2cdc.errors import ConfigurationError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.sql.chunk import Bound, ChunkKey, alike, bound_after, key_literal

JDBC_ISOLATION: Mapping[Isolation, int] = {"read_committed": 2, "repeatable_read": 4, "exclusive": 8}
"""java.sql.Connection's levels; Db2 calls them CS, RS and RR."""

CURRENTLY_COMMITTED, WAIT_FOR_OUTCOME = 1, 2
"""IBM's driver's constants of what a read does about a row that an open transaction has changed.

Where a statement asks for neither, a server may be set to leave such rows out (DB2_SKIPDELETED, DB2_EVALUNCOMMITTED).
"""


@dataclass(frozen=True)
class Fetch:
    """How rows are fetched: how many at once, under which isolation."""

    rows: int = 10_000
    isolation: Isolation = "read_committed"


FETCH = Fetch()


class JdbcSource:
    """One source database over JDBC, read committed; credentials come from the environment of the job."""

    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        if not (os.environ.get(USER_ENV) and os.environ.get(PASSWORD_ENV)):
            raise ConfigurationError(
                f"the job's environment lacks {USER_ENV} or {PASSWORD_ENV}",
                "Start it through Db2CdcApplyOperator or `db2cdc tick`, which pass them on.",
            )

    @failpoint("read_frame")
    def frame(self, spark: SparkSession, select: str, how: Fetch = FETCH) -> DataFrame:
        """Return the select's rows as one partition, read when an action runs."""
        return spark.read.format("jdbc").options(**self.login(how), url=self.url(how), query=select).load()

    @failpoint("read_parts")
    def parts(self, spark: SparkSession, select: str, predicates: list[str], how: Fetch) -> DataFrame:
        """Return the select's rows, a partition for those that meet each predicate on its columns, in their order."""
        return spark.read.jdbc(self.url(how), f"({select}) AS S", predicates=predicates, properties=self.login(how))

    def url(self, how: Fetch = FETCH) -> str:
        """Return the URL of a connection that reads committed rows alone, and leaves out none of them.

        As properties Spark would hand the driver these names in lower case, and it would leave them aside.
        """
        resolution = CURRENTLY_COMMITTED if how.isolation == "read_committed" else WAIT_FOR_OUTCOME
        options = f"defaultIsolationLevel={JDBC_ISOLATION[how.isolation]};concurrentAccessResolution={resolution};"
        return f"{self.spec.jdbc_url}{'' if self.spec.jdbc_url.endswith(';') else ':'}{options}"

    def login(self, how: Fetch) -> dict[str, str]:
        """Return the driver's properties of a read."""
        return {
            "driver": self.spec.driver,
            "user": os.environ[USER_ENV],
            "password": os.environ[PASSWORD_ENV],
            "fetchsize": str(how.rows),
        }


class DriverConnection:
    """A JDBC connection in the driver's JVM for single small statements, one at a time."""

    def __init__(self, jvm: Any, connection: Any) -> None:
        self._jvm = jvm
        self._connection = connection
        self._one_at_a_time = threading.Lock()

    @failpoint("query_source")
    def text_rows(self, select: str) -> list[list[str | None]]:
        """Return all rows as the driver's texts; bit data as hex."""
        with self._one_at_a_time:
            return self._text_rows(select)

    def _text_rows(self, select: str) -> list[list[str | None]]:
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
        """Return the keys that end the table's chunks of `rows` rows, but for the last chunk's.

        :raises SourceError: the walk comes to one of them again.
        """
        bounds: list[Bound] = []
        seen: set[Bound] = set()
        while found := self._next_bound(cut, bounds, rows):
            bound = tuple(key_literal(column, text) for column, text in zip(cut.columns, found[0], strict=True))
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
        """Return the next bound; first of rows that have the leading columns which the last two bounds share."""
        same = alike(*bounds[-2:]) if len(bounds) > 1 else 0
        found = self.text_rows(bound_after(cut, bounds[-1], rows, same)) if same else []
        return found or self.text_rows(bound_after(cut, bounds[-1] if bounds else None, rows))


@failpoint("connect_source")
@contextmanager
def driver_connection(spark: SparkSession, source: JdbcSource) -> Iterator[DriverConnection]:
    """Open a connection through the JDBC driver that the job has anyway."""
    with connect(spark._jvm, source) as connection:
        yield connection


@contextmanager
def connect(jvm: Any, source: JdbcSource) -> Iterator[DriverConnection]:
    """Open a connection in a JVM that has the driver's jar."""
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


def _text(results: Any, at: int, binary: bool) -> str | None:
    if binary:
        raw = results.getBytes(at)
        return None if raw is None else bytes(raw).hex().upper()
    text = results.getString(at)
    return None if text is None else str(text)
