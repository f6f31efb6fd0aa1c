"""A snapshot's rows: read in parallel chunks, counted, and without rows that the log overrides."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import ApplySettings, TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkCounts, ChunkRange, ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import SignalError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.events.broadcast import if_few_to_all
from airflow_provider_db2cdc.spark.events.envelope import key_struct, row_struct, row_type
from airflow_provider_db2cdc.spark.events.net_effect import BatchCounts, hot_keys
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection, Fetch, JdbcSource, driver_connection
from airflow_provider_db2cdc.sql.chunk import (
    Bound,
    ChunkKey,
    chunk_predicate,
    condition_check,
    count_rows,
    row_bytes,
    select_check,
    surrogate_check,
    table_rows,
)
from airflow_provider_db2cdc.sql.moves import chunk_moves, count_moves
from airflow_provider_db2cdc.tick.log import describe, log_progress

COUNTED_AT_ONCE = 8
"""The number of chunks whose rows, or changes, one statement counts."""


def chunk_key(schema: TableSchema, part: TableSnapshot) -> ChunkKey:
    """Return the columns by which a table is cut into chunks: its surrogate key if it has one, else its key if any."""
    names = (part.surrogate,) if part.surrogate else schema.key
    return ChunkKey(schema.table, tuple(schema.column(name) for name in names), part.condition, part.select)


def find_bounds(
    connection: DriverConnection, schema: TableSchema, settings: ApplySettings, part: TableSnapshot
) -> list[Bound]:
    """Return the keys that end the chunks of a table, except the last chunk's. A table of one chunk has none."""
    cut = chunk_key(schema, part)
    if part.select or not cut.columns:
        return []
    return connection.chunk_bounds(cut, _rows_per_chunk(connection, schema, settings, cut))


@dataclass(frozen=True)
class ChunkReader:
    """The chunks of one table of a snapshot, at the source."""

    spark: SparkSession
    source: JdbcSource
    schema: TableSchema
    part: TableSnapshot

    def chunks(self, span: ChunkSpan, how: Fetch) -> DataFrame:
        """Return the rows of a chunk span as the source's columns C0..Cn, and `chunk`: one partition per chunk."""
        cut = chunk_key(self.schema, self.part)
        predicates = [chunk_predicate(cut.of_rows, self.part.bounds, chunk) for chunk in _chunks(span)]
        rows = self.source.parts(self.spark, table_rows(self.schema, cut), predicates, how)
        # JDBC reads each chunk as one partition, so its number must be taken before coalesce() joins partitions.
        return rows.select("*", (F.spark_partition_id() + span.first).alias("chunk"))

    @failpoint("read_chunk_rows")
    def rows(self, span: ChunkSpan, how: Fetch, readers: int) -> DataFrame:
        """Return the rows of a chunk span as `row` and `chunk`: one partition per reader, with one or more chunks."""
        row = row_struct(self.schema, "C").cast(row_type(self.schema))
        return self.chunks(span, how).select(row.alias("row"), "chunk").coalesce(readers)

    @failpoint("count_chunks")
    def counts(self, span: ChunkSpan, readers: int) -> dict[int, int]:
        """Return the rows that the source counts in each chunk. Each reader has a connection.

        The driver's own connections run the counts: for a frame Spark would also query the columns.
        """
        shares = [_chunks(span)[reader::readers] for reader in range(readers)]
        with ThreadPoolExecutor(readers) as pool:
            counted = pool.map(self._counts, filter(None, shares))
            return dict(chunk_and_rows for counts in counted for chunk_and_rows in counts)

    def _counts(self, chunks: range) -> list[tuple[int, int]]:
        """Return chunks with their numbers of rows. A statement counts several."""
        cut = chunk_key(self.schema, self.part)
        groups = (chunks[start : start + COUNTED_AT_ONCE] for start in range(0, len(chunks), COUNTED_AT_ONCE))
        selects = (
            count_rows(cut, {chunk: chunk_predicate(cut, self.part.bounds, chunk) for chunk in group})
            for group in groups
        )
        with driver_connection(self.spark, self.source) as connection:
            rows = [row for select in selects for row in connection.text_rows(select)]
        return [(int(chunk or 0), int(counted or 0)) for chunk, counted in rows]


def surviving(
    staged: DataFrame, schema: TableSchema, window: DataFrame, counts: BatchCounts, effects: DataFrame
) -> DataFrame:
    """Return the staged rows (`row`, `chunk`) whose key has no net effect in the window, one row per key.

    A key with events but without a known effect keeps its staged row: only that row shows what the key holds.
    A scan may meet such a key twice if rows moved during it. Both rows are equal.
    It is an action if the window has keys with several events.
    """
    rows = staged.withColumn("key", key_struct(schema, "row"))
    rows = rows.join(if_few_to_all(effects.select("key"), counts.events), "key", "left_anti")
    unknown = hot_keys(window).join(effects, "key", "left_anti").localCheckpoint() if counts.hot_keys else None
    if unknown is not None and not unknown.isEmpty():
        unique = rows.join(if_few_to_all(unknown, counts.events), "key", "left_semi").dropDuplicates(["key"])
        rows = rows.join(if_few_to_all(unknown, counts.events), "key", "left_anti").unionByName(unique)
    return rows.select("row", "chunk")


