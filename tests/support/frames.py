"""Random histories as Spark data frames: many at once, each under its own number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.event.change_event import Event, RowChange
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema

SEEDED = TableSchema(
    TableId("S", "T"),
    (
        Column("SEED", "INTEGER", 4, 0, False),
        Column("ID", "INTEGER", 4, 0, False),
        Column("A", "INTEGER", 4),
        Column("B", "VARCHAR", 10),
    ),
    ("SEED", "ID"),
)
"""A table that holds the rows of many histories of one key column. SEED is the number of the history."""

SEEDED_TEXT = replace(SEEDED, columns=(SEEDED.columns[0], Column("ID", "VARCHAR", 10, 0, False), *SEEDED.columns[2:]))
"""The same with a text as key."""

CHANGE_DDL = "CC binary, CI binary, CO string, C0 int, C1 int, C2 int, C3 string"


def seeded(seed: int, changes: Iterable[RowChange]) -> list[RowChange]:
    """Return a history's changes with its number in front of commits, keys and images."""
    return [
        RowChange(_lsn(seed, c.commit), c.intent, c.op, (seed, *_tuple(c.key)), (seed, *_tuple(c.image)))
        for c in changes
    ]


def change_frame(spark: SparkSession, changes: Iterable[RowChange], text: bool = False) -> DataFrame:
    """Return change rows as JDBC delivers them, in one partition; with `text` the key is one."""
    rows = [(bytearray(c.commit.raw), bytearray(c.intent.raw), c.op, *_tuple(c.image)) for c in changes]
    return read_frame(spark, rows, CHANGE_DDL.replace("C1 int", "C1 string") if text else CHANGE_DDL)


def read_frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]], ddl: str) -> DataFrame:
    """Return change rows (CC, CI, CO, C0..Cn, B0..Bn) in one partition. The times of their commits are not known."""
    frame = spark.createDataFrame([*rows], ddl).withColumn("LOGMARKER", F.lit(None).cast("timestamp"))
    return frame.coalesce(1)


def log_frame(events: DataFrame) -> DataFrame:
    """Return rows of `spark.events.pairing.paired` as the change log holds them, as far as net effects need it."""
    return events.select(
        F.col("commit").alias("__commit_lsn"),
        F.col("intent").alias("__intent_lsn"),
        *("op", "key", "before", "after"),
        F.struct(
            F.lit(0).cast("bigint").alias("ts_us"),
            F.lit("false").alias("snapshot"),
            F.col("intent").alias("change_lsn"),
        ).alias("source"),
    ).localCheckpoint()


def events_in(rows: Iterable[Row]) -> list[Event]:
    """Return collected rows of `spark.events.pairing.paired` as events."""
    return [
        Event(
            Lsn.parse(row["commit"]), Lsn.parse(row["intent"]), row["op"], _plain(row["key"]), _plain(row["before"]),
            _plain(row["after"]), _plain(row["newkey"]), _plain(row["oldkey"]),
        )
        for row in rows
    ]  # fmt: skip


def effects_in(rows: Iterable[Row]) -> Mapping[Any, tuple[Lsn, Any]]:
    """Return collected rows of `spark.effects.net_effects` by key."""
    found = [(_plain(row["key"]), (Lsn.parse(row["commit"]), _plain(row["row"]))) for row in rows]
    assert len(found) == len(dict(found)), "a key has several, so that a merge would insert it twice"
    return dict(found)


def _lsn(seed: int, lsn: Lsn) -> Lsn:
    return Lsn(seed.to_bytes(4, "big") + lsn.raw[4:])


def _plain(value: Any) -> Any:
    return None if value is None else tuple(value)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value)
