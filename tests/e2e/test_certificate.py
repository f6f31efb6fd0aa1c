"""The certificate of each chunk in the commit log. A chunk without one is not published."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from support.filled import ask, changed, filled
from support.pipeline import Pipeline
from support.writing import after_each

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action

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


def test_each_published_chunk_was_counted_at_the_source(new_pipeline: Callable[..., Pipeline]) -> None:
    """Rows that are not captured come after a chunk's read. The changes in the group's other chunk explain none."""
    pipeline = new_pipeline(**CHUNKS)
    table = filled(pipeline, 17)
    pipeline.passed()
    begun = pipeline.offsets.get(table)
    assert begun is not None

    def load(number: int) -> None:
        if number == 1:
            rows = ", ".join(f"({at}, 'x')" for at in (-1, -2, -3))
            pipeline.unseen(table, f"INSERT INTO {table} VALUES {rows}")
            changed(pipeline, *(f"UPDATE {table} SET A = 'b' WHERE ID = {at}" for at in (1, 4, 5, 6)))

    with after_each("stage_rows", load):
        result = pipeline.tick(ask(table))
    assert result is not None
    [line] = result.failed
    assert "chunk 0 was read with 4 rows, the source counts 7" in line.error
    assert "and its changes meanwhile explain only 2. The next tick reads its group again." in line.error
    assert certified(pipeline, "ask") == []
    assert pipeline.passed().signals[-1].status == "done"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_certificates(pipeline, table, begun.lsn)


def check_certificates(pipeline: Pipeline, table: TableId, begun: Lsn) -> None:
    """Check the chunks of the snapshot `ask`: bounds without gaps, counts of the source, marks of each group."""
    chunks, ended = certified(pipeline, "ask"), pipeline.offsets.get(table)
    assert ended is not None
    assert [row["chunk"] for row in chunks] == [*range(5)]
    ends = [(row["low_bound"], row["high_bound"]) for row in chunks]
    assert (ends[0][0], ends[-1][1]) == ("", ""), "no row is outside"
    assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]], "no row is between or twice"
    assert [row["rows_read"] for row in chunks] == [within(pipeline, table, *one) for one in ends]
    assert [row["rows_counted"] for row in chunks] == [row["rows_read"] for row in chunks]
    marks = [(Lsn.parse(row["low_lsn"]), Lsn.parse(row["upto_lsn"])) for row in chunks]
    assert begun <= marks[0][0]
    assert marks[0] == marks[1] != marks[2], "of a group of two"
    assert marks[-1][1] == ended.lsn
    assert all(low < upto for low, upto in marks)
    assert sorted(marks) == marks


@pytest.mark.long
def test_as_many_connections_count_chunks_as_read_them(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """A connection for each small chunk would cost more than its count. Each connection runs two statements here."""
    sizes = {"incremental.snapshot.chunk.size": 2, "snapshot.group.chunks": 99, "snapshot.max.threads": 2}
    pipeline, opened, is_counting = new_pipeline(**sizes), list[ReachedFailpoint](), Event()
    table = filled(pipeline, 41)
    with (
        failpoint_action("count_chunks", before=lambda _: is_counting.set(), after=lambda _: is_counting.clear()),
        failpoint_action("connect_source", before=lambda one: opened.append(one) if is_counting.is_set() else None),
    ):
        pipeline.passed()
    assert len(opened) == 2
    assert [row["rows_counted"] for row in certified(pipeline, "initial-1")] == [*[2] * 20, 1]
    assert pipeline.rows(table) == pipeline.source_rows(table)


KEY = {
    "C": "CHAR(4)", "M": "CHAR(2) FOR BIT DATA", "D": "DECIMAL(5, 2)", "F": "DOUBLE", "T": "TIMESTAMP", "E": "DATE",
    "K": "TIME", "N": "BIGINT",
}  # fmt: skip
ALIKE = "'a', X'00FF', -1.50, 0.1, '2026-03-29-02.30.00.123456', '2026-01-01', '24.00.00'"


@pytest.mark.long
@pytest.mark.parametrize(
    "registration",
    [{}, pytest.param({"update_as": "U", "before_img_prefix": "X"}, marks=pytest.mark.long)],
    ids=["two rows", "one row"],
)
def test_changes_explain_the_counts_of_chunks_of_keys_of_any_type(
    new_pipeline: Callable[..., Pipeline], registration: dict[str, str]
) -> None:
    pipeline = new_pipeline(**CHUNKS)
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in KEY.items())
    ddl = f"CREATE TABLE {pipeline.schema}.T ({columns}, V INTEGER, PRIMARY KEY ({', '.join(KEY)}))"
    table = pipeline.create(ddl, "T", **registration)
    for at in range(0, 90, 10):
        pipeline.execute(f"INSERT INTO {table} VALUES ({ALIKE}, {at}, 0)")
    pipeline.writer.commit()
    pipeline.captured()
    pipeline.passed()

    def change(number: int) -> None:
        if number == 1:
            moved = [f"UPDATE {table} SET N = {to} WHERE N = {at}" for at, to in ((0, 41), (10, 42))]
            changed(pipeline, f"INSERT INTO {table} VALUES ({ALIKE}, 43, 0)", *moved)

    with after_each("stage_rows", change):
        pipeline.passed(ask(table))
    chunks = certified(pipeline, "ask")
    assert [row["rows_counted"] - row["rows_read"] for row in chunks] == [-2, 3, 0]
    pipeline.to_its_end()
    kept = pipeline.state(table).select("N").collect()
    assert sorted(row.N for row in kept) == [20, 30, *range(40, 44), *range(50, 90, 10)]
