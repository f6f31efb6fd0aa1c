"""Tables without a key, end to end: equal rows, updates of some of them, snapshots while a writer works."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.crash import killed
from support.filled import changed
from support.pipeline import Pipeline
from support.writing import after_each, in_window

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import KeylessRead
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, When, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

NAMES = [f"n{at}" for at in range(400)]
DDL = 'CREATE TABLE "{schema}"."{name}" (A INTEGER, V VARCHAR(9), X DOUBLE, B CHAR(2) FOR BIT DATA)'


def rows_of(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows, many of them equal and some almost equal."""
    return [
        (rng.choice((None, 1, 2)), rng.choice(NAMES[:40]), rng.choice((None, 0.5)), rng.choice((None, b"\x00\xff")))
        for _ in range(count)
    ]


def transactions(rng: random.Random, table: TableId, names: list[str], count: int) -> list[list[str]]:
    """Transactions that add equal rows, change and delete all of some name, and now and then cancel out."""

    def statement() -> str:
        name, other = rng.sample(names, 2)
        row = f"({rng.choice(('NULL', '1', '2'))}, '{name}', {rng.choice(('NULL', '0.5E0'))}, NULL)"
        return rng.choice(
            [
                *[f"INSERT INTO {table} VALUES {row}, {row}"] * 4,
                f"INSERT INTO {table} VALUES {row}",
                f"UPDATE {table} SET V = '{other}', X = NULL WHERE V = '{name}' AND A = 1",
                f"UPDATE {table} SET V = V WHERE V = '{name}'",
                *[f"DELETE FROM {table} WHERE V = '{name}' AND A = 2"] * 2,
            ]
        )

    return [[statement() for _ in range(rng.choice((1, 1, 2)))] for _ in range(count)]


def bare(pipeline: Pipeline, count: int, name: str = "BARE", **registration: Any) -> TableId:
    table = pipeline.create(DDL.format(schema=pipeline.schema, name=name), name, **registration)
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", rows_of(random.Random(1), count))
    return table


def target_rows(pipeline: Pipeline, table: TableId) -> Counter[tuple[Any, ...]]:
    """Return the target's rows; the copies of each are numbered from one."""
    rows = pipeline.state(table).select("A", "V", "X", "B", "__copy").collect()
    found = Counter(_image(row[:4]) for row in rows)
    copies = {(_image(row[:4]), row["__copy"]) for row in rows}
    assert copies == {(image, copy) for image, count in found.items() for copy in range(1, count + 1)}
    return found


def at_source(pipeline: Pipeline, table: TableId) -> Counter[tuple[Any, ...]]:
    return Counter(_image(row) for row in pipeline.query(f"SELECT * FROM {table}"))


def replayed(pipeline: Pipeline, table: TableId) -> Counter[tuple[Any, ...]]:
    """Return what the change log adds up to: it counts, and what was read takes the place of what was counted."""
    held: Counter[tuple[Any, ...]] = Counter()
    read_at: dict[tuple[Any, ...], Any] = {}
    for row in pipeline.changes(table).collect():
        assert row["key"] is None
        assert row["op"] is not None, "a tombstone without a key"
        before, after = (None if row[name] is None else _image(row[name]) for name in ("before", "after"))
        if row["op"] == "r":
            assert after is not None
            at = row["__batch"]
            held[after] = held[after] + 1 if read_at.get(after) == at else 1
            read_at[after] = at
            continue
        if before is not None:
            held[before] = max(0, held[before] - 1)
        if after is not None:
            held[after] += 1
    return +held


def reads(pipeline: Pipeline, table: TableId) -> int:
    """Return how many times the table was read: its `r` rows are numbered by chunk."""
    last = pipeline.changes(table).where("op = 'r'").selectExpr("max(__ordinal)").first()
    assert last is not None
    return int(last[0]) - 1


def ask(kind: str, table: TableId, id_: str, **data: Any) -> Signal:
    return Signal(id_, kind, json.dumps({"data-collections": [str(table)], **data}), "airflow")


def status(result: JobResult | None, id_: str) -> tuple[str, str]:
    assert result is not None
    assert not result.failed, result.failed
    return next((one.status, one.reason) for one in result.signals if one.id == id_)


def _image(row: Any) -> tuple[Any, ...]:
    return (*row[:3], None if row[3] is None else bytes(row[3]))


