"""Change rows as Debezium's envelopes: the rule of `cdc.event.change_event`, applied to frames without a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.event.fold import EVENT
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.cdc.types import TypeMapping, map_type
from airflow_provider_db2cdc.spark.quoting import quoted
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

BARE_UPDATE = "db2cdc: an update row without its before image"
"""The error text of a read that meets such a row and must not accept it."""

TRANSACTION_TYPE = "struct<id string, total_order bigint, data_collection_order bigint>"

CHUNK_STEPS = ("deletes", "reads")
"""The steps that write a chunk range into the change log."""

LOG_STEPS = ("changes", *CHUNK_STEPS)
"""All steps that write into the change log."""

WRITTEN_BY = {
    "changes": "source.snapshot = 'false'",
    "deletes": "op = 'd' AND source.snapshot <> 'false'",
    "reads": "op = 'r'",
}
"""The condition that a step's rows meet in the change log."""


def row_struct(schema: TableSchema, alias: str) -> Column:
    """Return the columns C0..Cn (or B0..Bn) as one struct of the table's columns in their Delta types."""
    mappings = [map_type(schema.table, column) for column in schema.columns]
    fields = [
        _value(f"{alias}{index}", mapping).alias(column.name)
        for index, (column, mapping) in enumerate(zip(schema.columns, mappings, strict=True))
    ]
    return F.struct(*fields)


def key_struct(schema: TableSchema, row: str) -> Column:
    """Return the key columns of a row struct as a struct; null for a table without a key."""
    if not schema.key:
        return F.lit(None).cast(NO_KEY)
    return F.struct(*(F.col(row).getField(name).alias(name) for name in schema.key))


def lsn_text(column: str) -> Column:
    """Return LSN bytes as the text that `cdc.lsn.Lsn` writes."""
    digits = F.lower(F.hex(F.col(column)))
    return F.concat_ws(":", F.substring(digits, 1, 8), F.substring(digits, 9, 8), F.substring(digits, 17, 32))


def paired(
    rows: DataFrame,
    schema: TableSchema,
    detection: KeyChangeDetection,
    before_images: bool,
    bare_updates: bool,
    one_row: bool = False,
) -> DataFrame:
    """Return the events of change rows: commit, intent, op, key, before, after, newkey, oldkey.

    `rows` must be one partition of whole commits. Then the windows below need no shuffle.
    A U row without its before image is an event with `bare_updates`, else it fails the job with BARE_UPDATE.
    With `one_row` an update is one row with both images: only its own halves are paired.
    """
    spread = rows.select(
        lsn_text("CC").alias("commit"),
        lsn_text("CI").alias("intent"),
        F.col("CO").alias("o"),
        row_struct(schema, "C").alias("row"),
        (row_struct(schema, "B") if before_images else F.lit(None)).alias("prior"),
    )
    if before_images:
        spread = _as_delete_and_insert(spread, schema)
    order = Window.partitionBy("commit").orderBy("intent", "half")
    halves = spread if before_images else spread.withColumn("half", F.lit(0))

    def has_neighbour(side: Callable[[str], Column], op: str) -> Column:
        is_op = side("o").over(order) == op
        return is_op & (side("intent").over(order) == F.col("intent")) if one_row else is_op

    is_after_delete, is_followed = has_neighbour(F.lag, "D"), has_neighbour(F.lead, "I")
    paired_rows = halves.select(
        *("commit", "intent", "o", "row"),
        key_struct(schema, "row").alias("key"),
        F.when(is_after_delete, F.lag("row").over(order)).alias("old"),
        is_followed.alias("is_followed"),
        F.when(is_followed, F.lead(key_struct(schema, "row")).over(order)).alias("newkey"),
    ).withColumn("oldkey", F.when(F.col("old").isNotNull(), key_struct(schema, "old")))
    return _events(paired_rows, detection, bare_updates)


