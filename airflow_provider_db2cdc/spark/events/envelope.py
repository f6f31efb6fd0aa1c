"""The change log's rows: Debezium's envelopes, and their schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.fold import EVENT
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.cdc.types import TypeMapping, map_type
from airflow_provider_db2cdc.spark.events.commit_time import utc_us
from airflow_provider_db2cdc.spark.quoting import quoted, text_literal
from airflow_provider_db2cdc.version import __version__

CONNECTOR = "db2"
TOMBSTONE, READ = 1, 2
"""`__ordinal` of a tombstone after an EVENT, and of the `r` rows of chunk 0. Chunk n has READ + n.

A moved event (see `spark.apply.fold`) and its tombstone have greater ordinals.
"""

NO_KEY = "string"
"""The type of the column `key` of a table without a key.

It is not a struct. So the target refuses the table once the table gains a key.
"""

SOURCE_TYPE = (
    "struct<version string, connector string, name string, ts_ms bigint, snapshot string, db string, sequence string, "
    "ts_us bigint, ts_ns bigint, schema string, table string, change_lsn string, commit_lsn string>"
)
"""The source struct of Debezium's Db2 connector, which leaves `sequence` null."""

SNAPSHOT_FIELD: Mapping[SnapshotKind, str] = {
    "initial": "true",
    "blocking": "true",
    "incremental": "incremental",
    "heal": "incremental",
}
"""The value of `source.snapshot` in a snapshot's events. Debezium has no value for a heal."""

TRANSACTION_TYPE = "struct<id string, total_order bigint, data_collection_order bigint>"

CHUNK_STEPS = ("deletes", "reads")
"""The steps that write a chunk range into the change log."""

LOG_STEPS = ("changes", *CHUNK_STEPS, "backfill")
"""All steps that write into the change log."""

WRITTEN_BY = {
    "changes": "source.snapshot = 'false'",
    "deletes": "op = 'd' AND source.snapshot <> 'false'",
    "reads": "op = 'r'",
    "backfill": "false",
}
"""The condition that a step's rows meet in the change log. Those of a backfill stand under other batches."""


def row_values(schema: TableSchema, alias: str) -> list[Column]:
    """Return the columns C0..Cn (or B0..Bn) with the names of the table's columns, in their Delta types."""
    return [F.expr(text) for text in _row_values(schema, alias)]


def row_struct(schema: TableSchema, alias: str) -> Column:
    """Return the columns C0..Cn (or B0..Bn) as one struct of the table's columns in their Delta types."""
    return F.expr(f"struct({', '.join(_row_values(schema, alias))})")


def key_struct(schema: TableSchema, row: str) -> Column:
    """Return the key columns of a row struct as a struct; null for a table without a key."""
    return F.expr(key_text(schema, row))


def key_text(schema: TableSchema, row: str) -> str:
    """Return the expression of `key_struct`."""
    if not schema.key:
        return f"CAST(NULL AS {NO_KEY})"
    return f"struct({', '.join(f'{row}.{quoted(name)} AS {quoted(name)}' for name in schema.key)})"


def lsn_text(column: str) -> Column:
    """Return LSN bytes as the text that `cdc.lsn.Lsn` writes."""
    digits = F.lower(F.hex(F.col(column)))
    return F.concat_ws(":", F.substring(digits, 1, 8), F.substring(digits, 9, 8), F.substring(digits, 17, 32))