def test_equal_rows_are_counted_while_a_writer_works(new_pipeline: Callable[..., Pipeline]) -> None:
    """One table has halves of updates in its change table. The other one has rows with before images."""
    pipeline = new_pipeline()
    table = bare(pipeline, 600)
    images = bare(pipeline, 300, "IMAGES", update_as="U", before_img_prefix="X")
    pipeline.captured()
    upcoming = iter(transactions(random.Random(1), table, NAMES[:200], 500))
    surely = [
        f"UPDATE {table} SET V = 'moved', X = NULL WHERE V = (SELECT MAX(V) FROM {table} WHERE V <> 'moved')",
        f"DELETE FROM {table} WHERE V = (SELECT MIN(V) FROM {table})",
    ]

    def write(read: int) -> None:
        for transaction in [surely, *itertools.islice(upcoming, 8)] if read == 1 else []:
            for statement in transaction:
                pipeline.execute(statement)
            pipeline.writer.commit()

    with after_each("stage_rows", write):
        first = pipeline.passed()
    for transaction in transactions(random.Random(2), images, NAMES[:60], 100):
        for statement in transaction:
            pipeline.execute(statement)
        pipeline.writer.commit()
    pipeline.captured()
    with after_each("stage_rows", write):
        second = pipeline.tick(ask("execute-snapshot", table, "again"))
    assert [note.type for note in first.notifications][-1] == "COMPLETED"
    assert status(second, "again") == ("done", "")
    assert reads(pipeline, table) > 1, "what was written after the read did not have the table read again"
    pipeline.to_its_end()
    for one in (table, images):
        assert target_rows(pipeline, one) == at_source(pipeline, one) == replayed(pipeline, one)
    ops = {row["op"] for row in pipeline.changes(table).select("op").distinct().collect()}
    assert ops == {"c", "u", "d", "r"}
    assert pipeline.changes(images).where("op = 'u'").count() > 0


@pytest.mark.long
def test_an_update_of_a_row_of_nulls_without_a_key_is_refused(new_pipeline: Callable[..., Pipeline]) -> None:
    """A before image of only nulls looks like none."""
    pipeline = new_pipeline()
    table = bare(pipeline, 5, update_as="U", before_img_prefix="X")
    pipeline.captured()
    pipeline.passed()
    changed(pipeline, f"INSERT INTO {table} VALUES (NULL, NULL, NULL, NULL)")
    changed(pipeline, f"UPDATE {table} SET V = 'told' WHERE V IS NULL")
    result = pipeline.tick()
    assert result is not None
    assert "or of which each column was null" in result.failed[0].error


