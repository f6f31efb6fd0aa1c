"""How rows are asked for; and the walk over chunks ends, whatever a driver makes of keys (SQLite is its source)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import Isolation, SourceSpec
from airflow_provider_db2cdc.cdc.snapshot import Part, Reading, chunked
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc import FETCH, DriverConnection, Fetch, JdbcSource
from airflow_provider_db2cdc.spark.snapshot import chunk_rows
from airflow_provider_db2cdc.sql.chunk import Cut

CUT = Cut(TableId("S", "T"), (Column("K", "TIME", 3, nullable=False),))
TIMES = ("08:00:00", "16:00:00", "24:00:00")


class Clock(DriverConnection):
    """A source with a table of times, some of which come back as others: pairs of one and its other."""

    def __init__(self, *turned: tuple[str, str]) -> None:
        self._turned = dict(turned)
        self._database = sqlite3.connect(":memory:")
        self._database.create_function("TIME", 1, lambda text: text, deterministic=True)
        self._database.execute("ATTACH ':memory:' AS S")
        self._database.execute("CREATE TABLE S.T (K)")
        self._database.executemany("INSERT INTO S.T VALUES (?)", [(time,) for time in TIMES])

    def text_rows(self, select: str) -> list[list[str | None]]:
        select = re.sub(r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY$", r"LIMIT 1 OFFSET \1", select)
        return [[self._turned.get(text, text)] for (text,) in self._database.execute(select)]


def test_each_key_ends_a_chunk_of_one_row() -> None:
    assert Clock().chunk_bounds(CUT, 1) == [(f"TIME('{time}')",) for time in TIMES]


@pytest.mark.parametrize(
    "turned",
    [("24:00:00", "00:00:00"), ("24:00:00", "16:00:00"), ("16:00:00", "08:00:00")],
    ids=["before all", "the last one's end", "the first one's end"],
)
def test_walk_that_comes_to_a_key_again_is_an_error(turned: tuple[str, str]) -> None:
    with pytest.raises(SourceError, match=r"S\.T: a chunk ends at a key that ended one before it"):
        Clock(turned).chunk_bounds(CUT, 1)


@pytest.mark.spark
@pytest.mark.sandbox
@pytest.mark.parametrize(("isolation", "level"), [("read_committed", 2), ("repeatable_read", 4), ("exclusive", 8)])
def test_a_read_has_the_isolation_that_is_asked_for(
    spark: SparkSession, new_pipeline: Callable[..., Pipeline], isolation: Isolation, level: int
) -> None:
    with new_pipeline().source() as found:
        source = JdbcSource(SourceSpec(found.jdbc_url, found.database, "test", "ASNCDC"))
    given = source.login(Fetch(7, isolation))
    assert given["fetchsize"] == "7"
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    for name, value in given.items():
        properties.setProperty(name, value)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    connection = loader.loadClass(source.spec.driver).newInstance().connect(source.spec.jdbc_url, properties)
    assert connection.getTransactionIsolation() == level, "java.sql.Connection's, as IBM's driver has it"
    connection.close()


@pytest.mark.spark
@pytest.mark.sandbox
@pytest.mark.parametrize(("readers", "partitions"), [(1, 1), (2, 2), (8, 4)])
def test_chunks_are_read_by_so_many_readers_and_each_row_knows_its_chunk(
    spark: SparkSession, new_pipeline: Callable[..., Pipeline], readers: int, partitions: int
) -> None:
    pipeline = new_pipeline()
    pipeline.execute(f'CREATE TABLE "{pipeline.schema}"."T" (ID INTEGER NOT NULL PRIMARY KEY)')
    pipeline.many(f'INSERT INTO "{pipeline.schema}"."T" VALUES (?)', [(at,) for at in range(60)])
    with pipeline.source() as found:
        source = JdbcSource(SourceSpec(found.jdbc_url, found.database, "test", "ASNCDC"))
    column = Column("ID", "INTEGER", 4, nullable=False)
    schema = TableSchema(TableId(pipeline.schema, "T"), (column,), ("ID",))
    part = chunked(Part(schema.table), [(str(at),) for at in (9, 19, 29, 39)], "f")
    rows = chunk_rows(spark, source, schema, part, Reading(schema.table, 1, 4), FETCH, readers)
    assert rows.rdd.getNumPartitions() == partitions
    # A chunk is ten keys, the last one of them its bound; behind the last bound there are twice as many.
    assert {(row["row"]["ID"], row["chunk"]) for row in rows.collect()} == {
        (at, min(at // 10, 4)) for at in range(10, 60)
    }
