"""Rows that survive a torn read are those of `cdc.event.snapshot_window`. Counts are what the changes explain."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from support.frames import SEEDED, change_frame, log_frame, seeded
from support.history import History, HistoryOptions, random_history

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.event.change_event import RowChange, events_of
from airflow_provider_db2cdc.cdc.event.net_effect import net_effects as plain_effects
from airflow_provider_db2cdc.cdc.event.snapshot_window import surviving as plain_surviving
from airflow_provider_db2cdc.cdc.job import ApplySettings, TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkCounts, KeyedChunks, KeylessRead, TableSnapshot
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import SignalError, SourceError
from airflow_provider_db2cdc.spark.events.net_effect import count_batch, net_effects
from airflow_provider_db2cdc.spark.events.pairing import Pairing, paired
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import check_counts, check_part, find_bounds, surviving
from airflow_provider_db2cdc.spark.jdbc.connection import DriverConnection
from airflow_provider_db2cdc.sql.changes import change_table
from airflow_provider_db2cdc.sql.chunk import Bound, ChunkKey

pytestmark = pytest.mark.spark
HISTORIES = 150
Staged = list[tuple[tuple[Any, ...], tuple[Any, ...]]]


def torn_read(seed: int, history: History, rng: random.Random) -> tuple[Staged, list[RowChange]]:
    """Return rows that were read at moments between two commits, and the changes between these.

    A scan reads a row twice only if the row moved during the scan.
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


def test_rows_of_zero_bytes_are_counted_as_one_byte() -> None:
    class Empty(DriverConnection):
        def __init__(self) -> None:
            """Ask nothing but how large rows are."""

        def text_rows(self, select: str) -> list[list[str | None]]:
            return [["0"]]

        def chunk_bounds(self, cut: ChunkKey, rows: int) -> list[Bound]:
            return [(str(rows),)]

    columns = (Column("K", "VARCHAR", 9),)
    schema = TableSchema(TableId("S", "T"), columns, ("K",))
    assert find_bounds(Empty(), schema, ApplySettings(snapshot_chunk_bytes=1000), TableSnapshot(schema.table)) == [
        ("1000",)
    ]


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
    part = TableSnapshot(schema.table, surrogate="S")
    with nullcontext() if is_good else pytest.raises(SignalError, match="has nulls or duplicates"):
        check_part(Counted(), schema, part)


def test_surviving_rows_are_the_plain_rule(spark: SparkSession) -> None:
    rng = random.Random(5)
    options = HistoryOptions(composite=False, transactions=12, width=5)
    reads = [torn_read(seed, random_history(seed, options), rng) for seed in range(1, HISTORIES)]
    staged = [row for rows, _ in reads for row in rows]
    changes = [change for _, some in reads for change in some]
    events = paired(change_frame(spark, changes), SEEDED, Pairing("adjacent", before_images=False, bare_updates=True))
    window = log_frame(events)
    rows = spark.createDataFrame(
        [(image, 0) for _, image in staged], "row struct<SEED: int, ID: int, A: int, B: string>, chunk int"
    )

    counts = count_batch(window)
    found = surviving(rows, SEEDED, window, counts, net_effects(window, SEEDED, counts)).collect()

    effects = plain_effects(events_of(changes))
    wanted = plain_surviving(staged, effects)
    assert sorted(tuple(row["row"]) for row in found) == sorted(cast("dict[Any, tuple[int, ...]]", wanted).values())
    touched = {event.key for event in events_of(changes)}
    assert touched & wanted.keys(), "no key's events cancelled out"
    assert {key for key, _ in staged} & effects.keys(), "no staged row had to give way"


LOW, HIGH = Lsn(bytes(16)), Lsn(bytes(15) + b"\x0f")
CAPTURE = CaptureRegistration(
    SEEDED.table, "ASN", "CD", "A", "", "U", None, None, None, (), CaptureIdentity("ASN.CD", "", "", "")
)
WHOLE = TableSnapshot(SEEDED.table)


Move = tuple[str, int, int | None]
"""A change row: its operation, its ID, and the ID in its before image."""