@dataclass(frozen=True)
class Envelopes:
    """The events of one batch of a table as rows of its change log.

    Their time is when the batch was planned, so that a retry writes the same rows.
    """

    schema: TableSchema
    spec: JobSpec
    planned: PlannedBatch

    def of_changes(self, events: DataFrame) -> DataFrame:
        """Return paired events of the source, each delete followed by its tombstone if the table has a key.

        A commit without a known time keeps a null time, never the current one.
        """
        timed = events.withColumn("ts_us", utc_us(self.spec.source_clock))
        source = self._source("commit", "intent", "ts_us", "false")
        return self._with_tombstones(timed.select("*", source.alias("source")))

    def of_reads(self, rows: DataFrame) -> DataFrame:
        """Return a snapshot's rows (`row`, `chunk`) as `r` events that come after every event of the batch."""
        return self._log_rows(self._of_snapshot("r", rows).withColumn("ordinal", F.lit(READ) + F.col("chunk")))

    def of_deletes(self, rows: DataFrame) -> DataFrame:
        """Return rows (`row`) that a snapshot did not find as `d` events after every event of the batch."""
        return self._with_tombstones(self._of_snapshot("d", rows))

    def _of_snapshot(self, op: str, rows: DataFrame) -> DataFrame:
        commit, at_us = str(self.planned.upto), self.planned.planned_at_ms * 1000
        assert self.planned.chunk_range is not None
        snapshot = SNAPSHOT_FIELD[self.planned.chunk_range.snapshot_kind]
        row, no_row = F.col("row"), F.lit(None).cast(rows.schema["row"].dataType)
        return rows.select(
            "*",
            F.lit(commit).alias("commit"),
            F.lit(str(Lsn(b"\xff" * len(self.planned.upto.raw)))).alias("intent"),
            F.lit(op).alias("op"),
            key_struct(self.schema, "row").alias("key"),
            (row if op == "d" else no_row).alias("before"),
            (no_row if op == "d" else row).alias("after"),
            *(F.lit(None).cast(_key_type(self.schema)).alias(name) for name in ("newkey", "oldkey")),
            self._source(text_literal(commit), "NULL", f"{at_us}L", snapshot).alias("source"),
        )

    def _with_tombstones(self, rows: DataFrame) -> DataFrame:
        if not (self.spec.settings.tombstones and self.schema.key):
            return self._log_rows(rows.withColumn("ordinal", F.lit(EVENT)))
        both = F.when(F.col("op") == "d", F.array(F.lit(EVENT), F.lit(TOMBSTONE))).otherwise(F.array(F.lit(EVENT)))
        spread = rows.select("*", F.explode(both).alias("ordinal"))
        # It keeps the headers, as Debezium's does.
        blank = {name: F.when(F.col("ordinal") == EVENT, F.col(name)) for name in ("op", "before", "source")}
        return self._log_rows(spread.withColumns(blank))

    def _source(self, commit: str, change: str, ts_us: str, snapshot: str) -> Column:
        fields = {
            "version": text_literal(__version__),
            "connector": text_literal(CONNECTOR),
            "name": text_literal(self.spec.source.server_name),
            "ts_ms": f"floor({ts_us} / 1000)",
            "snapshot": text_literal(snapshot),
            "db": text_literal(self.spec.source.database),
            "sequence": "NULL",
            "ts_us": ts_us,
            "ts_ns": f"{ts_us} * 1000",
            "schema": text_literal(self.schema.table.schema),
            "table": text_literal(self.schema.table.name),
            "change_lsn": change,
            "commit_lsn": commit,
        }
        named = ", ".join(f"{value} AS {name}" for name, value in fields.items())
        return F.expr(f"CAST(struct({named}) AS {SOURCE_TYPE})")

    def _log_rows(self, events: DataFrame) -> DataFrame:
        key, row, at_ms = _key_type(self.schema), row_type(self.schema), self.planned.planned_at_ms
        headers = ", ".join(f"CAST({name} AS {key}) AS {name}" for name in ("newkey", "oldkey"))
        times = {"ts_ms": at_ms, "ts_us": at_ms * 1_000, "ts_ns": at_ms * 1_000_000}
        return events.selectExpr(
            f"{self.planned.batch}L AS __batch",
            "commit AS __commit_lsn",
            "intent AS __intent_lsn",
            "CAST(ordinal AS int) AS __ordinal",
            f"CAST(key AS {key}) AS key",
            f"CAST(before AS {row}) AS before",
            f"CAST(after AS {row}) AS after",
            "source",
            "op",
            *(f"CASE WHEN ordinal <> {TOMBSTONE} THEN {at}L END AS {name}" for name, at in times.items()),
            f"CAST(NULL AS {TRANSACTION_TYPE}) AS transaction",
            f"CASE WHEN newkey IS NOT NULL OR oldkey IS NOT NULL THEN struct({headers}) END AS headers",
        )


def row_type(schema: TableSchema, names: Sequence[str] = ()) -> str:
    """Return the DDL type of a row struct, or of the columns in `names`, in their order."""
    columns = [schema.column(name) for name in names] if names else schema.columns
    fields = [f"{quoted(column.name)}: {map_type(schema.table, column).delta}" for column in columns]
    return f"struct<{', '.join(fields)}>"


def float_names(schema: TableSchema) -> list[str]:
    """Return the floating-point columns. Spark takes -0.0 for 0.0, and only the values as text differ."""
    return [column.name for column in schema.columns if map_type(schema.table, column).delta in ("float", "double")]


def signed_images() -> Column:
    """Return an event's images as rows of `sign` and `image`: the before image with -1, the after image with 1."""
    removed = F.struct(F.lit(-1).alias("sign"), F.col("before").alias("image"))
    added = F.struct(F.lit(1).alias("sign"), F.col("after").alias("image"))
    return F.explode(F.filter(F.array(removed, added), lambda signed: signed["image"].isNotNull()))


def log_ddl(schema: TableSchema) -> str:
    """Return the DDL of the columns of the table's change log."""
    key, row = _key_type(schema), row_type(schema)
    return (
        f"__batch bigint, __commit_lsn string, __intent_lsn string, __ordinal int, key {key}, before {row}, "
        f"after {row}, source {SOURCE_TYPE}, op string, ts_ms bigint, ts_us bigint, ts_ns bigint, "
        f"transaction {TRANSACTION_TYPE}, headers struct<newkey: {key}, oldkey: {key}>"
    )


def _key_type(schema: TableSchema) -> str:
    return row_type(schema, schema.key) if schema.key else NO_KEY


def _row_values(schema: TableSchema, alias: str) -> list[str]:
    """Return the columns as texts: each call of a function on a column is a call to the JVM."""
    return [
        f"{_value(f'{alias}{index}', map_type(schema.table, column))} AS {quoted(column.name)}"
        for index, column in enumerate(schema.columns)
    ]


def _value(name: str, mapping: TypeMapping) -> str:
    if mapping.clean == "time":
        name = f"regexp_replace(lpad(CAST({name} AS string), 6, '0'), '(..)(..)(..)', '$1:$2:$3')"
    return f"CAST({name} AS {mapping.delta})"
