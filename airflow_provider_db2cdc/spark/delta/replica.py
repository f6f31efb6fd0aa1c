"""The Delta tables of one source table, and the only code that writes them.

Every write has a transaction id of Delta: an appId of pipeline, table and step, and the batch number.
So Delta skips a retry. A run that another run overtook fails with ConcurrentTransactionException and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.offset.offset import restart_hint
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConcurrentRunError, TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import APPEND_ONLY, VECTORS, Place, TableDefinition, ensure_table
from airflow_provider_db2cdc.spark.delta.schema_evolution import (
    FIXED,
    TYPES,
    check_same_columns,
    checked_types,
    ends_kept,
    fit_columns,
    row_ddl,
    types_text,
)
from airflow_provider_db2cdc.spark.delta.table_io import (
    STATISTICS,
    TxnId,
    append,
    commit_with,
    delta_table,
    load,
    newest_version,
    set_properties,
    table_exists,
    table_properties,
)
from airflow_provider_db2cdc.spark.events.envelope import CHUNK_STEPS, LOG_STEPS, WRITTEN_BY, log_ddl
from airflow_provider_db2cdc.spark.events.row_multiset import COPY
from airflow_provider_db2cdc.spark.quoting import quoted
from airflow_provider_db2cdc.spark.session import SMALL_ROWS, conf_to_read
from airflow_provider_db2cdc.tick.log import log_progress

MARKS_ROWS = "spark.databricks.delta.merge.deletionVectors.persistent"
"""Delta's setting: a merge marks deleted rows of a file (true), or writes the file again (false)."""

ABANDONED, EXCLUDED = "db2cdc.abandonedBatch", "db2cdc.excludedChunks"
"""Properties of the state: the newest abandoned batch, and the newest batch that was redone without its chunk range."""


