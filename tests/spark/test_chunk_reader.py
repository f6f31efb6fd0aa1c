"""Reads of chunks, and the walk over their bounds. It ends for any texts of keys (SQLite is its source)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import Isolation, SourceSpec
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkSpan, TableSnapshot, with_chunks
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import SourceError
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import ChunkReader
from airflow_provider_db2cdc.spark.jdbc.connection import FETCH, DriverConnection, Fetch, JdbcSource
from airflow_provider_db2cdc.sql.chunk import ChunkKey, chunk_predicate, count_rows

CUT = ChunkKey(TableId("S", "T"), (Column("K", "TIME", 3, nullable=False),))
TIMES = ("08:00:00", "16:00:00", "24:00:00")


class Clock(DriverConnection):
    """A source with a table of times. Some of them come back as other times: pairs of both."""

    def __init__(self, *turned: tuple[str, str]) -> None:
        self._turned = {number(one): number(other) for one, other in turned}
        self._database = sqlite3.connect(":memory:")
        self._database.create_function("TIME", 1, lambda text: text, deterministic=True)
        for at, name in enumerate(("HOUR", "MINUTE", "SECOND")):
            self._database.create_function(name, 1, lambda text, at=at: int(text.split(":")[at]), deterministic=True)
        self._database.execute("ATTACH ':memory:' AS S")
        self._database.execute("CREATE TABLE S.T (K)")
        self._database.executemany("INSERT INTO S.T VALUES (?)", [(time,) for time in TIMES])

    def text_rows(self, select: str) -> list[list[str | None]]:
        select = re.sub(r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY$", r"LIMIT 1 OFFSET \1", select)
        return [[self._turned.get(str(key), str(key))] for (key,) in self._database.execute(select)]


def number(time: str) -> str:
    """Return the number as which a time travels."""
    return str(int(time.replace(":", "")))


def test_each_key_ends_a_chunk_of_one_row() -> None:
    assert Clock().chunk_bounds(CUT, 1) == [(f"TIME('{time}')",) for time in TIMES]


@pytest.mark.parametrize(
    "turned",
    [("24:00:00", "00:00:00"), ("24:00:00", "16:00:00"), ("16:00:00", "08:00:00")],
    ids=["before all", "the last one's end", "the first one's end"],
)
def test_walk_that_reaches_a_key_again_is_an_error(turned: tuple[str, str]) -> None:
    with pytest.raises(SourceError, match=r"S\.T: a chunk ends at a key that ended one before it"):
        Clock(turned).chunk_bounds(CUT, 1)


def steps(database: sqlite3.Connection, select: str) -> int:
    """Return how many of its machine's steps SQLite takes for a select, by tens."""
    taken = count()
    database.set_progress_handler(lambda: next(taken) < 0, 10)
    database.execute(select.replace("COUNT_BIG(", "COUNT(")).fetchall()
    database.set_progress_handler(None, 0)
    return next(taken)


class Index(DriverConnection):
    """A source with a table with an indexed key. `costs` has the steps of each statement."""

    def __init__(self, rows: Iterable[tuple[int, int]]) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("ATTACH ':memory:' AS S")
        self.database.execute("CREATE TABLE S.T (A INTEGER NOT NULL, B INTEGER NOT NULL, PRIMARY KEY (A, B))")
        self.database.executemany("INSERT INTO S.T VALUES (?, ?)", rows)
        self.costs: list[int] = []

    def text_rows(self, select: str) -> list[list[str | None]]:
        select = re.sub(r"OFFSET (\d+) ROWS FETCH FIRST 1 ROW ONLY$", r"LIMIT 1 OFFSET \1", select)
        self.costs.append(steps(self.database, select))
        return [[*map(str, row)] for row in self.database.execute(select)]


