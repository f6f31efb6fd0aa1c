"""Net effects of a batch of the change log: the rule of `cdc.event.net_effect`, applied to frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.events.broadcast import if_few_to_all
from airflow_provider_db2cdc.spark.events.envelope import READ, float_names, signed_images
from airflow_provider_db2cdc.spark.events.state_rows import KeyBounds, bound_sums, bounds_of_sums


@dataclass(frozen=True)
class BatchCounts:
    """Counts of a part of the change log: its events by op, and its keys with several events (hot keys).

    Recreated keys are keys that were both created and deleted.
    `last_commit` is the newest commit with a known time, as an LSN's text. `last_commit_us` is that time.
    `greatest_us` is the greatest of the known times, and `untimed` the number of keys with an event without a time.
    `keys` are the number and the bounds of the keys, None if they were not asked for.
    """

    creates: int = 0
    updates: int = 0
    deletes: int = 0
    hot_keys: int = 0
    recreated_keys: int = 0
    last_commit: str | None = None
    last_commit_us: int | None = None
    greatest_us: int | None = None
    untimed: int = 0
    keys: KeyBounds | None = None

    @property
    def events(self) -> int:
        """The number of all events."""
        return self.creates + self.updates + self.deletes


@dataclass(frozen=True)
class LoggedEvents:
    """A part of the change log, and the counts of its events.

    `is_kept` says that the rows are checkpointed, so that each query of them is cheap.
    """

    rows: DataFrame
    counts: BatchCounts
    is_kept: bool = False


@failpoint("count_batch")
def count_batch(batch: DataFrame, key: Sequence[str] = ()) -> BatchCounts:
    """Count a batch's events in one pass. With `key`, the table's key columns, also return the bounds of the keys.

    Reads do not count: they are not from the source's log. It is an action.
    """
    is_op = {name: F.sum((F.col("op") == op).cast("int")) for name, op in OPS.items()}
    by_key = (
        _events(batch)
        .groupBy("key")
        .agg(
            *(total.alias(name) for name, total in is_op.items()),
            F.max("timed").alias("last"),
            F.max("timed.ts_us").alias("greatest"),
            F.max(F.col("timed").isNull().cast("int")).alias("untimed"),
        )
    )
    changes = F.col("creates") + F.col("updates") + F.col("deletes")
    [row] = by_key.agg(
        F.count("*").alias("keys"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in OPS),
        F.coalesce(F.sum((changes > 1).cast("int")), F.lit(0)).alias("hot_keys"),
        F.coalesce(F.sum(_is_recreated().cast("int")), F.lit(0)).alias("recreated_keys"),
        F.max("last")["commit"].alias("last_commit"),
        F.max("last")["ts_us"].alias("last_commit_us"),
        F.max("greatest").alias("greatest_us"),
        F.coalesce(F.sum("untimed"), F.lit(0)).alias("untimed"),
        *bound_sums(key, "key."),
    ).collect()
    counts = {field.name: row[field.name] for field in fields(BatchCounts)}
    return BatchCounts(**{**counts, "keys": KeyBounds(row["keys"], bounds_of_sums(row, key)) if key else None})


def count_reads(batch: DataFrame) -> dict[int, int]:
    """Return the number of `r` rows of each chunk. It is an action."""
    rows = batch.where("op = 'r'").groupBy((F.col("__ordinal") - READ).alias("chunk")).count().collect()
    return {int(row["chunk"]): int(row["count"]) for row in rows}


OPS = {"creates": "c", "updates": "u", "deletes": "d"}


@failpoint("net_effects")
def net_effects(batch: DataFrame, schema: TableSchema, counts: BatchCounts) -> DataFrame:
    """Return one row for each key with a net effect: key, commit, row (None: the key has no row).

    A key with one event needs no counting: that event is its effect. So only hot keys are shuffled.
    """
    events = events_in(batch)
    if counts.hot_keys == 0:
        return _single_event_effects(events)
    hot = if_few_to_all(hot_keys(batch), counts.hot_keys)
    cold = _single_event_effects(events.join(hot, "key", "left_anti"))
    return cold.unionByName(_hot_key_effects(events.join(hot, "key", "left_semi"), schema))


def events_in(batch: DataFrame) -> DataFrame:
    """Return a batch's events (commit, intent, op, key, before, after), each at its place in the source."""
    return _events(batch).select("commit", "intent", "op", "key", "before", "after")


def hot_keys(batch: DataFrame) -> DataFrame:
    """Return the keys (`key`) with several events. Of any other key the only event is the effect."""
    return _events(batch).groupBy("key").count().where("count > 1").select("key")


