"""The events of change rows: the rule of `cdc.event.change_event`, applied to frames without a shuffle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import key_struct, lsn_text, row_struct

BARE_UPDATE = "db2cdc: an update row without its before image"
"""The error text of a read that meets such a row and must not accept it."""


@dataclass(frozen=True)
class Pairing:
    """How the change rows of a table stand for its events.

    A U row without its before image is an event with `bare_updates`, else it fails the job with BARE_UPDATE.
    With `one_row` an update is one row with both images: only its own halves are paired.
    """

    detection: KeyChangeDetection
    before_images: bool
    bare_updates: bool
    one_row: bool = False


def paired(rows: DataFrame, schema: TableSchema, pairing: Pairing) -> DataFrame:
    """Return the events of change rows: commit, intent, op, key, before, after, newkey, oldkey.

    `rows` must be one partition of whole commits. Then the windows below need no shuffle.
    """
    spread = rows.select(
        lsn_text("CC").alias("commit"),
        lsn_text("CI").alias("intent"),
        F.col("CO").alias("o"),
        row_struct(schema, "C").alias("row"),
        (row_struct(schema, "B") if pairing.before_images else F.lit(None)).alias("prior"),
    )
    if pairing.before_images:
        spread = _as_delete_and_insert(spread, schema)
    order = Window.partitionBy("commit").orderBy("intent", "half")
    halves = spread if pairing.before_images else spread.withColumn("half", F.lit(0))

    def has_neighbour(side: Callable[[str], Column], op: str) -> Column:
        is_op = side("o").over(order) == op
        return is_op & (side("intent").over(order) == F.col("intent")) if pairing.one_row else is_op

    is_after_delete, is_followed = has_neighbour(F.lag, "D"), has_neighbour(F.lead, "I")
    paired_rows = halves.select(
        *("commit", "intent", "o", "row"),
        key_struct(schema, "row").alias("key"),
        F.when(is_after_delete, F.lag("row").over(order)).alias("old"),
        is_followed.alias("is_followed"),
        F.when(is_followed, F.lead(key_struct(schema, "row")).over(order)).alias("newkey"),
    ).withColumn("oldkey", F.when(F.col("old").isNotNull(), key_struct(schema, "old")))
    return _events(paired_rows, pairing)


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


def _events(paired_rows: DataFrame, pairing: Pairing) -> DataFrame:
    is_old_half = (F.col("o") == "D") & F.col("is_followed") & F.col("newkey").eqNullSafe(F.col("key"))
    is_update = (F.col("o") == "I") & F.col("old").isNotNull() & F.col("oldkey").eqNullSafe(F.col("key"))
    bare = F.lit("u") if pairing.bare_updates else F.raise_error(F.lit(BARE_UPDATE)).cast("string")
    op = F.when(F.col("o") == "D", "d").when(F.col("o") == "U", bare).when(is_update, "u").otherwise("c")
    headers = F.lit(pairing.detection == "adjacent")
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
