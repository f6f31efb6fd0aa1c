"""The events of change rows: the rule of `cdc.event.change_event`, applied to frames without a shuffle."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.table import TableSchema
from airflow_provider_db2cdc.spark.events.envelope import key_text, lsn_text, row_struct
from airflow_provider_db2cdc.spark.quoting import quoted, text_literal

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
    """Return the events of change rows: commit, intent, local, op, key, before, after, newkey, oldkey.

    `rows` are those of `sql.changes.timed_change_rows`. `local` is the commit's time at the source. The rows must be in
    one partition of whole commits. Then the windows below need no shuffle.
    """
    spread = rows.select(
        lsn_text("CC").alias("commit"),
        lsn_text("CI").alias("intent"),
        F.col("LOGMARKER").cast("timestamp").alias("local"),
        F.col("CO").alias("o"),
        row_struct(schema, "C").alias("row"),
        (row_struct(schema, "B") if pairing.before_images else F.lit(None)).alias("prior"),
    )
    halves = _as_delete_and_insert(spread, schema) if pairing.before_images else spread.withColumn("half", F.lit(0))
    order, key = "OVER (PARTITION BY commit ORDER BY intent, half)", key_text(schema, "row")

    def has_neighbour(side: str, op: str) -> str:
        is_op = f"{side}(o) {order} = '{op}'"
        return f"({is_op} AND {side}(intent) {order} = intent)" if pairing.one_row else f"({is_op})"

    is_after_delete, is_followed = has_neighbour("lag", "D"), has_neighbour("lead", "I")
    paired_rows = halves.selectExpr(
        *("commit", "intent", "local", "o", "row"),
        f"{key} AS key",
        f"CASE WHEN {is_after_delete} THEN lag(row) {order} END AS old",
        f"{is_followed} AS is_followed",
        f"CASE WHEN {is_followed} THEN lead({key}) {order} END AS newkey",
    ).selectExpr("*", f"CASE WHEN old IS NOT NULL THEN {key_text(schema, 'old')} END AS oldkey")
    return _events(paired_rows, pairing)


def _as_delete_and_insert(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Return each U row that has a before image as the D and the I that it stands for.

    A before image of only nulls does not count: such a row is older than the columns for before images.
    """
    has_prior = " OR ".join(f"prior.{quoted(name)} IS NOT NULL" for name in schema.names)
    old, new = "struct(0 AS half, 'D' AS o, prior AS row)", "struct(1 AS half, 'I' AS o, row AS row)"
    halves = f"CASE WHEN o = 'U' AND ({has_prior}) THEN array({old}, {new}) ELSE array(struct(0 AS half, o, row)) END"
    return rows.selectExpr("commit", "intent", "local", f"explode({halves}) AS h").select(
        "commit", "intent", "local", "h.*"
    )


def _events(paired_rows: DataFrame, pairing: Pairing) -> DataFrame:
    is_update = "(o = 'I' AND old IS NOT NULL AND oldkey <=> key)"
    bare = "'u'" if pairing.bare_updates else f"CAST(raise_error({text_literal(BARE_UPDATE)}) AS string)"
    headers = "true" if pairing.detection == "adjacent" else "false"
    is_old_half = "o = 'D' AND is_followed AND newkey <=> key"
    return paired_rows.where(f"NOT coalesce({is_old_half}, false)").selectExpr(
        *("commit", "intent", "local"),
        f"CASE WHEN o = 'D' THEN 'd' WHEN o = 'U' THEN {bare} WHEN {is_update} THEN 'u' ELSE 'c' END AS op",
        "key",
        f"CASE WHEN o = 'D' THEN row WHEN {is_update} THEN old END AS before",
        "CASE WHEN o <> 'D' THEN row END AS after",
        f"CASE WHEN {headers} AND o = 'D' THEN newkey END AS newkey",
        f"CASE WHEN {headers} AND o = 'I' AND NOT {is_update} THEN oldkey END AS oldkey",
    )