def envelopes(
    events: DataFrame, schema: TableSchema, spec: JobSpec, batch: int, times: DataFrame, at_ms: int
) -> DataFrame:
    """Return events as change log rows, each delete followed by its tombstone if the table has a key.

    `times` has the columns commit and ts_us. A commit without a row there has a null time, never the current one.
    `at_ms` is when the batch was planned: so a retry writes the same rows.
    """
    timed = events.join(times, "commit", "left")
    source = _source(schema, spec, F.col("commit"), F.col("intent"), F.col("ts_us"), "false")
    rows = timed.select("*", source.alias("source"))
    return _with_tombstones(rows, schema, spec, batch, at_ms)


def read_envelopes(
    rows: DataFrame, schema: TableSchema, spec: JobSpec, batch: int, mark: Lsn, snapshot: str, at_ms: int
) -> DataFrame:
    """Return a snapshot's rows (`row`, `chunk`) as `r` events that come after every event up to `mark`."""
    commit = F.lit(str(mark))
    last = F.lit(str(Lsn(b"\xff" * len(mark.raw))))
    source = _source(schema, spec, commit, F.lit(None).cast("string"), F.lit(at_ms * 1000), snapshot)
    events = rows.select(
        commit.alias("commit"),
        last.alias("intent"),
        F.lit("r").alias("op"),
        key_struct(schema, "row").alias("key"),
        F.lit(None).cast(rows.schema["row"].dataType).alias("before"),
        F.col("row").alias("after"),
        *(F.lit(None).cast(_key_type(schema)).alias(name) for name in ("newkey", "oldkey")),
        source.alias("source"),
        (F.lit(READ) + F.col("chunk")).alias("ordinal"),
    )
    return _log_rows(events, schema, batch, at_ms)


def swept_envelopes(
    rows: DataFrame, schema: TableSchema, spec: JobSpec, batch: int, mark: Lsn, snapshot: str, at_ms: int
) -> DataFrame:
    """Return rows (`row`) of the state that a snapshot did not find as `d` events at `mark`, with tombstones."""
    commit, last = F.lit(str(mark)), F.lit(str(Lsn(b"\xff" * len(mark.raw))))
    source = _source(schema, spec, commit, F.lit(None).cast("string"), F.lit(at_ms * 1000), snapshot)
    events = rows.select(
        commit.alias("commit"),
        last.alias("intent"),
        F.lit("d").alias("op"),
        key_struct(schema, "row").alias("key"),
        F.col("row").alias("before"),
        F.lit(None).cast(rows.schema["row"].dataType).alias("after"),
        *(F.lit(None).cast(_key_type(schema)).alias(name) for name in ("newkey", "oldkey")),
        source.alias("source"),
    )
    return _with_tombstones(events, schema, spec, batch, at_ms)


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


def _with_tombstones(rows: DataFrame, schema: TableSchema, spec: JobSpec, batch: int, at_ms: int) -> DataFrame:
    if not (spec.settings.tombstones and schema.key):
        return _log_rows(rows.withColumn("ordinal", F.lit(EVENT)), schema, batch, at_ms)
    both = F.when(F.col("op") == "d", F.array(F.lit(EVENT), F.lit(TOMBSTONE))).otherwise(F.array(F.lit(EVENT)))
    spread = rows.select("*", F.explode(both).alias("ordinal"))
    # It keeps the headers, as Debezium's does.
    blank = {name: F.when(F.col("ordinal") == EVENT, F.col(name)) for name in ("op", "before", "source")}
    return _log_rows(spread.withColumns(blank), schema, batch, at_ms)


def _key_type(schema: TableSchema) -> str:
    return row_type(schema, schema.key) if schema.key else NO_KEY


def _value(name: str, mapping: TypeMapping) -> Column:
    value = F.col(name)
    if mapping.clean == "time":
        value = F.regexp_replace(F.lpad(value.cast("string"), 6, "0"), "(..)(..)(..)", "$1:$2:$3")
    return value.cast(mapping.delta)