@pytest.mark.parametrize("lines", [10, 20_000], ids=["orders and lines", "one client"])
def test_all_chunks_of_a_composite_key_cost_a_few_scans(lines: int) -> None:
    source = Index((at // lines, at % lines) for at in range(20_000))
    cut = ChunkKey(TableId("S", "T"), tuple(Column(name, "INTEGER", 4, nullable=False) for name in "AB"))
    bounds = source.chunk_bounds(cut, 1_000)
    assert len(bounds) == 20
    assert source.costs[-3] < 3 * source.costs[1], "a bound costs as much at the end as in the beginning"
    reads = [steps(source.database, count_rows(cut, {at: chunk_predicate(cut, bounds, at)})) for at in range(21)]
    whole = steps(source.database, count_rows(cut, {0: '"A" >= 0'}))
    # A step that evaluates a row costs several steps that skip one. Without ends of a range there were 45 and 133.
    assert sum(reads) < 20 * whole, "but for the first and the last ones, each chunk is its own part of the index"


def relation(frame: DataFrame) -> Any:
    """Return what Spark asks the source by."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    while plan.getClass().getSimpleName() != "LogicalRelation":
        plan = plan.child()
    return plan.relation()


@pytest.mark.spark
@pytest.mark.sandbox
@pytest.mark.parametrize("by", ["parts", "frame"])
@pytest.mark.parametrize(
    ("isolation", "level", "resolution"),
    [("read_committed", 2, "1"), ("repeatable_read", 4, "2"), ("exclusive", 8, "2")],
)
def test_a_read_has_the_configured_isolation_and_omits_no_row(
    spark: SparkSession,
    new_pipeline: Callable[..., Pipeline],
    isolation: Isolation,
    level: int,
    resolution: str,
    by: str,
) -> None:
    pipeline = new_pipeline()
    pipeline.execute(f'CREATE TABLE "{pipeline.schema}"."T" (ID INTEGER NOT NULL PRIMARY KEY)')
    pipeline.writer.commit()
    with pipeline.source() as found:
        source = JdbcSource(SourceSpec(found.jdbc_url, found.database, "test", "ASNCDC"))
    select, how = f'SELECT ID AS K0 FROM "{pipeline.schema}"."T"', Fetch(7, isolation)
    rows = source.parts(spark, select, ["1 = 1"], how) if by == "parts" else source.frame(spark, select, how)
    options = relation(rows).jdbcOptions()
    assert options.fetchSize() == 7
    assert f"concurrentAccessResolution={1 if level == 2 else 2};" in options.url()
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    driver = loader.loadClass(source.spec.driver).newInstance()
    connection = driver.connect(options.url(), options.asConnectionProperties())
    assert connection.getTransactionIsolation() == level, "java.sql.Connection's, as IBM's driver has it"
    connection.close()


@pytest.mark.spark
@pytest.mark.sandbox
@pytest.mark.parametrize(("readers", "partitions"), [(1, 1), (2, 2), (8, 4)])
def test_chunks_are_read_by_several_readers_and_each_row_has_its_chunk(
    spark: SparkSession, new_pipeline: Callable[..., Pipeline], readers: int, partitions: int
) -> None:
    pipeline = new_pipeline()
    pipeline.execute(f'CREATE TABLE "{pipeline.schema}"."T" (ID INTEGER NOT NULL PRIMARY KEY)')
    pipeline.many(f'INSERT INTO "{pipeline.schema}"."T" VALUES (?)', [(at,) for at in range(60)])
    with pipeline.source() as found:
        source = JdbcSource(SourceSpec(found.jdbc_url, found.database, "test", "ASNCDC"))
    column = Column("ID", "INTEGER", 4, nullable=False)
    schema = TableSchema(TableId(pipeline.schema, "T"), (column,), ("ID",))
    part = with_chunks(TableSnapshot(schema.table), [(str(at),) for at in (9, 19, 29, 39)], "f")
    rows = ChunkReader(spark, source, schema, part).rows(ChunkSpan(schema.table, 1, 4), FETCH, readers)
    assert rows.rdd.getNumPartitions() == partitions
    # A chunk is ten keys, and the last of them is its bound. After the last bound there are twice as many.
    assert {(row["row"]["ID"], row["chunk"]) for row in rows.collect()} == {
        (at, min(at // 10, 4)) for at in range(10, 60)
    }
