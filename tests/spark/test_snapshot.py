"""Set by set, what survives of a torn read is cdc/window.py's rule; and counts are what the changes explain."""

from __future__ import annotations

import random
import sqlite3
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.frames import SEEDED, change_frame, log_frame, seeded
from support.history import History, HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.capture import CaptureIdentity, CaptureInstance
from airflow_provider_db2cdc.cdc.effect import net_effects as plain_effects
from airflow_provider_db2cdc.cdc.event import RowChange, events_of
from airflow_provider_db2cdc.cdc.job import ApplySettings
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.part import ChunkCounts, Part, Slice
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.cdc.window import surviving as plain_surviving
from airflow_provider_db2cdc.errors import SignalError, SourceError
from airflow_provider_db2cdc.spark.changes import paired
from airflow_provider_db2cdc.spark.effects import count_batch, net_effects
from airflow_provider_db2cdc.spark.jdbc import DriverConnection
from airflow_provider_db2cdc.spark.snapshot import check_counts, check_part, chunk_ends, surviving
from airflow_provider_db2cdc.sql.changes import change_table
from airflow_provider_db2cdc.sql.chunk import Bound, Cut

pytestmark = pytest.mark.spark
HISTORIES = 150
Staged = list[tuple[tuple[Any, ...], tuple[Any, ...]]]


def torn_read(seed: int, history: History, rng: random.Random) -> tuple[Staged, list[RowChange]]:
    """Return rows that were looked at at moments between two commits, and the changes between these.

    A scan meets a row twice only where it moved meanwhile.
    """
    low, high = sorted(rng.sample(range(len(history.positions)), 2))
    moments = [history.state("T0", at) for at in history.positions[low : high + 1]]
    span = {*history.positions[low + 1 : high + 1]}
    changes = [change for change in history.changes["T0"] if change.commit in span]
    moved = {change.key for change in changes}
    keys = sorted({key for state in moments for key in state})
    looks = [key for key in keys for _ in range(rng.choice((1, 2)) if key in moved else 1)]
    seen = ((key, rng.choice(moments).get(key)) for key in looks)
    staged = [((seed, *key), (seed, *image)) for key, image in seen if image is not None]
    return staged, seeded(seed, changes)


def test_rows_that_take_no_bytes_are_counted_as_if_they_took_one() -> None:
    class Empty(DriverConnection):
        def __init__(self) -> None:
            """Ask nothing but how large rows are."""

        def text_rows(self, select: str) -> list[list[str | None]]:
            return [["0"]]

        def chunk_bounds(self, cut: Cut, rows: int) -> list[Bound]:
            return [(str(rows),)]

    columns = (Column("K", "VARCHAR", 9),)
    schema = TableSchema(TableId("S", "T"), columns, ("K",))
    assert chunk_ends(Empty(), schema, ApplySettings(snapshot_chunk_bytes=1000), Part(schema.table)) == [("1000",)]


@pytest.mark.parametrize(
    ("counts", "is_good"), [(["3", "3", "3"], True), (["3", "3", "2"], False), (["3", "2", "2"], False)]
)
def test_a_surrogate_key_is_unique_and_never_null(counts: list[str | None], is_good: bool) -> None:
    class Counted(DriverConnection):
        def __init__(self) -> None:
            """Know nothing but rows, values and distinct values."""

        def text_rows(self, select: str) -> list[list[str | None]]:
            return [counts]

    schema = TableSchema(TableId("S", "T"), (Column("K", "INTEGER"), Column("S", "INTEGER")), ("K",))
    part = Part(schema.table, surrogate="S")
    with nullcontext() if is_good else pytest.raises(SignalError, match="has nulls or duplicates"):
        check_part(Counted(), schema, part)