def _as_delete_and_insert(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Return each U row that has a before image as the D and the I that it stands for.

    A before image of only nulls does not count: such a row is older than the columns for before images.
    """
    has_prior = reduce(or_, (F.col("prior").getField(name).isNotNull() for name in schema.names))
    is_update = (F.col("o") == "U") & has_prior
    old = F.struct(F.lit(0).alias("half"), F.lit("D").alias("o"), F.col("prior").alias("row"))
    new = F.struct(F.lit(1).alias("half"), F.lit("I").alias("o"), F.col("row").alias("row"))
    same = F.struct(F.lit(0).alias("half"), F.col("o").alias("o"), F.col("row").alias("row"))
    halves = F.explode(F.when(is_update, F.array(old, new)).otherwise(F.array(same)))
    return rows.select("commit", "intent", halves.alias("h")).select("commit", "intent", "h.*")


def _events(paired_rows: DataFrame, detection: KeyChangeDetection, bare_updates: bool) -> DataFrame:
    is_old_half = (F.col("o") == "D") & F.col("is_followed") & F.col("newkey").eqNullSafe(F.col("key"))
    is_update = (F.col("o") == "I") & F.col("old").isNotNull() & F.col("oldkey").eqNullSafe(F.col("key"))
    bare = F.lit("u") if bare_updates else F.raise_error(F.lit(BARE_UPDATE)).cast("string")
    op = F.when(F.col("o") == "D", "d").when(F.col("o") == "U", bare).when(is_update, "u").otherwise("c")
    headers = F.lit(detection == "adjacent")
    return paired_rows.where(~F.coalesce(is_old_half, F.lit(False))).select(
        "commit",
        "intent",
        op.alias("op"),
        "key",
        F.when(F.col("o") == "D", F.col("row")).when(is_update, F.col("old")).alias("before"),
        F.when(F.col("o") != "D", F.col("row")).alias("after"),
        F.when(headers & (F.col("o") == "D"), F.col("newkey")).alias("newkey"),
        F.when(headers & (F.col("o") == "I") & ~is_update, F.col("oldkey")).alias("oldkey"),
    )


def _source(schema: TableSchema, spec: JobSpec, commit: Column, change: Column, ts_us: Column, snapshot: str) -> Column:
    fields = {
        "version": F.lit(__version__),
        "connector": F.lit(CONNECTOR),
        "name": F.lit(spec.source.server_name),
        "ts_ms": F.floor(ts_us / 1000),
        "snapshot": F.lit(snapshot),
        "db": F.lit(spec.source.database),
        "sequence": F.lit(None),
        "ts_us": ts_us,
        "ts_ns": ts_us * 1000,
        "schema": F.lit(schema.table.schema),
        "table": F.lit(schema.table.name),
        "change_lsn": change,
        "commit_lsn": commit,
    }
    return F.struct(*(value.alias(name) for name, value in fields.items())).cast(SOURCE_TYPE)


def _log_rows(events: DataFrame, schema: TableSchema, batch: int, at_ms: int) -> DataFrame:
    is_event = F.col("ordinal") != TOMBSTONE
    key = _key_type(schema)
    headers = F.struct(F.col("newkey").cast(key).alias("newkey"), F.col("oldkey").cast(key).alias("oldkey"))
    has_header = F.col("newkey").isNotNull() | F.col("oldkey").isNotNull()
    return events.select(
        F.lit(batch).cast("bigint").alias("__batch"),
        F.col("commit").alias("__commit_lsn"),
        F.col("intent").alias("__intent_lsn"),
        F.col("ordinal").cast("int").alias("__ordinal"),
        F.col("key").cast(key).alias("key"),
        F.col("before").cast(row_type(schema)).alias("before"),
        F.col("after").cast(row_type(schema)).alias("after"),
        "source",
        "op",
        F.when(is_event, F.lit(at_ms).cast("bigint")).alias("ts_ms"),
        F.when(is_event, F.lit(at_ms * 1_000).cast("bigint")).alias("ts_us"),
        F.when(is_event, F.lit(at_ms * 1_000_000).cast("bigint")).alias("ts_ns"),
        F.lit(None).cast(TRANSACTION_TYPE).alias("transaction"),
        F.when(has_header, headers).alias("headers"),
    )