@pytest.mark.long
def test_a_busy_table_is_reported_until_it_rests(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.tick.snapshot.publisher.MAX_READS", 2)
    pipeline = new_pipeline()
    table = bare(pipeline, 20)
    pipeline.captured()

    windows: list[int] = []

    def count(reached: ReachedFailpoint) -> None:
        entry: PlannedBatch = reached.result
        windows.append(len(entry.chunk_range.windows) if isinstance(entry.chunk_range, KeylessRead) else 0)

    def write(_: int) -> None:
        pipeline.execute(f"INSERT INTO {table} VALUES (1, 'restless', NULL, NULL)")
        pipeline.writer.commit()

    with after_each("stage_rows", write), failpoint_action("plan_chunks", after=count):
        for _ in range(2):
            restless = pipeline.tick()
            assert restless is not None
            [line] = restless.failed
            assert f"{table}: it has no key, and some of its rows came or went during each of 2 reads" in line.error
    assert windows == [1, 2, 2], "or Spark's plan would grow with each tick"
    pipeline.captured()
    pipeline.passed()
    assert target_rows(pipeline, table) == at_source(pipeline, table) == replayed(pipeline, table)


@pytest.mark.long
def test_a_snapshot_finds_uncaptured_changes(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = bare(pipeline, 60)
    pipeline.captured()
    pipeline.tick()
    pipeline.unseen(
        table,
        f"DELETE FROM {table} WHERE V < 'n2'",
        f"INSERT INTO {table} VALUES (1, 'b', NULL, NULL), (1, 'b', NULL, NULL), (9, 'b', NULL, NULL)",
        f"UPDATE {table} SET A = 7 WHERE V > 'n3'",
    )
    pipeline.tick()
    assert target_rows(pipeline, table) != at_source(pipeline, table)

    some = [{"data-collection": str(table), "filter": "V > 'n3'"}]
    part = pipeline.tick(ask("execute-snapshot", table, "part", **{"additional-conditions": some}))
    assert status(part, "part") == ("done", "")
    assert reads(pipeline, table) == 1
    assert target_rows(pipeline, table) - at_source(pipeline, table), "a part of a table does not show what was deleted"

    whole = pipeline.tick(ask("execute-snapshot", table, "whole", type="blocking"))
    assert status(whole, "whole") == ("done", "")
    assert target_rows(pipeline, table) == at_source(pipeline, table) == replayed(pipeline, table)


DEATHS: list[tuple[Failpoint, When, int]] = [
    ("append_changes", "after", 2),
    ("merge_state", "after", 1),
    ("append_changes", "after", 5),
]
"""Steps of two reads: after the deletions and after the state of the first, and after the rows of the second."""


@pytest.mark.long
def test_a_snapshot_survives_a_kill(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = bare(pipeline, 60)
    pipeline.captured()
    pipeline.tick()
    for number, (step, when, at) in enumerate(DEATHS):
        pipeline.unseen(
            table,
            f"DELETE FROM {table} WHERE V = (SELECT MAX(V) FROM {table})",
            f"INSERT INTO {table} VALUES ({number}, 'lost', NULL, NULL), ({number}, 'lost', NULL, NULL)",
        )
        spec = pipeline.plan(signals=[ask("execute-snapshot", table, f"kill{number}")])
        assert spec is not None
        seen = (
            f"UPDATE {table} SET X = {number} WHERE A = 1 OR V = 'lost'",
            f"INSERT INTO {table} VALUES (NULL, 'seen', NULL, NULL)",
        )
        with in_window(pipeline, *seen), killed(step, when, at):
            job.run(spec)
        if number % 2:
            pipeline.commit(job.run(spec))
        else:
            pipeline.execute(f"DELETE FROM {table} WHERE A = 2 AND V = (SELECT MIN(V) FROM {table} WHERE A = 2)")
            pipeline.writer.commit()
            pipeline.captured()
            pipeline.tick()
        assert target_rows(pipeline, table) == at_source(pipeline, table) == replayed(pipeline, table), (step, when, at)
        assert not pipeline.offsets.summary().has_snapshot_work({table}), (step, when, at)


@pytest.mark.long
def test_requests_that_need_a_key_are_refused_for_a_keyless_table(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = bare(pipeline, 5)
    pipeline.captured()
    pipeline.tick()
    result = pipeline.tick(ask("execute-snapshot", table, "cut", **{"surrogate-key": "A"}))
    assert status(result, "cut")[0] == "refused"
    assert f"{table} has no key, so it is read as a whole" in status(result, "cut")[1]

    pipeline.properties = {"column.exclude.list": rf"{table.schema}\.BARE\.V"}
    some = [{"data-collection": str(table), "filter": "V > 'n1'"}]
    result = pipeline.tick(ask("execute-snapshot", table, "part", **{"additional-conditions": some}))
    assert status(result, "part")[0] == "refused"
    assert "it may name captured columns only" in status(result, "part")[1]
    pipeline.properties = {}

    pipeline.properties = {"message.key.columns": f"{table.schema}\\.BARE:A,V,X,B"}
    pipeline.execute(f"INSERT INTO {table} VALUES (5, 'new', NULL, NULL)")
    pipeline.writer.commit()
    pipeline.captured()
    keyed = pipeline.tick()
    assert keyed is not None
    [line] = keyed.failed
    assert "needs column key struct<" in line.error
    assert "move the target's tables of it away" in line.error


@pytest.mark.long
def test_rows_of_an_abandoned_first_batch_are_deleted(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table = bare(pipeline, 20)
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    with killed("commit_batch", "before"):
        job.run(spec)
    left = target_rows(pipeline, table)

    pipeline.execute(f"DELETE FROM {table} WHERE A = 1")
    pipeline.writer.commit()
    pipeline.captured()
    faults.reregister(pipeline.writer, table.schema, table.name)
    pipeline.execute(f"INSERT INTO {table} VALUES (9, 'new', NULL, NULL)")
    pipeline.writer.commit()
    pipeline.captured()
    pipeline.passed()
    assert left != target_rows(pipeline, table) == at_source(pipeline, table) == replayed(pipeline, table)


@pytest.mark.long
@pytest.mark.parametrize("rows", [5, 0], ids=["some rows", "no row"])
def test_copies_logged_by_an_abandoned_batch_are_corrected(new_pipeline: Callable[..., Pipeline], rows: int) -> None:
    """One row is inserted twice and deleted, and one is inserted. Of a third a copy is inserted, and all are deleted.

    The first restart also dies after it has logged its read.
    """
    pipeline = new_pipeline()
    table = bare(pipeline, rows)
    insert, delete = f"INSERT INTO {table} (A, V) VALUES", f"DELETE FROM {table} WHERE V IN"
    if rows:
        changed(pipeline, f"{insert} (1, 'was')")
    pipeline.passed()
    changed(pipeline, f"{insert} (1, 'goes'), (1, 'goes'), (1, 'stays'), (1, 'was')")
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)
    changed(pipeline, f"{delete} ('goes', 'was')", f"{insert} (1, 'read'), (1, 'read')")
    pipeline.restart(table)
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after", 2):
        job.run(spec)
    assert pipeline.changes(table).where("op = 'r' AND after.V = 'read'").count() == 2
    changed(pipeline, f"{delete} ('read')")
    pipeline.restart(table)
    pipeline.to_its_end()
    assert replayed(pipeline, table) == at_source(pipeline, table)
    assert target_rows(pipeline, table) == at_source(pipeline, table)
