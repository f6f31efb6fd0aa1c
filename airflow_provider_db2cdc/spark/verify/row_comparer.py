"""The comparison of rows with the current state: first by one checksum, and if that differs, by key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import Bound, ChunkSpan, TableSnapshot, chunk_bounds
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.cdc.types import sorts_alike
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, Comparison
from airflow_provider_db2cdc.spark.events.broadcast import BROADCAST_KEYS
from airflow_provider_db2cdc.spark.events.envelope import row_values
from airflow_provider_db2cdc.spark.events.state_rows import key_range
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import ChunkReader
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch
from airflow_provider_db2cdc.spark.verify.changed_keys import changed_keys
from airflow_provider_db2cdc.spark.verify.row_hash import Checksum, checksum, hashed
from airflow_provider_db2cdc.spark.verify.state import States
from airflow_provider_db2cdc.verify.ports import StatePosition, Totals

MISSING, SURPLUS, DIFFERENT = "missing", "surplus", "different"


@dataclass(frozen=True)
class ReadRows:
    """Hashed rows (`key`, `hash`, `chunk`) of a chunk span, and their checksum."""

    rows: DataFrame
    checksum: Checksum
    table_snapshot: TableSnapshot
    span: ChunkSpan

    @property
    def ends(self) -> tuple[Bound, Bound]:
        """The key that the chunks begin after, and the key that they end with. Open ends are empty."""
        first, last = (chunk_bounds(self.table_snapshot, chunk) for chunk in (self.span.first, self.span.last))
        return first[0], last[1]


@dataclass(frozen=True)
class RowComparer:
    """Compare rows by their hashes.

    Only keys and hashes of the source's rows are kept, until the comparison is over. They are kept in blocks that
    Spark cannot compute again: a second read would show later commits.
    """

    states: States

    def check_filled(self, task: TableTask) -> None:
        """Check the target's tables."""
        self.states.check_filled(task)

    def position(self, task: TableTask) -> StatePosition:
        """Return the state's newest version."""
        return self.states.position(task)

    @contextmanager
    def read(self, task: TableTask, table_snapshot: TableSnapshot, span: ChunkSpan) -> Iterator[ReadRows]:
        """Read chunks in parallel, one partition per reader."""
        settings = self.states.settings
        session = self.states.session(task, (span.last - span.first + 1) * settings.snapshot_chunk_rows)
        reader = ChunkReader(session, self.states.source, task.schema, table_snapshot)
        fetch = Fetch(settings.snapshot_fetch_rows, settings.snapshot_isolation)
        read = hashed(reader.chunks(span, fetch), task.schema, row_values(task.schema, "C"), "chunk")
        kept = read.coalesce(settings.parallel_reads).localCheckpoint(eager=False)
        try:
            yield ReadRows(kept, checksum(kept), table_snapshot, span)
        finally:
            _release(kept)

    def totals(self, task: TableTask, rows: ReadRows, position: StatePosition) -> Totals:
        """Compare checksums: one scan of the state's rows, without a shuffle."""
        state = checksum(self._state_rows(task, rows, position))
        return Totals(position, rows.checksum.rows, state.rows, rows.checksum == state)

    def compare(
        self,
        task: TableTask,
        rows: ReadRows,
        totals: Totals,
        window: LsnRange,
        suspects: DataFrame | None,
    ) -> tuple[Comparison, DataFrame]:
        """Compare by key, by a full join of keys and hashes."""
        settings = self.states.settings
        session = self.states.session(task, rows.checksum.rows)
        changed = changed_keys(session, self.states.source, task, window, Fetch(settings.query_fetch_rows))
        within = self._within(task, rows)
        in_range = changed.select("key.*").alias("t").where(within) if within else changed
        keys_changed = in_range.count()
        left_out = F.broadcast(changed) if changed.count() <= BROADCAST_KEYS else changed
        source, state = (
            frame.join(left_out, "key", "left_anti")
            for frame in (rows.rows, self._state_rows(task, rows, totals.position))
        )
        differing = _differing(source, state)
        if suspects is not None:
            differing = differing.join(suspects.select("key").distinct(), "key", "left_semi")
        found = differing.localCheckpoint()
        differences = _by_chunk(found, task.schema, rows)
        return Comparison(totals.source_rows, totals.state_rows, keys_changed, differences), found

    def _state_rows(self, task: TableTask, rows: ReadRows, position: StatePosition) -> DataFrame:
        session = self.states.session(task, rows.checksum.rows)
        state = self.states.rows(session, task, position.version, self._within(task, rows))
        return hashed(state, task.schema, self.states.values(task))

    def _within(self, task: TableTask, rows: ReadRows) -> str:
        low, high = rows.ends
        return key_range(task.schema, low, high) if low or high else ""


def _differing(source: DataFrame, state: DataFrame) -> DataFrame:
    """Return the keys (`key`, `kind`, `chunk`) of rows that one side lacks, or that differ."""
    joined = source.alias("s").join(state.alias("t"), F.col("s.key") == F.col("t.key"), "full")
    kind = F.when(F.col("t.hash").isNull(), MISSING).when(F.col("s.hash").isNull(), SURPLUS).otherwise(DIFFERENT)
    return joined.where(~F.col("s.hash").eqNullSafe(F.col("t.hash"))).select(
        F.coalesce("s.key", "t.key").alias("key"), kind.alias("kind"), F.col("s.chunk").alias("chunk")
    )


def _by_chunk(differing: DataFrame, schema: TableSchema, rows: ReadRows) -> tuple[ChunkDifference, ...]:
    """Return the differences of each chunk.

    Where Spark sorts keys differently from the source, it does not know the chunk of a surplus row. Then they are those
    of the whole span.
    """
    first, last = rows.span.first, rows.span.last
    is_cut = sorts_alike(map(schema.column, schema.key))
    chunk = F.coalesce("__chunk", _chunk_of_key(schema, rows)) if is_cut else F.lit(first)
    # Columns of the key may have any names, except those that begin with two underscores.
    keys = differing.select("key.*", F.col("kind").alias("__kind"), F.col("chunk").alias("__chunk")).alias("t")
    counted: dict[int, dict[str, int]] = {}
    for row in keys.groupBy(chunk.alias("__at"), "__kind").count().collect():
        counted.setdefault(int(row["__at"]), {})[row["__kind"]] = int(row["count"])
    return tuple(
        ChunkDifference(
            number,
            number if is_cut else last,
            *(chunk_bounds(rows.table_snapshot, number) if is_cut else rows.ends),
            *(kinds.get(kind, 0) for kind in (MISSING, SURPLUS, DIFFERENT)),
        )
        for number, kinds in sorted(counted.items())
    )


def _chunk_of_key(schema: TableSchema, rows: ReadRows) -> Column:
    """Return the number of the chunk that a key, as columns of `t`, lies in."""
    numbers = range(rows.span.first, rows.span.last)
    ends = {number: key_range(schema, (), chunk_bounds(rows.table_snapshot, number)[1]) for number in numbers}
    cases = " ".join(f"WHEN {end} THEN {number}" for number, end in ends.items())
    return F.expr(f"CASE {cases} ELSE {rows.span.last} END" if cases else str(rows.span.last))


def _release(rows: DataFrame) -> None:
    """Free the storage of checkpointed rows at once. By itself Spark frees it after a garbage collection."""
    rows._jdf.queryExecution().analyzed().rdd().unpersist(False)