def recreated_keys(batch: DataFrame) -> DataFrame:
    """Return the keys (`key`) that were both created and deleted. Only their order may mislead."""
    is_op = {name: F.sum((F.col("op") == op).cast("int")) for name, op in OPS.items()}
    by_key = _events(batch).groupBy("key").agg(*(total.alias(name) for name, total in is_op.items()))
    return by_key.where(_is_recreated()).select("key")


@failpoint("commit_effects")
def commit_effects(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the effect of each commit on each key (key, commit): `known`, `row` (None: no row), places of events.

    Images that came are counted minus images that went. If none remains, the image that came last or went first
    decides, else the effect is unknown. `last_at` is the place (intent) of the key's last event, `deleted_at` of its
    last deletion. `row_at` is the place of the last event that brought `row`, `came_at` of the last that brought any.
    """
    came = F.struct("image", "came_at")
    by_commit = (
        _by_image(events, schema)
        .groupBy("key", "commit")
        .agg(
            F.when(F.min("first")["sign"] < 0, F.min_by(came, "first")).alias("went_first"),
            F.when(F.max("last")["sign"] > 0, F.max_by(came, "last")).alias("came_last"),
            F.max_by(came, F.when(F.col("left") > 0, F.col("left"))).alias("came"),
            F.max(F.col("left") < 0).alias("went"),
            F.max("bare").alias("bare"),
            F.max("last")["intent"].alias("last_at"),
            F.max("came_at").alias("came_at"),
            F.max("deleted_at").alias("deleted_at"),
        )
    )
    unchanged = F.when(~F.col("went"), F.coalesce("came_last", "went_first"))
    outcome = F.when(F.col("bare"), F.col("came_last")).otherwise(F.coalesce("came", unchanged))
    return by_commit.withColumn("outcome", outcome).select(
        *("key", "commit"),
        (F.col("bare") | F.col("went") | F.col("outcome").isNotNull()).alias("known"),
        F.col("outcome.image").alias("row"),
        *("last_at", F.col("outcome.came_at").alias("row_at"), "came_at", "deleted_at"),
    )


def _is_recreated() -> Column:
    return (F.col("creates") > 0) & (F.col("deletes") > 0)


def _events(batch: DataFrame) -> DataFrame:
    return batch.where(F.col("op").isin([*OPS.values()])).select(
        F.col("__commit_lsn").alias("commit"),
        # The source of a moved event keeps the event's place in the change table. A snapshot's event has none there.
        F.coalesce("source.change_lsn", "__intent_lsn").alias("intent"),
        *("op", "key", "before", "after"),
        # A `d` of a snapshot has the time of the plan, which is not a commit's time.
        F.when(
            (F.col("source.snapshot") == "false") & F.col("source.ts_us").isNotNull(),
            F.struct(F.col("__commit_lsn").alias("commit"), F.col("source.ts_us").alias("ts_us")),
        ).alias("timed"),
    )


def _single_event_effects(events: DataFrame) -> DataFrame:
    """Return the net effects of keys that have one event each."""
    return events.select("key", "commit", F.col("after").alias("row"))


def _hot_key_effects(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the net effects of keys with several events: those of the last commit whose effect is known."""
    effects = commit_effects(events, schema).where("known").select("key", F.struct("commit", "row").alias("effect"))
    return effects.groupBy("key").agg(F.max_by("effect", F.col("effect.commit")).alias("e")).select("key", "e.*")


def _by_image(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return how many more copies a key has of each image after a commit (`left`), and where it came and went."""
    bare, deleted = _is_bare_update().alias("bare"), (F.col("op") == "d").alias("deleted")
    signed = events.select("key", "commit", "intent", bare, deleted, signed_images().alias("i"))
    return (
        signed.select("key", "commit", "intent", "bare", "deleted", "i.*")
        .groupBy("key", "commit", _exact("image", schema).alias("exact"))
        .agg(
            # A column that is grouped by loses the sign of its zeros.
            F.max_by("image", "intent").alias("image"),
            F.sum("sign").alias("left"),
            F.min(F.struct("intent", "sign")).alias("first"),
            F.max(F.struct("intent", "sign")).alias("last"),
            F.max("bare").alias("bare"),
            F.max(F.when(F.col("sign") > 0, F.col("intent"))).alias("came_at"),
            F.max(F.when(F.col("deleted"), F.col("intent"))).alias("deleted_at"),
        )
    )


def _exact(image: str, schema: TableSchema) -> Column:
    """Return a row struct in a form that is equal only if all bytes are."""
    row = F.col(image)
    floats = [row.getField(name).cast("string") for name in float_names(schema)]
    return F.when(row.isNotNull(), F.struct(row, *floats)) if floats else row


def _is_bare_update() -> Column:
    return (F.col("op") == "u") & F.col("before").isNull()
