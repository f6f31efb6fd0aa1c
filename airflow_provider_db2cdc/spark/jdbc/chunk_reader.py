"""A snapshot's rows: read in chunks at once, and which of them the log does not override."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import ApplySettings, TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.selection.message_key import PROPERTY
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkCounts, ChunkRange, ChunkSpan, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.errors import SignalError, SourceError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.events.envelope import key_struct, row_struct, row_type
from airflow_provider_db2cdc.spark.events.net_effect import BatchCounts, hot_keys, if_few_to_all
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
"""Chunks whose rows, or changes, one statement counts."""


def chunk_key(schema: TableSchema, part: TableSnapshot) -> ChunkKey:
    """Return how a part's table is cut into chunks: by its surrogate key if one was named, else by its key if any."""
    names = (part.surrogate,) if part.surrogate else schema.key
    return ChunkKey(schema.table, tuple(schema.column(name) for name in names), part.condition, part.select)


def find_bounds(
    connection: DriverConnection, schema: TableSchema, settings: ApplySettings, part: TableSnapshot
) -> list[Bound]:
    """Return the keys that end a part's chunks, but for the last one's; none for a table that is read as one chunk."""
    cut = chunk_key(schema, part)
    if part.select or not cut.columns:
        return []
    return connection.chunk_bounds(cut, _rows_a_chunk(connection, schema, settings, cut))


@failpoint("read_chunk_rows")
def chunk_rows(
    spark: SparkSession,
    source: JdbcSource,
    schema: TableSchema,
    part: TableSnapshot,
    span: ChunkSpan,
    how: Fetch,
    readers: int,
) -> DataFrame:
    """Return the rows of some chunks as `row` and `chunk`, a partition a reader, which takes several."""
    cut = chunk_key(schema, part)
    predicates = [chunk_predicate(cut.of_rows, part.bounds, chunk) for chunk in _chunks(span)]
    rows = source.parts(spark, table_rows(schema, cut), predicates, how)
    chunk = F.spark_partition_id() + F.lit(span.first)
    # The chunk is told by the partition as JDBC has it, so before chunks are put together.
    return rows.select(row_struct(schema, "C").cast(row_type(schema)).alias("row"), chunk.alias("chunk")).coalesce(
        readers
    )


@failpoint("count_chunks")
def count_chunks(
    spark: SparkSession, source: JdbcSource, schema: TableSchema, part: TableSnapshot, span: ChunkSpan, readers: int
) -> dict[int, int]:
    """Return what the source counts of each chunk; several a statement, and a connection a reader.

    They are the driver's: for a frame Spark would also ask for its columns.
    """
    cut = chunk_key(schema, part)

    def count(chunks: range) -> list[tuple[int, int]]:
        some = (chunks[start : start + COUNTED_AT_ONCE] for start in range(0, len(chunks), COUNTED_AT_ONCE))
        selects = (count_rows(cut, {at: chunk_predicate(cut, part.bounds, at) for at in few}) for few in some)
        with driver_connection(spark, source) as connection:
            rows = [row for select in selects for row in connection.text_rows(select)]
        return [(int(chunk or 0), int(counted or 0)) for chunk, counted in rows]

    shares = [_chunks(span)[at::readers] for at in range(readers)]
    with ThreadPoolExecutor(readers) as pool:
        return dict(pair for counts in pool.map(count, filter(None, shares)) for pair in counts)


