"""What the commit log certifies of each chunk, and that what cannot be certified is not published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.filled import ask, changed, filled
from support.pipeline import Pipeline
from support.writing import behind

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark import snapshot
from airflow_provider_db2cdc.spark.jdbc import DriverConnection, driver_connection
from airflow_provider_db2cdc.spark.staging import Staging

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

CHUNKS = {"incremental.snapshot.chunk.size": 4, "snapshot.group.chunks": 2}


def certified(pipeline: Pipeline, snapshot: str) -> list[Any]:
    """Return a snapshot's chunks in their order, each with the marks of its group."""
    commits = pipeline.spark.read.format("delta").load(Layout(pipeline.target).internal("commits").name)
    chunks = commits.where(commits.snapshot == snapshot).selectExpr("low_lsn", "upto_lsn", "inline(chunks)")
    return chunks.orderBy("chunk").collect()


def within(pipeline: Pipeline, table: TableId, low: str, high: str) -> int:
    """Return how many rows the source has beyond one bound and up to the other."""
    ends = [*([f"ID > {low}"] if low else []), *([f"ID <= {high}"] if high else [])]
    [[rows]] = pipeline.query(f"SELECT COUNT(*) FROM {table} WHERE {' AND '.join(ends) or '1 = 1'}")
    return int(rows)


def test_each_chunk_is_certified_with_its_bounds_its_marks_and_what_was_counted(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline(**CHUNKS)
    table = filled(pipeline, 21)
    pipeline.passed()
    begun = pipeline.offsets.get(table)
    assert begun is not None
    pipeline.passed(ask(table))
    ended = pipeline.offsets.get(table)
    assert ended is not None
    chunks = certified(pipeline, "ask")
    assert [row["chunk"] for row in chunks] == [*range(6)]
    ends = [(row["low_bound"], row["high_bound"]) for row in chunks]
    assert (ends[0][0], ends[-1][1]) == ("", ""), "nothing lies outside"
    assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]], "nothing lies between, and nothing twice"
    assert [row["rows_read"] for row in chunks] == [within(pipeline, table, *one) for one in ends]
    assert [row["rows_counted"] for row in chunks] == [row["rows_read"] for row in chunks]
    marks = [(Lsn.parse(row["low_lsn"]), Lsn.parse(row["upto_lsn"])) for row in chunks]
    assert begun.lsn <= marks[0][0], "nothing of before is looked for"
    assert marks[0] == marks[1] != marks[2], "of a group of two"
    assert marks[-1][1] == ended.lsn
    assert all(low < upto for low, upto in marks)
    assert sorted(marks) == marks


def test_as_many_connections_count_chunks_as_read_them(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection a chunk would cost more than its count where chunks are small; each makes two statements here."""
    sizes = {"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 99, "snapshot.max.threads": 2}
    pipeline, opened = new_pipeline(**sizes), 0

    @contextmanager
    def opening(*where: Any) -> Iterator[DriverConnection]:
        nonlocal opened
        opened += 1
        with driver_connection(*where) as connection:
            yield connection

    monkeypatch.setattr(snapshot, "driver_connection", opening)
    table = filled(pipeline, 41)
    pipeline.passed()
    assert opened == 2
    assert [row["rows_counted"] for row in certified(pipeline, "initial-1")] == [*[2] * 20, 1]
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_what_the_source_counts_otherwise_is_not_published(new_pipeline: Callable[..., Pipeline]) -> None:
    """Rows that nobody captures come behind a chunk's read: what is gone would be told by a read that is not whole."""
    pipeline = new_pipeline(**CHUNKS)
    table = filled(pipeline, 9)
    pipeline.passed()

    def load(number: int) -> None:
        if number == 1:
            rows = ", ".join(f"({at}, 'x')" for at in (-1, -2, -3))
            pipeline.unseen(table, f"INSERT INTO {table} VALUES {rows}")
            changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")

    with behind(Staging, "write", load):
        result = pipeline.tick(ask(table))
    assert result is not None
    [line] = result.failed
    assert "the source counts" in line.error
    assert "and its changes meanwhile explain only 2. The next tick reads them again." in line.error
    assert certified(pipeline, "ask") == []
    assert pipeline.passed().signals[-1].status == "done"
    assert pipeline.rows(table) == pipeline.source_rows(table)
