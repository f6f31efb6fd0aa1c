"""The case of maintenance: a merge of few scattered keys into a small and into a large state, after maintenance."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from support.maintained import Maintained

from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.events.state_rows import key_bounds

from .measured import Measured, note, timed
from .stage import Stage

SCHEMA = TableSchema(
    TableId("S", "T"),
    (
        Column("ID", "INTEGER", 4, 0, False), Column("C1", "VARCHAR", 40), Column("C2", "BIGINT", 8),
        Column("C3", "DOUBLE", 8), Column("C4", "DATE", 4), Column("C5", "VARCHAR", 30),
    ),
    ("ID",),
)  # fmt: skip
FILES = 40
"""Files of the state before maintenance: enough to be compacted."""

KEYS = 1000


@dataclass
class Filled:
    """A state of so many rows, after maintenance. Each merge has a number."""

    replica: Replica
    rows: int
    merges: int = 1

    def merge(self) -> None:
        """Merge scattered keys: each updates a row."""
        self.merges += 1
        step = self.rows // KEYS
        ids = F.col("id") * step + (self.merges * 7) % step
        effects = _columns(self.replica.spark.range(KEYS).withColumn("id", ids), self.merges)
        few = effects.withColumn("__present", F.lit(True)).localCheckpoint()
        bounds = key_bounds(few, SCHEMA)
        self.replica.merge(F.broadcast(few), self.merges, bounds.bounds, self.rows)


def scattered(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure the merge into `large_rows` rows (ours) against the merge into `rows` rows (the limit)."""
    small, large = (_filled(stage, rows) for rows in (options.rows, options.large_rows))
    more = {"rows": large.rows, "rows of the limit": small.rows, "keys": KEYS}
    measured = Measured(goal=round(1 / 1.5, 2), more=more)
    for number in range(options.rounds + 1):
        limit, ours = timed(partial(small.merge)), timed(partial(large.merge))
        note(measured, number, ours, limit, console)
    return measured


def _filled(stage: Stage, rows: int) -> Filled:
    target = Maintained(stage.bare, stage.folder / f"maintained{rows}", SCHEMA)
    # In an order that is not that of the key, as a state has after many batches.
    ids = stage.bare.range(rows).withColumn("id", (F.col("id") * 7919) % rows)
    target.planned(1, 1)
    target.replica.append_rows(_columns(ids, 0).repartition(FILES), 1)
    result = target.maintain()
    assert not result.failed, result.failed
    assert ("current state", "compact") in target.steps(result)
    return Filled(target.replica, rows)


def _columns(ids: DataFrame, number: int) -> DataFrame:
    """Return rows of the state for these ids. Each number gives other values."""
    return ids.select(
        F.col("id").cast("int").alias("ID"),
        F.concat(F.lit(f"name {number} "), F.col("id")).alias("C1"),
        (F.col("id") * 31 + number).alias("C2"),
        (F.col("id") / 7).alias("C3"),
        F.date_add(F.lit("2020-01-01").cast("date"), (F.col("id") % 1000).cast("int")).alias("C4"),
        F.lit("some more text").alias("C5"),
        F.lit("").alias("__commit_lsn"),
    )
