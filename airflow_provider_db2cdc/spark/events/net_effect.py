"""Net effects of a batch of the change log: cdc/effect.py's rule, set by set."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.events.envelope import READ, float_names, signed_images

BROADCAST_KEYS = 200_000


@dataclass(frozen=True)
class BatchCounts:
    """What a part of the change log holds: events by op, and how many keys have more than one event.

    Recreated keys are those of them that were both created and deleted.
    `last_commit` is the newest commit whose time is known, as an LSN's text, and `last_commit_us` that time.
    """

    creates: int = 0
    updates: int = 0
    deletes: int = 0
    hot_keys: int = 0
    recreated_keys: int = 0
    last_commit: str | None = None
    last_commit_us: int | None = None

    @property
    def events(self) -> int:
        """All of them."""
        return self.creates + self.updates + self.deletes


@failpoint("count_batch")
def count_batch(batch: DataFrame) -> BatchCounts:
    """Count the events that came from the source's log (so no reads) in one pass (an action)."""
    is_op = {name: F.sum((F.col("op") == op).cast("int")) for name, op in OPS.items()}
    by_key = (
        _events(batch)
        .groupBy("key")
        .agg(*(total.alias(name) for name, total in is_op.items()), F.max("timed").alias("last"))
    )
    changes = F.col("creates") + F.col("updates") + F.col("deletes")
    row = by_key.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in OPS),
        F.coalesce(F.sum((changes > 1).cast("int")), F.lit(0)).alias("hot_keys"),
        F.coalesce(F.sum(_is_recreated().cast("int")), F.lit(0)).alias("recreated_keys"),
        F.max("last")["commit"].alias("last_commit"),
        F.max("last")["ts_us"].alias("last_commit_us"),
    ).first()
    return BatchCounts(**row.asDict()) if row is not None else BatchCounts()


def count_reads(batch: DataFrame) -> dict[int, int]:
    """Return the `r` rows of each chunk (an action)."""
    rows = batch.where("op = 'r'").groupBy((F.col("__ordinal") - READ).alias("chunk")).count().collect()
    return {int(row["chunk"]): int(row["count"]) for row in rows}


OPS = {"creates": "c", "updates": "u", "deletes": "d"}


@failpoint("net_effects")
def net_effects(batch: DataFrame, schema: TableSchema, counts: BatchCounts) -> DataFrame:
    """Return one row for each key with a net effect: key columns k0.., commit, row (None: absent).

    A key with one event in the batch needs no counting: its event is its effect. Only the others are shuffled.
    """
    events = events_in(batch)
    if counts.hot_keys == 0:
        return _alone(events)
    hot = if_few_to_all(hot_keys(batch), counts.hot_keys)
    cold = _alone(events.join(hot, "key", "left_anti"))
    return cold.unionByName(_counted(events.join(hot, "key", "left_semi"), schema))


def events_in(batch: DataFrame) -> DataFrame:
    """Return a batch's events (commit, intent, op, key, before, after), each at the place that it has in the source."""
    return _events(batch).select("commit", "intent", "op", "key", "before", "after")


def if_few_to_all(rows: DataFrame, count: int) -> DataFrame:
    """Return rows for a join, to be sent to every executor if they are few; Spark takes them for more than they are."""
    return F.broadcast(rows) if count <= BROADCAST_KEYS else rows


def hot_keys(batch: DataFrame) -> DataFrame:
    """Return the keys (`key`) with several events: of the others the one event is the effect."""
    return _events(batch).groupBy("key").count().where("count > 1").select("key")


def recreated_keys(batch: DataFrame) -> DataFrame:
    """Return the keys (`key`) that were both created and deleted: of no others the order may mislead."""
    is_op = {name: F.sum((F.col("op") == op).cast("int")) for name, op in OPS.items()}
    by_key = _events(batch).groupBy("key").agg(*(total.alias(name) for name, total in is_op.items()))
    return by_key.where(_is_recreated()).select("key")


@failpoint("commit_effects")
def commit_effects(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return what each commit made of each key (key, commit): `known`, `row` (None: absent), and places of events.

    Images in minus images out are counted. Where none is left over, the key has the image that came last or went
    first, and else nobody knows. `last_at` is the place (intent) of the key's last event, `row_at` of the last one that
    brought the row, `came_at` of the last one that brought any, `deleted_at` of the last deletion.
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
    one = F.when(F.col("bare"), F.col("came_last")).otherwise(F.coalesce("came", unchanged))
    told = by_commit.withColumn("one", one)
    return told.select(
        *("key", "commit"),
        (F.col("bare") | F.col("went") | F.col("one").isNotNull()).alias("known"),
        F.col("one.image").alias("row"),
        *("last_at", F.col("one.came_at").alias("row_at"), "came_at", "deleted_at"),
    )


def _is_recreated() -> Column:
    return (F.col("creates") > 0) & (F.col("deletes") > 0)


def _events(batch: DataFrame) -> DataFrame:
    return batch.where(F.col("op").isin([*OPS.values()])).select(
        F.col("__commit_lsn").alias("commit"),
        # Where an event has moved in the log, its source still has its place; what a snapshot tells has none.
        F.coalesce("source.change_lsn", "__intent_lsn").alias("intent"),
        *("op", "key", "before", "after"),
        # What a snapshot found gone has the time of its plan, and no commit's.
        F.when(
            (F.col("source.snapshot") == "false") & F.col("source.ts_us").isNotNull(),
            F.struct(F.col("__commit_lsn").alias("commit"), F.col("source.ts_us").alias("ts_us")),
        ).alias("timed"),
    )


def _alone(events: DataFrame) -> DataFrame:
    """Return the net effects of keys with one event each."""
    return events.select("key", "commit", F.col("after").alias("row"))


def _counted(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the net effects of keys with several events: of the last commit that tells something."""
    effects = commit_effects(events, schema).where("known").select("key", F.struct("commit", "row").alias("effect"))
    return effects.groupBy("key").agg(F.max_by("effect", F.col("effect.commit")).alias("e")).select("key", "e.*")


def _by_image(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return by how many each image of a key grew in a commit (`left`), and where it came and went."""
    bare, deleted = _is_bare_update().alias("bare"), (F.col("op") == "d").alias("deleted")
    signed = events.select("key", "commit", "intent", bare, deleted, signed_images().alias("i"))
    return (
        signed.select("key", "commit", "intent", "bare", "deleted", "i.*")
        .groupBy("key", "commit", _exact("image", schema).alias("exact"))
        .agg(
            # What is grouped by loses the sign of its zeros.
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
    """Return a row struct in a form whose equality is the bytes'."""
    row = F.col(image)
    floats = [row.getField(name).cast("string") for name in float_names(schema)]
    return F.when(row.isNotNull(), F.struct(row, *floats)) if floats else row


def _is_bare_update() -> Column:
    return (F.col("op") == "u") & F.col("before").isNull()
