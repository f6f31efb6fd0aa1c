"""A group that is read in pieces: one slice, one window, one batch, whatever happens between two of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from threading import Event

import pytest
from support.crash import killed
from support.filled import ask, changed, filled
from support.log import check_log, reads
from support.pieces import in_pieces
from support.pipeline import Pipeline, use_signal_table
from support.writing import behind, beside, in_window

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.snapshot import chunk_sizing
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.spark import job, session
from airflow_provider_db2cdc.spark.delta.table_io import load, table_exists
from airflow_provider_db2cdc.spark.session import SMALL_CONF

SHUFFLES = "spark.sql.shuffle.partitions"

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose groups begin with three rows, and go on with as many as there are, however slow that was."""
    in_pieces(monkeypatch, 3, 8)
    return new_pipeline(**{"incremental.snapshot.chunk.size": 1})


def batches_with_reads(pipeline: Pipeline, table: TableId) -> list[int]:
    rows = pipeline.changes(table).where("op = 'r'").select("__batch").distinct().collect()
    return sorted(row[0] for row in rows)


def second_group_in_two_pieces(patch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    """Groups of three chunks, but for the second one, which goes on with three more."""
    patch.setattr(chunk_sizing, "MOST_TIMES", 1)
    patch.setattr(chunk_sizing, "GROUP_S", 0.0)
    pieces = count(1)

    def set_pace(_: ReachedFailpoint) -> None:
        patch.setattr(chunk_sizing, "GROUP_S", 3600.0 if next(pieces) == 2 else 0.0)

    return failpoint_action("stage_chunks", before=set_pace)


def certified(pipeline: Pipeline, table: TableId) -> list[tuple[int, int]]:
    """Return, chunk by chunk, what the commit log says of rows read and counted."""
    log = load(pipeline.spark, Layout(pipeline.target).internal("commits")).where(f"table = '{table.name}'")
    chunks = (chunk for row in log.orderBy("batch").collect() for chunk in row["chunks"] or ())
    return [(chunk["rows_read"], chunk["rows_counted"]) for chunk in chunks]


def test_a_table_is_cut_once_though_its_first_read_never_ends(pipeline: Pipeline) -> None:
    """To cut a large one may take as long as a task has."""
    table = filled(pipeline, 9)
    spec = pipeline.plan()
    assert spec is not None
    with killed("stage_rows", "before"):
        job.run(spec)
    cut: list[int] = []
    with behind("find_chunk_bounds", cut.append):
        pipeline.passed()
    assert cut == []
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_what_changes_between_two_pieces_comes_out_once(pipeline: Pipeline) -> None:
    """Rows move into the piece that is read and out of it, change on both sides, come and go."""
    signals = use_signal_table(pipeline)
    pipeline.properties = {**pipeline.properties, "incremental.snapshot.watermarking.strategy": "insert_delete"}
    table = filled(pipeline, 9)

    def change(piece: int) -> None:
        if piece == 1:
            moves = [f"UPDATE {table} SET ID = {new} WHERE ID = {old}" for old, new in ((8, -1), (0, 20))]
            sets = [f"UPDATE {table} SET A = 'b' WHERE ID = {id_}" for id_ in (1, 5)]
            changed(pipeline, *moves, *sets, f"DELETE FROM {table} WHERE ID IN (2, 6)")
            changed(pipeline, f"INSERT INTO {table} VALUES (2, 'new')", f"INSERT INTO {table} VALUES (30, 'new')")

    with behind("stage_chunks", change):
        result = pipeline.passed()
    assert [(one.status, one.done, one.chunks) for one in result.snapshots] == [("completed", 10, 10)]
    assert len(batches_with_reads(pipeline, table)) == 1, "both pieces are one group"
    assert set(reads(pipeline, table)) == {(3,), (4,), (7,)}, "all others have changed meanwhile"
    assert len(certified(pipeline, table)) == 10
    assert not pipeline.query(f"SELECT * FROM {signals}"), "a mark of a group, not of each piece, and gone again"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def test_a_key_met_in_two_pieces_has_the_whole_group_read_once_more(pipeline: Pipeline) -> None:
    """Nobody sees to it that K is unique, and a row moves over to what is still to be read."""
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL UNIQUE, K INTEGER NOT NULL)"
    table = pipeline.create(ddl, "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at, at) for at in range(9)])
    pipeline.properties = {**pipeline.properties, "message.key.columns": rf"{table.schema}\.T:K"}
    pipeline.captured()
    pipeline.passed()

    def move(piece: int) -> None:
        if piece == 1:
            changed(pipeline, f"UPDATE {table} SET ID = 20 WHERE ID = 0")

    with behind("stage_chunks", move):
        result = pipeline.passed(ask(table, **{"surrogate-key": "ID"}))
    assert [one.status for one in result.signals] == ["done"]
    assert certified(pipeline, table)[10:] == [(0, 0), *([(1, 1)] * 9)], "as the second read found it"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def test_a_second_piece_that_fails_leaves_its_table_alone_out(pipeline: Pipeline) -> None:
    broken, other = filled(pipeline, 9, "T1"), filled(pipeline, 2, "T2")
    seen: list[TableId] = []

    def fail_second(reached: ReachedFailpoint) -> None:
        seen.append(table := reached.arguments["part"].table)
        if table == broken and seen.count(broken) == 2:
            raise OSError("the statement was killed")

    with failpoint_action("stage_chunks", before=fail_second):
        result = pipeline.tick()
    assert result is not None
    assert sorted(seen) == [broken, broken, other]
    assert [line.table for line in result.failed] == [broken]
    pipeline.captured()
    assert pipeline.rows(other) == pipeline.source_rows(other)
    changes = Layout(pipeline.target).changes(broken)
    assert not table_exists(pipeline.spark, changes) or not batches_with_reads(pipeline, broken), "half a group is none"
    pipeline.to_its_end()
    assert pipeline.rows(broken) == pipeline.source_rows(broken)


def test_a_batch_between_two_pieces_is_in_the_window_of_the_first(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row changes behind its read, and the group before publishes that while the rest is still to be read."""
    table = filled(pipeline, 9)
    is_changed, is_published = Event(), Event()

    def change(piece: int) -> None:
        if piece == 2:
            changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 4")
            is_changed.set()
            assert is_published.wait(120)

    with (
        second_group_in_two_pieces(monkeypatch),
        behind("stage_chunks", change),
        beside("publish_group", lambda: is_changed.wait(120)),
        behind("settle_table_snapshot", lambda _: is_published.set()),
    ):
        pipeline.passed()
    first, second = batches_with_reads(pipeline, table)[:2]
    [update] = pipeline.changes(table).where("op = 'u'").collect()
    assert update["__batch"] == first
    assert len(certified(pipeline, table)) == 10
    assert pipeline.changes(table).where(f"__batch = {second} AND key.ID = 4").isEmpty(), "older than its event"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def test_a_pause_that_is_heard_between_two_pieces_ends_the_group(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of it is read again once the snapshot goes on."""
    signals = use_signal_table(pipeline)
    table = filled(pipeline, 9)
    pipeline.passed()
    pieces, is_heard = list[int](), Event()

    def pause(piece: int) -> None:
        pieces.append(piece)
        if piece == 1:
            changed(pipeline, f"INSERT INTO {signals} VALUES ('p', 'pause-snapshot', '{{}}')")
        if piece == 2:
            assert is_heard.wait(120), "behind the first group, while the second one is read"

    with (
        second_group_in_two_pieces(monkeypatch),
        behind("stage_chunks", pause),
        behind("after_group", lambda _: is_heard.set()),
    ):
        *_, snapshot = pipeline.passed(ask(table)).snapshots
    assert (snapshot.status, snapshot.done, pieces) == ("paused", 3, [1, 2])

    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 4", f"DELETE FROM {table} WHERE ID = 5")
    changed(pipeline, f"INSERT INTO {signals} VALUES ('r', 'resume-snapshot', '{{}}')")
    pipeline.to_its_end()
    assert len(certified(pipeline, table)) == 2 * 10, "each chunk was published once"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


def test_a_table_that_nothing_was_read_of_begins_as_carefully_as_the_first(pipeline: Pipeline) -> None:
    """However fast the small one was: how long the other's rows take nobody knows."""
    filled(pipeline, 2, "T1")
    filled(pipeline, 9, "T2")
    seen: list[tuple[str, int]] = []

    def note(reached: ReachedFailpoint) -> None:
        seen.append((reached.arguments["part"].table.name, reached.result.last))

    with failpoint_action("stage_chunks", after=note):
        pipeline.passed()
    assert seen == [("T1", 2), ("T2", 2), ("T2", 9)]


def test_a_ticks_time_that_is_over_ends_a_group_behind_the_piece_that_is_read(pipeline: Pipeline) -> None:
    table = filled(pipeline, 9)
    pipeline.properties = {**pipeline.properties, "snapshot.budget.s": 0}
    assert pipeline.passed().snapshots[0].done == 3
    pipeline.properties = {"incremental.snapshot.chunk.size": 1}
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_a_groups_few_changes_are_brought_by_a_session_set_for_few(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its many rows by one set for many."""
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