class ChangeTable(DriverConnection):
    """A source in SQLite with only a change table: these rows, and some outside the window."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute("ATTACH ':memory:' AS \"ASN\"")
        columns = "IBMSNAP_COMMITSEQ, IBMSNAP_OPERATION, SEED, ID, XSEED, XID"
        self._database.execute(f"CREATE TABLE {change_table(CAPTURE)} ({columns})")
        beside = [(at, "I", id_, None) for at in (LOW.raw, bytes(15) + b"\x10") for id_ in (5, 15, 25)]
        inside = [(HIGH.raw, *move) for move in moves]
        rows = [(at, op, 1, id_, 1, old) for at, op, id_, old in (*beside, *inside)]
        self._database.executemany(f"INSERT INTO {change_table(CAPTURE)} VALUES (?, ?, ?, ?, ?, ?)", rows)
        self.statements = 0

    def text_rows(self, select: str) -> list[list[str | None]]:
        self.statements += 1
        return [[str(value) for value in row] for row in self._database.execute(select.replace("COUNT_BIG(", "COUNT("))]


def check(
    moves: Sequence[Move], *counts: tuple[int, int], part: TableSnapshot = WHOLE, capture: CaptureRegistration = CAPTURE
) -> int:
    """Check chunks that were read with so many rows and counted so many; return how many statements it took.

    The first is of IDs up to 10, the second up to 20, and so on; the last has no end.
    """
    keys = [(str(10 * at),) if part.surrogate else ("1", str(10 * at)) for at in range(1, len(counts))]
    ends: list[tuple[str, ...]] = [(), *keys, ()]
    chunks = tuple(ChunkCounts(ends[at], ends[at + 1], *count) for at, count in enumerate(counts))
    of = KeyedChunks("ad-hoc", "incremental", 3, 2 + len(counts), LOW, 1, 1, "", counts=chunks)
    source = ChangeTable(moves)
    check_counts(source, TableTask(SEEDED, capture, LOW, HIGH, 0), part, of, LsnRange(LOW, HIGH))
    return source.statements


def some(ops: str, id_: int = 5, old: int | None = None) -> list[Move]:
    return [(op, id_, old) for op in ops]


@pytest.mark.parametrize(
    ("moves", "counts"),
    [
        ([], [(5, 5)]),
        (some("I"), [(5, 6)]),
        (some("D") + some("I", 25), [(5, 4), (5, 5), (5, 6)]),
        (some("D", 10) + some("I", 11), [(5, 4), (5, 6)]),
        (some("I", 10) + some("D", 11), [(5, 6), (5, 4)]),
        (some("U", 5), [(5, 7)]),
    ],
    ids=["none", "insert", "elsewhere", "update as two", "and back", "met twice"],
)
def test_changes_explain_the_counts_that_they_may_have_changed(
    moves: list[Move], counts: list[tuple[int, int]]
) -> None:
    check(moves, *counts)


@pytest.mark.parametrize(
    ("moves", "counts", "chunk", "explained"),
    [
        ([], [(5, 4)], 3, 0),
        (some("I"), [(5, 6), (5, 4)], 4, 0),
        (some("I" * 100, 15), [(5, 6), (5, 5)], 3, 0),
        (some("D" * 3, 10), [(5, 5), (5, 4)], 4, 0),
        (some("DD", 11), [(5, 5), (5, 2)], 4, 2),
        (some("U"), [(5, 4), (5, 6)], 4, 0),
        (some("U"), [(5, 8), (5, 5)], 3, 2),
    ],
    ids=["none", "another chunk's", "many of another's", "at its low end", "too few", "one elsewhere", "update as one"],
)
def test_count_that_no_change_of_the_chunk_explains_is_an_error(
    moves: list[Move], counts: list[tuple[int, int]], chunk: int, explained: int
) -> None:
    with pytest.raises(SourceError, match=rf"S\.T: chunk {chunk} was read .* meanwhile explain only {explained}\. "):
        check(moves, *counts)


IMAGES = tuple(Column(f"{prefix}{name}", "INTEGER") for prefix in ("", "X") for name in SEEDED.names)


def test_before_image_shows_the_old_chunk_of_an_update() -> None:
    told = replace(CAPTURE, before_prefix="X", cd_columns=IMAGES)
    check(some("U", 15, old=5), (5, 4), (5, 6), (5, 5), capture=told)
    check(some("U", 15, old=15), (5, 5), (5, 7), capture=told)
    for counts, chunk, explained in (
        ([(5, 7), (5, 5)], 3, 1),
        ([(5, 5), (5, 7)], 4, 1),
        ([(5, 5), (5, 5), (5, 4)], 5, 0),
    ):
        with pytest.raises(SourceError, match=rf"chunk {chunk} .* explain only {explained}\."):
            check(some("U", 15, old=5), *counts, capture=told)


def test_surrogate_key_may_have_had_any_value_without_a_before_image() -> None:
    by_id = TableSnapshot(SEEDED.table, surrogate="ID")
    check(some("U", 15), (5, 4), (5, 7), (5, 4), part=by_id)
    with pytest.raises(SourceError, match=r"chunk 3 .* explain only 1\."):
        check(some("U", 15), (5, 3), (5, 5), part=by_id)
    told = replace(CAPTURE, before_prefix="X", cd_columns=IMAGES)
    with pytest.raises(SourceError, match=r"chunk 5 .* explain only 0\."):
        check(some("U", 15, old=5), (5, 4), (5, 6), (5, 4), part=by_id, capture=told)


def test_a_null_bound_includes_rows_with_a_value_before_it() -> None:
    columns = tuple(replace(column, nullable=True) for column in SEEDED.columns)
    nullable = TableTask(replace(SEEDED, columns=columns), CAPTURE, LOW, HIGH, 0)
    chunks = (ChunkCounts((), ("1", "NULL"), 5, 6), ChunkCounts(("1", "NULL"), (), 5, 5))
    of = KeyedChunks("ad-hoc", "incremental", 0, 1, LOW, 1, 1, "", counts=chunks)
    check_counts(ChangeTable(some("I")), nullable, WHOLE, of, LsnRange(LOW, HIGH))
    other = replace(of, counts=(replace(chunks[0], rows_counted=5), replace(chunks[1], rows_counted=6)))
    with pytest.raises(SourceError, match=r"chunk 1 .* explain only 0\."):
        check_counts(ChangeTable(some("I")), nullable, WHOLE, other, LsnRange(LOW, HIGH))


def test_a_table_without_a_key_is_one_chunk() -> None:
    bare = TableTask(replace(SEEDED, key=()), CAPTURE, LOW, HIGH, 0)
    of = KeylessRead("ad-hoc", "incremental", 0, 0, LOW, 1, 1, "", counts=(ChunkCounts((), (), 5, 7),))
    check_counts(ChangeTable(some("II")), bare, WHOLE, of, LsnRange(LOW, HIGH))
    with pytest.raises(SourceError, match=r"chunk 0 .* explain only 1\."):
        check_counts(ChangeTable(some("I")), bare, WHOLE, of, LsnRange(LOW, HIGH))


def test_only_changed_chunks_are_counted_several_per_statement() -> None:
    moves = [move for at in range(19) for move in some("I", 10 * at + 5)]
    assert check(moves, *[(5, 6)] * 19, *[(5, 5)] * 30) == 3
    assert check(moves, *[(5, 5)] * 30) == 0
    with pytest.raises(SourceError, match=r"chunk 20 .* explain only 1 \(so it is with 2 more of the group\)"):
        check(moves, *[(5, 6)] * 17, (5, 7), (5, 8), (5, 6))


@pytest.mark.parametrize(
    "part",
    [
        TableSnapshot(SEEDED.table, condition="A > CURRENT TIMESTAMP"),
        TableSnapshot(SEEDED.table, select="SELECT * FROM V"),
    ],
    ids=["condition", "select"],
)
def test_count_with_a_condition_or_select_is_only_reported(
    part: TableSnapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    check(some("I"), (1000, 998), part=part)
    assert "table=S.T snapshot=ad-hoc: chunk 3 was read with 1000 rows, the source counts 998" in (
        capsys.readouterr().out
    )
    check(some("I"), (1000, 999), part=part)
    assert not capsys.readouterr().out