def surviving(
    staged: DataFrame, schema: TableSchema, window: DataFrame, counts: BatchCounts, effects: DataFrame
) -> DataFrame:
    """Return the staged rows (`row`, `chunk`) whose key has none of the window's net effects, one a key.

    A key with events, but without an effect, keeps its staged row: it alone knows the key's state. A scan may meet
    such a key twice, of two rows that were moved over it; both are equal. (An action, where keys have several events.)
    """
    rows = staged.withColumn("key", key_struct(schema, "row"))
    rows = rows.join(if_few_to_all(effects.select("key"), counts.events), "key", "left_anti")
    unknown = hot_keys(window).join(effects, "key", "left_anti").localCheckpoint() if counts.hot_keys else None
    if unknown is not None and not unknown.isEmpty():
        doubled = rows.join(if_few_to_all(unknown, counts.events), "key", "left_semi").dropDuplicates(["key"])
        rows = rows.join(if_few_to_all(unknown, counts.events), "key", "left_anti").unionByName(doubled)
    return rows.select("row", "chunk")


@failpoint("check_counts")
def check_counts(
    connection: DriverConnection, task: TableTask, part: TableSnapshot, chunk_range: ChunkRange, window: LsnRange
) -> None:
    """Make sure that the source counts what was read of each chunk, but for what its changes in the window explain.

    :raises SourceError: it does not, of whole chunks of the table.
    """
    unlike = {
        at: chunk
        for at, chunk in enumerate(chunk_range.counts, chunk_range.first)
        if chunk.rows_counted != chunk.rows_read
    }
    moves = {} if window.empty else _moves(connection, task, part, unlike, window)
    wrong = [at for at, chunk in unlike.items() if abs(chunk.rows_counted - chunk.rows_read) > moves.get(at, 0)]
    if not wrong:
        return
    at, more = wrong[0], len(wrong) - 1
    found = (
        f"chunk {at} was read with {unlike[at].rows_read} rows, the source counts {unlike[at].rows_counted}, and its "
        f"changes meanwhile explain only {moves.get(at, 0)}"
        f"{f' (so it is with {more} more of the group)' if more else ''}"
    )
    if part.condition or part.select:
        # They may ask for the clock, or for other tables: rows come and go there without any change.
        log_progress(f"table={part.table} snapshot={chunk_range.snapshot}: {found}; its condition or select may be why")
        return
    raise SourceError(
        f"{part.table}: {found}",
        "The next tick reads its group again. If it stays so, the columns that chunks are cut by compare unlike "
        "they sort: name a surrogate key.",
    )


def check_part(connection: DriverConnection, schema: TableSchema, part: TableSnapshot) -> None:
    """Ask the source whether a condition, or a select, and a surrogate key can be meant.

    :raises SignalError: the source refuses the condition or the select, the table of a select has no key, or the
        surrogate key is not a captured column with unique values and no nulls.
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
    """Return how many rows the changes in the window may have brought into each chunk, or taken out of it."""
    cut, capture = chunk_key(task.schema, part), task.capture
    by_chunk = {at: chunk_moves(task.schema, capture, cut, chunk.low, chunk.high) for at, chunk in chunks.items()}
    numbers = [*by_chunk]
    moves: dict[int, int] = {}
    for start in range(0, len(numbers), COUNTED_AT_ONCE):
        some = numbers[start : start + COUNTED_AT_ONCE]
        [counts] = connection.text_rows(count_moves(capture, window, [by_chunk[at] for at in some]).text)
        moves |= {at: int(count or 0) for at, count in zip(some, counts, strict=True)}
    return moves


def _chunks(span: ChunkSpan) -> range:
    return range(span.first, span.last + 1)


def _rows_a_chunk(connection: DriverConnection, schema: TableSchema, settings: ApplySettings, cut: ChunkKey) -> int:
    """Return so many rows as are set, or as take so many bytes."""
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
            f"surrogate key {part.surrogate!r} is no captured column of {part.table}",
            f"Its columns are {', '.join(schema.names)}.",
        )
    [[rows, values, distinct]] = connection.text_rows(surrogate_check(part.table, part.surrogate, part.condition))
    if not rows == values == distinct:
        raise SignalError(
            f"surrogate key {part.surrogate!r} of {part.table} has nulls or duplicates "
            f"({rows} rows, {values} values, {distinct} of them distinct)",
            "Name a column whose values are unique and never null, or none.",
        )
