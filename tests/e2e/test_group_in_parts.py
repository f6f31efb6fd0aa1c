"""A group that is read in pieces has one chunk range, one window and one batch, whatever happens between pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.filled import ask, changed, filled
from support.log import check_log, reads
from support.pieces import in_pieces
from support.pipeline import Pipeline, use_signal_table
from support.writing import after_each, in_window

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.spark import session
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.jdbc.connection import Fetch
from airflow_provider_db2cdc.spark.session import SMALL_CONF

SHUFFLES = "spark.sql.shuffle.partitions"

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose groups begin with three rows, and continue with all others, at any pace."""
    in_pieces(monkeypatch, 3, 8)
    return new_pipeline(**{"incremental.snapshot.chunk.size": 1})


def batches_with_reads(pipeline: Pipeline, table: TableId) -> list[int]:
    rows = pipeline.changes(table).where("op = 'r'").select("__batch").distinct().collect()
    return sorted(row[0] for row in rows)


def certified(pipeline: Pipeline, table: TableId) -> list[tuple[int, int]]:
    """Return, chunk by chunk, what the commit log says of rows read and counted."""
    log = load(pipeline.spark, Layout(pipeline.target).internal("commits")).where(f"table = '{table.name}'")
    chunks = (chunk for row in log.orderBy("batch").collect() for chunk in row["chunks"] or ())
    return [(chunk["rows_read"], chunk["rows_counted"]) for chunk in chunks]


def test_changes_between_two_pieces_of_a_group_appear_once(pipeline: Pipeline) -> None:
    """Rows move into the piece that is read and out of it. On both sides rows are updated, inserted and deleted.

    The chunks are read with the isolation and the fetch size of the configuration.
    """
    signals = use_signal_table(pipeline)
    pipeline.properties = {
        **pipeline.properties,
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "snapshot.isolation.mode": "repeatable_read",
        "snapshot.fetch.size": 77,
    }
    table, fetches = filled(pipeline, 9), set[Fetch]()

    def change(piece: int) -> None:
        if piece == 1:
            moves = [f"UPDATE {table} SET ID = {new} WHERE ID = {old}" for old, new in ((8, -1), (0, 20))]
            sets = [f"UPDATE {table} SET A = 'b' WHERE ID = {id_}" for id_ in (1, 5)]
            changed(pipeline, *moves, *sets, f"DELETE FROM {table} WHERE ID IN (2, 6)")
            changed(pipeline, f"INSERT INTO {table} VALUES (2, 'new')", f"INSERT INTO {table} VALUES (30, 'new')")

    def note(reached: ReachedFailpoint) -> None:
        fetches.add(reached.arguments["how"])

    with after_each("stage_chunks", change), failpoint_action("read_chunk_rows", before=note):
        result = pipeline.passed()
    assert fetches == {Fetch(77, "repeatable_read")}
    assert [(one.status, one.done, one.chunks) for one in result.snapshots] == [("completed", 10, 10)]
    assert len(batches_with_reads(pipeline, table)) == 1, "both pieces are one group"
    assert set(reads(pipeline, table)) == {(3,), (4,), (7,)}, "all others have changed during the read"
    assert len(certified(pipeline, table)) == 10
    assert not pipeline.query(f"SELECT * FROM {signals}"), (
        "one watermark for the group, not for each piece, and it is deleted"
    )
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.long
def test_a_key_read_in_two_pieces_has_the_whole_group_read_again(pipeline: Pipeline) -> None:
    """Nothing makes K unique, and a row moves over to the unread piece."""
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL UNIQUE, K INTEGER NOT NULL)"
    table = pipeline.create(ddl, "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at, at) for at in range(9)])
    pipeline.properties = {**pipeline.properties, "message.key.columns": rf"{table.schema}\.T:K"}
    pipeline.captured()
    pipeline.passed()

    def move(piece: int) -> None:
        if piece == 1:
            changed(pipeline, f"UPDATE {table} SET ID = 20 WHERE ID = 0")

    with after_each("stage_chunks", move):
        result = pipeline.passed(ask(table, **{"surrogate-key": "ID"}))
    assert [one.status for one in result.signals] == ["done"]
    assert certified(pipeline, table)[10:] == [(0, 0), *([(1, 1)] * 9)], "as the second read found it"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.long
def test_the_few_changes_of_a_group_are_pulled_by_a_session_set_for_few(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its many rows are read by a session set for many."""
    monkeypatch.setattr(session, "SMALL_ROWS", 5)
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    seen: dict[str, bool] = {}

    def note(reached: ReachedFailpoint) -> None:
        arguments = reached.arguments
        spark = arguments["self"].spark if "self" in arguments else arguments["batch"].sparkSession
        seen[arguments.get("step", reached.point)] = spark.conf.get(SHUFFLES) == SMALL_CONF[SHUFFLES]

    with (
        failpoint_action("append_changes", before=note),
        failpoint_action("count_batch", before=note),
        failpoint_action("net_effects", before=note),
        in_window(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID IN (1, 5)"),
    ):
        pipeline.passed(ask(table))
    assert seen == {"changes": True, "count_batch": True, "net_effects": True, "reads": False}
    assert pipeline.rows(table) == pipeline.source_rows(table)