@dataclass(frozen=True)
class Replica:
    """The tables of one source table in one pipeline's layout, on one session.

    With `is_redone` an earlier try began the batch. Then an append first looks for its rows in the change log.
    `written_versions` are the versions of state and change log that this replica wrote. With `deletion_vectors` None an
    existing state keeps its own setting. With `merges_abandoned` an abandoned batch may be written to the state.
    """

    spark: SparkSession
    place: Place
    schema: TableSchema
    is_redone: bool = False
    deletion_vectors: bool | None = None
    written_versions: dict[DeltaName, list[int]] = field(default_factory=dict, compare=False)
    merges_abandoned: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of the pipeline's tables."""
        return self.place.layout

    @property
    def table(self) -> TableId:
        """The source table."""
        return self.schema.table

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the state that identify a row."""
        return self.schema.row_key if self.schema.key else (*self.schema.row_key, COPY)

    @failpoint("prepare_table")
    def prepare(self, is_begun: bool = False) -> None:
        """Create the change log and the state if they are missing. Add columns that the source has gained.

        A table without a key gets no columns unless it begins (`is_begun`): the merge would not find its old rows.

        :raises TargetError: when a table is another pipeline's or cannot be written, or a column has another type.
            Also when the source has padded values to a new length, see `checked_types`.
        """
        if not self.schema.key and table_exists(self.spark, self.layout.state(self.table)):
            check_same_columns(self.spark, self.schema, self.layout.state(self.table), is_begun)
        log = {STATISTICS: "__batch,__commit_lsn", APPEND_ONLY: "true"}
        vectors = "false" if self.deletion_vectors is False else "true"
        state = {STATISTICS: ",".join(ends_kept(self.schema)), VECTORS: vectors, TYPES: types_text(self.schema)}
        copy_ddl = "" if self.schema.key else f"{COPY} int, "
        state_ddl = f"{row_ddl(self.schema)}, {copy_ddl}__commit_lsn string, __batch bigint"
        self._keep_types(self._ensure(self.layout.state(self.table), state_ddl, state), is_begun)
        self._ensure(self.layout.changes(self.table), log_ddl(self.schema), log)
        gained = fit_columns(self.spark, self.table, self.layout.changes(self.table), log_ddl(self.schema), FIXED)
        gained += fit_columns(self.spark, self.table, self.layout.state(self.table), state_ddl)
        if gained:
            names = ", ".join(dict.fromkeys(gained))
            log_progress(f"table={self.table} gains {names} in the target: null until a row changes or is snapshotted")

    @failpoint("fence_writers")
    def fence_writers(self, batch: int) -> None:
        """Stop every later write of this batch and of earlier ones to the change log. Rows that are there stay.

        The property comes before the transaction ids. Else a step that Delta skips would believe that its own first try
        had written, and a cleared run would report missing rows. The property makes that step fail.
        """
        if batch > self._newest_batch(ABANDONED):
            set_properties(self.spark, self.layout.state(self.table), {ABANDONED: str(batch)})
        self.use_up(self.layout.changes(self.table), LOG_STEPS, batch)

    def use_up(self, name: DeltaName, steps: Iterable[str], batch: int) -> None:
        """Commit the transaction ids of steps without rows, so that Delta skips later writes with them."""
        nothing = load(self.spark, name).limit(0)
        for step in steps:
            append(nothing, name, self._txn_id(step, batch))

    @failpoint("exclude_chunks")
    def exclude_chunks(self, batch: int) -> None:
        """Stop every later write of a batch's chunk range to the change log. Rows of it that are there stay."""
        if not self.has_excluded_chunks(batch):
            set_properties(self.spark, self.layout.state(self.table), {EXCLUDED: str(batch)})
        self.use_up(self.layout.changes(self.table), CHUNK_STEPS, batch)

    def has_excluded_chunks(self, batch: int) -> bool:
        """Whether a run has redone this batch, or a later one, without its chunk range."""
        return batch <= self._newest_batch(EXCLUDED)

    @failpoint("append_changes")
    def append_changes(self, rows: DataFrame, batch: int, step: str) -> bool:
        """Append change log rows of one step of a batch. Return False if that step is already there.

        :raises TargetError: when a later plan has abandoned the batch.
        :raises ConcurrentRunError: when another run has redone the batch without the chunk range of these rows.
        """
        is_there = self.has_written(step, batch)
        is_new = not is_there and self._append(rows, self.layout.changes(self.table), step, batch) is not None
        if not is_new:
            self._check_not_abandoned(batch)
            if step in CHUNK_STEPS and self.has_excluded_chunks(batch):
                problem = f"another run has redone batch {batch} of {self.table} without what a snapshot has read"
                raise ConcurrentRunError(problem, "Columns came since then. Leave this run: the next one reads again.")
        return is_new

    def has_written(self, step: str, batch: int) -> bool:
        """Whether the change log has rows of a step of a redone batch. Any other batch has no earlier try.

        The transaction id is not enough to know this: a person may have let Delta forget it.
        """
        return self.is_redone and not self.batch_events(batch).where(WRITTEN_BY[step]).isEmpty()

    def batch_events(self, number: int) -> DataFrame:
        """Return the change log's rows of one batch."""
        return load(self.spark, self.layout.changes(self.table)).where(F.col("__batch") == number)

    def read_rows(self, number: int) -> DataFrame:
        """Return the rows (`row`) that one batch published as `r`."""
        return self.batch_events(number).where("op = 'r'").select(F.col("after").alias("row"))

    def window(self, low_batch: int, batch: int) -> DataFrame:
        """Return the change log's rows of the batches after `low_batch`, up to and with `batch`."""
        log = load(self.spark, self.layout.changes(self.table))
        return log.where((F.col("__batch") > low_batch) & (F.col("__batch") <= batch))

    def rows(self, where: str = "") -> DataFrame:
        """Return the rows (`row`) of the state. A condition names the state `t`."""
        state = load(self.spark, self.layout.state(self.table)).alias("t")
        names = (F.col(f"t.{quoted(name)}") for name in self.schema.names)
        return (state.where(where) if where else state).select(F.struct(*names).alias("row"))

    @failpoint("fill_state")
    def append_rows(self, rows: DataFrame, batch: int) -> int | None:
        """Append rows of keys that the state does not have. Return the version, None if the batch was there already.

        :raises TargetError: as `merge` does.
        """
        numbered = rows.withColumn("__batch", F.lit(batch).cast("bigint"))
        version = self._append(numbered, self.layout.state(self.table), "state", batch)
        if version is None:
            self._check_not_abandoned(batch)
        return version

    def delete_keys(self, keys: DataFrame, batch: int, kept: DataFrame | None = None) -> None:
        """Delete each row of these keys (columns of `key_names`), before what the change log has of them is written.

        The same commit inserts the rows that are `kept`. They match no row, so that they are not deleted.
        """
        state = load(self.spark, self.layout.state(self.table))
        rows = (state.limit(0) if kept is None else kept).withColumn("__kept", F.lit(True))
        source = keys.withColumn("__kept", F.lit(False)).unionByName(rows, allowMissingColumns=True)
        same = " AND ".join(["NOT s.__kept", *(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in keys.columns)])
        merge = delta_table(self.spark, self.layout.state(self.table)).alias("t").merge(source.alias("s"), same)
        values = {quoted(name): f"s.{quoted(name)}" for name in state.columns}
        write = merge.whenMatchedDelete().whenNotMatchedInsert("s.__kept", values=dict(values))
        commit_with(self.spark, self._txn_id("repair", batch), write.execute)

    def refill(self, rows: DataFrame, batch: int) -> None:
        """Append rows (columns of the state) that the state has lost, before `batch` starts the table again."""
        self._append(rows, self.layout.state(self.table), "refill", batch)

    @failpoint("merge_state")
    def merge(self, effects: DataFrame, batch: int, bounds: str, held: int | None) -> tuple[int | None, int | None]:
        """Merge effects (row columns, `__commit_lsn`, `__present`) of unique keys. `bounds` limits the files to read.

        A row keeps its `__batch`, if it has one. Without a key, `__copy` numbers equal rows. `held` is the number of
        rows of the state, or None. Files of few rows are written again: that is faster than marking deleted rows.

        Returns by how many rows the state grew, and its version. Both are None if the batch was merged before.

        :raises TargetError: when a later plan has abandoned the batch.
        """
        keys = [f"t.{quoted(name)} <=> s.{quoted(name)}" for name in self.key_names]
        columns = {quoted(name): f"s.{quoted(name)}" for name in (*self.key_names, *self.schema.names, "__commit_lsn")}
        columns["__batch"] = "s.__batch" if "__batch" in effects.columns else f"{batch}L"
        merge = (
            delta_table(self.spark, self.layout.state(self.table))
            .alias("t")
            .merge(effects.alias("s"), " AND ".join([*keys, *([bounds] if bounds else [])]))
            .whenMatchedDelete("NOT s.__present")
            .whenMatchedUpdate(set=dict(columns))
            .whenNotMatchedInsert("s.__present", values=dict(columns))
        )
        conf = {} if held is None else {MARKS_ROWS: "false"} if held <= SMALL_ROWS else conf_to_read(held)
        done, version = commit_with(self.spark, self._txn_id("state", batch), lambda: merge.execute().first(), conf)
        if version is None:
            self._check_not_abandoned(batch)
        self._record_version(self.layout.state(self.table), version)
        return None if done is None else int(done["num_inserted_rows"]) - int(done["num_deleted_rows"]), version

    def has_no_rows(self, bounds: str) -> bool:
        """Whether the state has no row within bounds (see `key_bounds`). Without bounds: no row at all."""
        state = load(self.spark, self.layout.state(self.table)).alias("t")
        return (state.where(bounds) if bounds else state).isEmpty()

    def is_empty(self, last: AppliedBatch | None) -> bool:
        """Whether the state has no row. The state is queried unless its last applied batch left rows.

        An unfinished batch, or a restore of the table, may have left rows that no applied batch counts.
        """
        return (last is None or last.rows == 0) and (self.newest_version() == 0 or self.has_no_rows(""))

    def newest_version(self) -> int:
        """Return the state's newest version."""
        return newest_version(self.spark, self.layout.state(self.table))

    def _append(self, rows: DataFrame, name: DeltaName, step: str, batch: int) -> int | None:
        version = append(rows, name, self._txn_id(step, batch))
        self._record_version(name, version)
        return version

    def _record_version(self, name: DeltaName, version: int | None) -> None:
        if version is not None:
            self.written_versions.setdefault(name, []).append(version)

    def _newest_batch(self, name: str) -> int:
        """Return the newest batch that a property of the state names, 0 for none."""
        return int(table_properties(self.spark, self.layout.state(self.table)).get(name, 0))

    def _check_not_abandoned(self, batch: int) -> None:
        if not self.merges_abandoned and batch <= self._newest_batch(ABANDONED):
            raise TargetError(
                f"{self.table}: a later plan has given up batch {batch}, to begin the table again",
                "Leave this run, or clear all of its tasks, the plan too. If no run has begun the table again since, "
                f"have it done by {restart_hint(self.table)}.",
            )

    def _txn_id(self, step: str, batch: int) -> TxnId:
        return f"db2cdc/{self.place.owner.pipeline}/{self.table}/{step}", batch

    def _keep_types(self, properties: Mapping[str, str], is_begun: bool) -> None:
        """Record the source's types in the state. Only a table that starts again may have changed ones."""
        known = properties.get(TYPES, "")
        now = types_text(self.schema) if is_begun else checked_types(self.schema, known)
        if now != known:
            set_properties(self.spark, self.layout.state(self.table), {TYPES: now})

    def _ensure(self, name: DeltaName, ddl: str, properties: dict[str, str]) -> Mapping[str, str]:
        checked = () if self.deletion_vectors is None else [key for key in (VECTORS,) if key in properties]
        definition = TableDefinition(name, ddl, self.schema.names, properties, checked)
        return ensure_table(self.spark, self.place.owner, definition)