@failpoint("check_counts")
def check_counts(
    connection: DriverConnection, task: TableTask, part: TableSnapshot, chunk_range: ChunkRange, window: LsnRange
) -> None:
    """Check that the source counts as many rows in each chunk as were read, except what changes in the window explain.

    With a condition or a select a difference is only logged.

    :raises SourceError: when the changes do not explain the difference, and the table is read as a whole.
    """
    unequal = {
        number: chunk
        for number, chunk in enumerate(chunk_range.counts, chunk_range.first)
        if chunk.rows_counted != chunk.rows_read
    }
    moves = {} if window.empty else _moves(connection, task, part, unequal, window)
    wrong = [
        number for number, chunk in unequal.items() if abs(chunk.rows_counted - chunk.rows_read) > moves.get(number, 0)
    ]
    if not wrong:
        return
    first, more = wrong[0], len(wrong) - 1
    problem = (
        f"chunk {first} was read with {unequal[first].rows_read} rows, the source counts "
        f"{unequal[first].rows_counted}, and its changes meanwhile explain only {moves.get(first, 0)}"
        f"{f' (so it is with {more} more of the group)' if more else ''}"
    )
    if part.condition or part.select:
        # They may use the clock or other tables. Then rows come and go without any change of the table.
        log_progress(
            f"table={part.table} snapshot={chunk_range.snapshot}: {problem}; its condition or select may be why"
        )
        return
    raise SourceError(
        f"{part.table}: {problem}",
        "The next tick reads its group again. If it stays so, the columns that chunks are cut by compare unlike "
        "they sort: name a surrogate key.",
    )


def check_part(connection: DriverConnection, schema: TableSchema, part: TableSnapshot) -> None:
    """Check at the source that the condition, the select and the surrogate key of a table snapshot can be used.

    :raises SignalError: when the source refuses the condition or the select, or the table of a select has no key.
        Also when the surrogate key is not a captured column with unique values and no nulls.
    """
    if part.condition:
        _check_condition(connection, schema, part)
    if part.select:
        _check_select(connection, schema, part)
    if part.surrogate:
        _check_surrogate(connection, schema, part)


def _moves(
    connection: DriverConnection,
    task: TableTask,
    part: TableSnapshot,
    chunks: Mapping[int, ChunkCounts],
    window: LsnRange,
) -> dict[int, int]:
    """Return how many rows the changes in the window may have added to each chunk, or removed from it."""
    cut, capture = chunk_key(task.schema, part), task.capture
    by_chunk = {
        number: chunk_moves(task.schema, capture, cut, chunk.low, chunk.high) for number, chunk in chunks.items()
    }
    numbers = [*by_chunk]
    moves: dict[int, int] = {}
    for start in range(0, len(numbers), COUNTED_AT_ONCE):
        group = numbers[start : start + COUNTED_AT_ONCE]
        [counts] = connection.text_rows(count_moves(capture, window, [by_chunk[number] for number in group]).text)
        moves |= {number: int(count or 0) for number, count in zip(group, counts, strict=True)}
    return moves


def _chunks(span: ChunkSpan) -> range:
    return range(span.first, span.last + 1)


def _rows_per_chunk(connection: DriverConnection, schema: TableSchema, settings: ApplySettings, cut: ChunkKey) -> int:
    """Return the rows of a chunk: as many as are set, or as take the bytes that are set."""
    chunk_bytes = settings.snapshot_chunk_bytes
    measured = connection.text_rows(row_bytes(schema, cut)) if chunk_bytes else []
    if not (chunk_bytes and measured):
        return settings.snapshot_chunk_rows
    return max(1, int(chunk_bytes / max(1.0, float(measured[0][0] or 1))))


def _check_condition(connection: DriverConnection, schema: TableSchema, part: TableSnapshot) -> None:
    try:
        connection.text_rows(condition_check(schema, part.condition))
    except Exception as error:
        only = "" if schema.key else " The table has no key, so it may name captured columns only."
        raise SignalError(
            f"the source refuses the condition for {part.table}: {describe(error)}",
            f"Correct it: its columns and its syntax are the source's.{only}",
        ) from error


def _check_select(connection: DriverConnection, schema: TableSchema, part: TableSnapshot) -> None:
    if not schema.key:
        raise SignalError(
            f"{part.table} has no key, so of equal rows a select may read some only",
            "Give a condition on its captured columns instead.",
        )
    try:
        connection.text_rows(select_check(schema, part.select))
    except Exception as error:
        raise SignalError(
            f"the source refuses the select for {part.table}: {describe(error)}",
            f"Correct it; it must yield the captured columns: {', '.join(schema.names)}.",
        ) from error


def _check_surrogate(connection: DriverConnection, schema: TableSchema, part: TableSnapshot) -> None:
    if not schema.key:
        raise SignalError(
            f"{part.table} has no key, so it is read as a whole and not cut by {part.surrogate!r}",
            f"If its values are unique, make it the table's key with {PROPERTY}.",
        )
    if part.surrogate not in schema.names:
        raise SignalError(
            f"surrogate key {part.surrogate!r} is not a captured column of {part.table}",
            f"Its columns are {', '.join(schema.names)}.",
        )
    [[rows, values, distinct]] = connection.text_rows(surrogate_check(part.table, part.surrogate, part.condition))
    if not rows == values == distinct:
        raise SignalError(
            f"surrogate key {part.surrogate!r} of {part.table} has nulls or duplicates "
            f"({rows} rows, {values} values, {distinct} of them distinct)",
            "Name a column whose values are unique and never null, or none.",
        )