def test_surviving_rows_are_the_plain_rule(spark: SparkSession) -> None:
    rng = random.Random(5)
    options = HistoryOptions(composite=False, transactions=12, width=5)
    reads = [torn_read(seed, random_history(seed, options), rng) for seed in range(1, HISTORIES)]
    staged = [row for rows, _ in reads for row in rows]
    changes = [change for _, some in reads for change in some]
    events = paired(change_frame(spark, changes), SEEDED, "adjacent", before_images=False, bare_updates=True)
    window = log_frame(events)
    rows = spark.createDataFrame(
        [(image, 0) for _, image in staged], "row struct<SEED: int, ID: int, A: int, B: string>, chunk int"
    )

    counts = count_batch(window)
    found = surviving(rows, SEEDED, window, counts, net_effects(window, SEEDED, counts)).collect()

    effects = plain_effects(events_of(changes))
    wanted = plain_surviving(staged, effects)
    assert sorted(tuple(row["row"]) for row in found) == sorted(wanted.values())
    touched = {event.key for event in events_of(changes)}
    assert touched & wanted.keys(), "no key's events cancelled out"
    assert {key for key, _ in staged} & effects.keys(), "no staged row had to give way"


LOW, HIGH = Lsn(bytes(16)), Lsn(bytes(15) + b"\x0f")
CAPTURE = CaptureInstance(
    SEEDED.table, "ASN", "CD", "A", "", "U", None, None, None, (), CaptureIdentity("ASN.CD", "", "", "")
)
WHOLE = Part(SEEDED.table)


class ChangeTable(DriverConnection):
    """A source in SQLite, of which there is nothing but a change table with these operations."""

    def __init__(self, ops: str) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute("ATTACH ':memory:' AS \"ASN\"")
        self._database.execute(f"CREATE TABLE {change_table(CAPTURE)} (IBMSNAP_COMMITSEQ, IBMSNAP_OPERATION)")
        rows = [(HIGH.raw, op) for op in ops]
        self._database.executemany(f"INSERT INTO {change_table(CAPTURE)} VALUES (?, ?)", rows)

    def text_rows(self, select: str) -> list[list[str | None]]:
        return [[str(value) for value in row] for row in self._database.execute(select.replace("COUNT_BIG(", "COUNT("))]


def check(ops: str, *counts: tuple[int, int], part: Part = WHOLE) -> None:
    """Check chunks that were read with so many rows and counted so many, behind these operations."""
    chunks = tuple(ChunkCounts((), (), *count) for count in counts)
    of = Slice("ad-hoc", "incremental", 0, len(counts) - 1, LOW, 1, 1, "", counts=chunks)
    check_counts(ChangeTable(ops), CAPTURE, part, of, LsnRange(LOW, HIGH))


@pytest.mark.parametrize(
    ("ops", "counts"),
    [("", [(5, 5)]), ("I", [(5, 6)]), ("D", [(5, 4), (5, 5)]), ("DI", [(5, 4), (5, 6)]), ("U", [(5, 4), (5, 6)])],
    ids=["none", "insert", "delete", "update as two", "update as one"],
)
def test_changes_explain_what_they_may_have_moved(ops: str, counts: list[tuple[int, int]]) -> None:
    check(ops, *counts)


@pytest.mark.parametrize(
    ("ops", "counts"),
    [("", [(5, 4)]), ("I", [(5, 4), (5, 6)]), ("U", [(5, 4), (5, 7)])],
    ids=["none", "insert", "update as one"],
)
def test_count_that_no_change_explains_is_an_error(ops: str, counts: list[tuple[int, int]]) -> None:
    with pytest.raises(SourceError, match=f"S.T: chunks 0 to .* meanwhile explain only {len(ops) + ops.count('U')}"):
        check(ops, *counts)


@pytest.mark.parametrize(
    "part",
    [Part(SEEDED.table, condition="A > CURRENT TIMESTAMP"), Part(SEEDED.table, select="SELECT * FROM V")],
    ids=["condition", "select"],
)
def test_count_by_a_condition_or_a_select_is_only_told(part: Part, capsys: pytest.CaptureFixture[str]) -> None:
    check("I", (1000, 998), part=part)
    assert "table=S.T snapshot=ad-hoc: chunks 0 to 0 were read with 1000 rows, the source counts 998" in (
        capsys.readouterr().out
    )
    check("I", (1000, 999), part=part)
    assert not capsys.readouterr().out
