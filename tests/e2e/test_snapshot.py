"""Requested snapshots while a writer works: their published rows, outcomes and reports."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.crash import killed
from support.filled import changed
from support.history import HistoryOptions, random_history
from support.log import captured_events, check_log, events_beside, logged_events, reads
from support.pipeline import Pipeline, Replay, use_signal_table
from support.writing import after_each, writing

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, When, failpoint_action
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.session import TableSessions

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

SMALL = {"incremental.snapshot.chunk.size": 12, "snapshot.group.chunks": 2}
HANGS_S = 300
"""A longer wait is in vain: a group takes seconds."""
ids = itertools.count(1)


def execute(*tables: str, id_: str = "", **data: Any) -> Signal:
    named = {name.replace("_", "-"): value for name, value in data.items()}
    return signal("execute-snapshot", {"data-collections": list(tables), **named}, id_)


def signal(kind: str, data: Mapping[str, Any] | None = None, id_: str = "") -> Signal:
    return Signal(id_ or f"ask{next(ids)}", kind, json.dumps(data or {}), "airflow")


def outcomes(result: JobResult | None) -> dict[str, tuple[str, str]]:
    assert result is not None
    return {outcome.id: (outcome.status, outcome.reason) for outcome in result.signals}


def shown(result: JobResult | None, id_: str) -> SnapshotProgress:
    assert result is not None
    return next(snapshot for snapshot in result.snapshots if snapshot.id == id_)


def notified(result: JobResult | None) -> list[str]:
    assert result is not None
    return [note.type for note in result.notifications]


def certificates(pipeline: Pipeline, snapshot: str) -> list[Any]:
    commits = pipeline.spark.read.format("delta").load(Layout(pipeline.target).internal("commits").name)
    return commits.where(commits.snapshot == snapshot).selectExpr("table", "inline(chunks)").collect()


BESIDE = [
    (11, "read_only", "incremental"),
    pytest.param(12, "insert_insert", "incremental", marks=pytest.mark.long),
    pytest.param(13, "insert_delete", "incremental", marks=pytest.mark.long),
    pytest.param(14, "read_only", "blocking", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("seed", "mark", "kind"), BESIDE)
def test_target_equals_source_after_a_snapshot_while_a_writer_works(
    new_pipeline: Callable[..., Pipeline], seed: int, mark: str, kind: str
) -> None:
    pipeline = new_pipeline()
    use_signal_table(pipeline)
    pipeline.properties = {**pipeline.properties, "incremental.snapshot.watermarking.strategy": mark}
    if mark == "insert_delete":
        pipeline.properties |= {"signal.enabled.channels": "airflow"}
        pipeline.execute(f"INSERT INTO \"{pipeline.schema}\".\"SIGNALS\" VALUES ('unheard', 'log', '{{}}')")
        pipeline.writer.commit()
    options = HistoryOptions(tables=1, transactions=2000, lanes=1, width=40)
    history = random_history(seed, options)
    replay = Replay(pipeline, history)
    replay.prepare()
    pipeline.captured()
    [shape] = history.tables
    table = TableId(pipeline.schema, shape.name)
    # Beyond the history's keys: however many rows the writer leaves, there are several chunks.
    resting = [(*(at for _ in shape.key), at, None) for at in range(1000, 1060)]
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(resting[0]))})"
    pipeline.many(insert, resting)

    def write(read: int) -> None:
        # Of a key that the writer never has: the driver, which is this process, must not wait for the writer's lock.
        pipeline.many(insert, [(*(2000 + read for _ in shape.key), read, None)])

    with writing(pipeline, seed, options):
        first = pipeline.tick()
        assert notified(first)[0] == "STARTED"
        assert notified(first)[-1] == "COMPLETED"
        pipeline.properties |= {"incremental.snapshot.chunk.size": 40, "snapshot.group.chunks": 1}
        ask = execute(f"{pipeline.schema}.T0", type=kind)
        # Even if a read is short and the writer slow, something is written before the read's watermark.
        with after_each("stage_rows", write):
            second = pipeline.tick(ask)
        assert second is not None
        assert outcomes(second)[ask.id] == ("done", "")
        assert shown(second, ask.id).status == "completed"
        assert "unheard" not in outcomes(first) | outcomes(second)
        assert (shown(second, ask.id).chunks or 0) > 1
    pipeline.captured()
    pipeline.tick()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)
    assert first is not None
    start = first.tables[0].after
    assert start is not None
    # Later changes of the same keys would hide the loss of some.
    assert logged_events(pipeline, table) == captured_events(pipeline, table, shape.key, start)
    assert events_beside(pipeline, table, ask.id) > 0, "changes after a read did not come with the snapshot"
    marks = pipeline.query(f'SELECT COUNT(*) FROM "{pipeline.schema}"."SIGNALS" WHERE TYPE LIKE \'snapshot-window-%\'')
    assert (marks[0][0] > 0) == (mark == "insert_insert"), "one strategy leaves its marks, the other deletes them"
    rows = certificates(pipeline, ask.id)
    assert sorted(row["chunk"] for row in rows) == list(range(shown(second, ask.id).chunks or 0))
    assert all(row["rows_read"] == row["rows_dropped"] + row["rows_published"] for row in rows)
    assert sum(row["rows_published"] for row in rows) == sum(part.rows for part in shown(second, ask.id).tables)
    [scanned] = [one.additional_data for one in second.notifications if one.type == "TABLE_SCAN_COMPLETED"]
    assert (scanned["total_rows_scanned"], scanned["status"]) == (
        str(sum(row["rows_read"] for row in rows)),
        "SUCCEEDED",
    )


@pytest.fixture
def filled(new_pipeline: Callable[..., Pipeline]) -> tuple[Pipeline, TableId, TableId]:
    """A pipeline with two tables of 30 rows, read at once; what is asked for then is read in groups."""
    pipeline, *tables = fill(new_pipeline())
    pipeline.properties = SMALL
    return pipeline, tables[0], tables[1]


def fill(pipeline: Pipeline, *keys: str) -> tuple[Pipeline, TableId, TableId]:
    """Make two tables of 30 rows with keys of these types, by default integers, and snapshot them."""
    tables = []
    for name, key in zip(("T0", "T1"), keys or ("INTEGER", "INTEGER"), strict=True):
        ddl = f'CREATE TABLE "{pipeline.schema}"."{name}" (ID {key} NOT NULL PRIMARY KEY, A VARCHAR(9), S INTEGER)'
        tables.append(pipeline.create(ddl, name))
        rows = [(at, "a", 100 - at) for at in range(30)]
        pipeline.many(f'INSERT INTO "{pipeline.schema}"."{name}" VALUES (?, ?, ?)', rows)
    pipeline.captured()
    result = pipeline.passed()
    assert len({line.lsn for line in result.tables}) == 1, "the tables do not end at one commit"
    manifest = pipeline.spark.read.format("delta").load(Layout(pipeline.target).internal("manifest").name)
    assert manifest.count() == 1
    return pipeline, tables[0], tables[1]


def test_requests_with_conditions_selects_and_surrogate_keys(filled: tuple[Pipeline, TableId, TableId]) -> None:
    pipeline, one, two = filled

    def only(table: TableId, condition: str, **data: Any) -> Signal:
        conditions = [{"data-collection": ".*", "filter": condition}]
        return execute(str(table), additional_conditions=conditions, **data)

    columns = f'ID, A, S FROM "{two.schema}"."{two.name}"'
    asks = {
        "part": only(one, "ID >= 10 AND (ID < 20 OR A = ';')"),
        "both": only(two, "S > 90", surrogate_key="S"),
        "select": only(two, f"SELECT {columns} WHERE ID >= 25 ORDER BY ID", type="blocking"),
        "no column": only(two, "NOPE = 1"),
        "bad select": only(two, f"SELECT {columns.replace(', A', '')}", type="blocking"),
        "not unique": execute(str(two), surrogate_key="A"),
    }
    result = pipeline.passed(*asks.values())
    got = {name: outcomes(result)[ask.id] for name, ask in asks.items()}
    assert got["part"] == got["both"] == got["select"] == ("done", "")
    refused = {"no column": "refuses the condition", "not unique": "duplicates", "bad select": "refuses the select"}
    for name, words in refused.items():
        assert got[name][0] == "refused"
        assert words in got[name][1]
    assert got["bad select"][1].endswith("it must yield the captured columns: ID, A, S.")
    assert [shown(result, asks[name].id).tables[0].rows for name in ("part", "both")] == [10, 10]
    assert reads(pipeline, one) == {(at,): 2 if 10 <= at < 20 else 1 for at in range(30)}
    assert reads(pipeline, two) == {(at,): 2 if at < 10 or at >= 25 else 1 for at in range(30)}
    for table in (one, two):
        assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_pause_resume_and_stop_through_the_signal_table(
    new_pipeline: Callable[..., Pipeline], capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = new_pipeline(**SMALL, **{"snapshot.budget.s": 0})
    signals = use_signal_table(pipeline, f"{pipeline.schema}_SIGNALS")
    pipeline.execute(f"INSERT INTO {signals} VALUES ('old', 'log', '{{\"message\": \"x\"}}')")
    ddl = f'CREATE TABLE "{pipeline.schema}"."T0" (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))'
    table = pipeline.create(ddl, "T0")
    pipeline.many(f'INSERT INTO "{pipeline.schema}"."T0" VALUES (?, ?)', [(at, "a") for at in range(55)])
    pipeline.captured()

    def tell(id_: str, kind: str, data: str = "{}") -> None:
        pipeline.execute(f"INSERT INTO {signals} VALUES (?, ?, ?)", id_, kind, data)
        pipeline.writer.commit()
        pipeline.captured()

    asked = signal("log", {"message": "x"})
    first = pipeline.tick(replace(asked, id="older", channel="kafka", at_ms=1), asked)
    for id_ in ("old", "older"):
        assert "first tick" in outcomes(first)[id_][1]
    assert outcomes(first)[asked.id] == ("done", "")
    assert shown(first, "initial-1").done == 2
    for _ in range(2):
        last = pipeline.tick()
    assert shown(last, "initial-1").status == "completed"
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert pipeline.tick() is None

    tell("go", "execute-snapshot", json.dumps({"data-collections": [str(table)]}))
    begun = pipeline.tick()
    assert outcomes(begun)["go"] == ("accepted", "")
    assert shown(begun, "go").done == 2
    tell("note", "log", json.dumps({"message": "at {}"}))
    tell("wait", "pause-snapshot")
    capsys.readouterr()
    paused = pipeline.tick()
    assert outcomes(paused)["note"] == ("done", "")
    stands = pipeline.offsets.get(table)
    assert stands is not None
    assert f"signal note: at {table} {stands.lsn}" in capsys.readouterr().out
    assert outcomes(paused)["wait"] == ("done", "")
    assert shown(paused, "go").status == "paused"
    assert pipeline.tick() is None
    tell("on", "resume-snapshot")
    assert shown(pipeline.tick(), "go").done == 4
    for id_, kind in (("wait2", "pause-snapshot"), ("on2", "resume-snapshot"), ("end", "stop-snapshot")):
        tell(id_, kind)
    ended = pipeline.tick()
    assert outcomes(ended)["go"] == ("stopped", f"stopped: {table} (stopped by a signal)")
    turns = [one for one in notified(ended) if one != "TABLE_SCAN_COMPLETED"]
    assert turns[-3:] == ["PAUSED", "RESUMED", "ABORTED"], "each, though they were read together"
    assert pipeline.tick() is None
    pipeline.execute(f"UPDATE {signals} SET DATA = '{{\"message\": \"again\"}}' WHERE ID = 'note'")
    pipeline.writer.commit()
    pipeline.captured()
    [again] = [one for one in outcomes(pipeline.tick()) if one.startswith("note #")]
    assert outcomes(pipeline.tick(signal("log", {"message": "x"})))[again][0] == "refused", "its id was used"
    tell("anew", "execute-snapshot", json.dumps({"data-collections": [str(table)]}))
    for done in (2, 4, 5):
        assert shown(last := pipeline.tick(), "anew").done == done
    assert outcomes(last)["anew"] == ("done", "")
    kinds = pipeline.changes(table).where("op = 'r'").select("source.snapshot").distinct().collect()
    assert {kind for (kind,) in kinds} == {"true", "incremental"}

    pipeline.properties = {**pipeline.properties, "incremental.snapshot.watermarking.strategy": "insert_insert"}
    pipeline.execute(f'UPDATE "{pipeline.schema}"."T0" SET A = \'b\' WHERE ID < 5')
    pipeline.writer.commit()
    pipeline.captured()
    spec = pipeline.plan(signals=[execute(str(table))])
    pipeline.execute(f"DROP TABLE {signals}")
    pipeline.writer.commit()
    assert spec is not None
    [line] = job.run(spec).tables
    assert line.status == "failed"
    assert line.updates == 5, "the tables' changes do not wait for a snapshot that cannot be read"


@pytest.mark.long
def test_a_group_read_during_a_pause_and_resumption_is_read_again(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline, one, _ = fill(new_pipeline(), "DOUBLE", "DOUBLE")
    pipeline.properties = {**SMALL, "snapshot.group.chunks": 1}
    signals = use_signal_table(pipeline, f"{pipeline.schema}_SIGNALS")
    heard = threading.Event()

    def tell(number: int) -> None:
        kind = {1: "pause-snapshot", 2: "resume-snapshot"}.get(number)
        if kind is not None:
            assert number == 1 or heard.wait(HANGS_S), "the pause is handled while the second group is read"
            pipeline.execute(f"INSERT INTO {signals} VALUES (?, ?, '{{}}')", kind, kind)
            pipeline.writer.commit()
            pipeline.captured()

    ask = execute(str(one))
    with after_each("stage_rows", tell), after_each("after_group", lambda _: heard.set()):
        got = outcomes(result := pipeline.passed(ask))
    assert {got[id_][0] for id_ in ("pause-snapshot", "resume-snapshot", ask.id)} == {"done"}
    assert pipeline.rows(one) == pipeline.source_rows(one)
    chunks = [row["chunk"] for row in certificates(pipeline, ask.id)]
    assert sorted(chunks) == list(range(shown(result, ask.id).chunks or 0))


@pytest.mark.long
def test_rows_are_compared_once_and_before_capture_is_awaited(filled: tuple[Pipeline, TableId, TableId]) -> None:
    pipeline, one, _ = filled
    done: list[str] = []
    with (
        after_each("compare_rows", lambda _: done.append("compared")),
        after_each("await_high_mark", lambda _: done.append("waited")),
    ):
        pipeline.passed(execute(str(one)))
    assert done == ["compared", "waited"] * (len(done) // 2)
    assert done
    assert pipeline.rows(one) == pipeline.source_rows(one)


@pytest.mark.long
def test_a_group_read_ahead_does_not_override_changes_pulled_before_it(
    filled: tuple[Pipeline, TableId, TableId],
) -> None:
    """Its staged rows are older than the state by then. The change is in the batch before its own."""
    pipeline, one, _ = filled
    pipeline.properties = {**SMALL, "incremental.snapshot.watermarking.strategy": "read_only"}
    is_changed = threading.Event()

    def change(group: int) -> None:
        if group == 2:
            pipeline.execute(f"UPDATE {one} SET A = 'new' WHERE ID = 28")
            pipeline.execute(f"DELETE FROM {one} WHERE ID = 29")
            pipeline.writer.commit()
            pipeline.captured()
            is_changed.set()

    def wait(_: ReachedFailpoint) -> None:
        assert is_changed.wait(HANGS_S), "the second group is read while the first one waits for capture"

    with after_each("stage_rows", change), failpoint_action("await_high_mark", before=wait):
        pipeline.passed(ask := execute(str(one)))
    assert [row["rows_dropped"] for row in certificates(pipeline, ask.id)][-1] == 2
    assert pipeline.rows(one) == pipeline.source_rows(one)
    check_log(pipeline, one)


@pytest.mark.long
def test_a_state_that_changed_since_it_was_compared_is_compared_again(
    filled: tuple[Pipeline, TableId, TableId],
) -> None:
    """By another run of the pipeline, whose commits have the mark of the pipeline."""
    pipeline, one, _ = filled
    layout = Layout(pipeline.target)
    state, mark = layout.state(one).name, BatchLog(pipeline.spark, layout, "test").prepare().mark
    other = TableSessions(pipeline.spark, mark).session(one, 0)

    def delete(group: int) -> None:
        if group == 1:
            other.sql(f"DELETE FROM delta.`{state}` WHERE ID % 7 = 0")

    with after_each("await_high_mark", delete):
        pipeline.passed(execute(str(one)))
    assert pipeline.rows(one) == pipeline.source_rows(one)


@pytest.mark.long
def test_a_signal_table_that_is_not_captured_is_read_as_it_is(filled: tuple[Pipeline, TableId, TableId]) -> None:
    pipeline, one, _ = filled
    signals = f"{pipeline.schema}.ASKED"
    pipeline.execute(f"CREATE TABLE {signals} (ID VARCHAR(42), TYPE VARCHAR(32), DATA VARCHAR(2048))")
    pipeline.writer.commit()
    pipeline.properties = {
        **pipeline.properties,
        "signal.data.collection": signals,
        "table.include.list": f"{pipeline.schema}\\.T.*",
    }
    spec = pipeline.plan(signals=[signal("log", {"message": "x"})])
    assert spec is not None
    data = json.dumps({"data-collections": [str(one)]})
    pipeline.execute(f"INSERT INTO {signals} VALUES ('go', 'execute-snapshot', ?), ('no', NULL, '{{}}')", data)
    pipeline.writer.commit()
    result = job.run(spec)
    pipeline.commit(result)
    got = outcomes(result)
    assert (got["go"], got["no"][0]) == (("done", ""), "refused")
    assert set(reads(pipeline, one).values()) == {2}
    assert pipeline.tick() is None, "they were read"


@pytest.mark.long
def test_a_refused_signal_table_does_not_block_its_changes(
    filled: tuple[Pipeline, TableId, TableId],
) -> None:
    pipeline, one, _ = filled
    # A carried table that has not the three columns.
    pipeline.properties = {**pipeline.properties, "signal.data.collection": str(one)}
    pipeline.execute(f"DELETE FROM {one} WHERE ID = 1")
    pipeline.writer.commit()
    pipeline.captured()
    result = pipeline.tick()
    assert result is not None
    assert [(line.table, line.is_replicated) for line in result.failed] == [(one, False)]
    assert "has no column type" in result.failed[0].error
    assert pipeline.rows(one) == pipeline.source_rows(one)
    assert load(pipeline.spark, Layout(pipeline.target).internal("manifest")).count() == 2


def versions(pipeline: Pipeline, table: TableId) -> list[int]:
    path = Layout(pipeline.target).state(table).name
    return sorted(row["version"] for row in pipeline.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect())


def broken(_: ReachedFailpoint) -> None:
    raise OSError("the disk is full")


@pytest.fixture(params=["INTEGER", "DOUBLE"], ids=["by chunk", "by a sweep"])
def large(
    request: pytest.FixtureRequest, new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> tuple[Pipeline, TableId]:
    """A pipeline with a table of large groups. Spark orders the second key unlike the source."""
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    pipeline, table, _ = fill(new_pipeline(), request.param, request.param)
    pipeline.properties = SMALL
    return pipeline, table


def test_a_new_snapshot_finds_uncaptured_changes(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing rows of T0 are found chunk by chunk. Spark may sort the keys of T1 otherwise, so they are found last."""
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    pipeline, *tables = fill(new_pipeline(), "INTEGER", "DOUBLE")
    pipeline.properties = SMALL
    for table in tables:
        pipeline.unseen(
            table, f"DELETE FROM {table} WHERE ID < 2 OR ID = 29", f"UPDATE {table} SET A = 'b' WHERE ID = 5"
        )
        assert pipeline.rows(table) != pipeline.source_rows(table)
    newest = {table: max(row["__batch"] for row in pipeline.state(table).collect()) for table in tables}
    known = [pipeline.offsets.get(table) for table in tables]
    ask = execute(*map(str, tables))
    assert outcomes(pipeline.passed(ask))[ask.id] == ("done", "")
    for table in tables:
        assert pipeline.rows(table) == pipeline.source_rows(table)
        gone = pipeline.changes(table).where("op = 'd'").collect()
        assert sorted(row["key"]["ID"] for row in gone) == [0, 1, 29]
        assert {row["source"]["snapshot"] for row in gone} == {"incremental"}
        assert pipeline.changes(table).where("op IS NULL").count() == 3
        assert set(reads(pipeline, table).values()) == {1, 2}
        written = pipeline.state(table).where(f"__batch > {newest[table]}").collect()
        assert [row["ID"] for row in written] == [5], "rows that were right are not written"
    times = [[one and one.commit_ts_ms for one in offsets] for offsets in (known, map(pipeline.offsets.get, tables))]
    assert times[0] == times[1], "deletions of missing rows are not a commit of the source"


@pytest.mark.long
def test_a_group_that_died_after_its_merge_logs_each_deletion_once(
    large: tuple[Pipeline, TableId],
) -> None:
    pipeline, one = large
    pipeline.unseen(one, f"UPDATE {one} SET A = 'c' WHERE ID = 7")
    pipeline.unseen(one, f"DELETE FROM {one} WHERE ID = 8")
    spec = pipeline.plan(signals=[execute(str(one))])
    assert spec is not None
    with failpoint_action("merge_state", before=broken):
        [failed] = job.run(spec).failed
    assert (failed.table, failed.error.partition(":")[0]) == (one, "OSError")
    with killed("merge_state", "after"):
        job.run(spec)
    retried = {line.table: line for line in job.run(spec).tables}[one]
    assert pipeline.rows(one) == pipeline.source_rows(one)
    assert (retried.rows, retried.deletes, retried.state_version) == (29, 1, versions(pipeline, one)[-1])
    assert pipeline.changes(one).where("op = 'd'").count() == 1


@pytest.mark.long
def test_blocking_snapshot_reads_all_tables_at_one_watermark(filled: tuple[Pipeline, TableId, TableId]) -> None:
    pipeline, one, two = filled
    ask = execute(f"{pipeline.schema}\\..*", type="blocking")
    result = pipeline.tick(ask)
    assert result is not None
    assert outcomes(result)[ask.id] == ("done", "")
    assert len({line.lsn for line in result.tables}) == 1
    assert {line.reads for line in result.tables} == {30}
    rows = pipeline.changes(two).where("op = 'r'").groupBy("source.snapshot").count().collect()
    assert {row[0]: row[1] for row in rows} == {"true": 60}
    assert pipeline.rows(one) == pipeline.source_rows(one)

    some = [{"data-collection": str(two), "filter": "ID < 5"}]
    part = execute(str(two), type="blocking", additional_conditions=some)
    assert outcomes(pipeline.tick(part))[part.id] == ("done", "")
    assert reads(pipeline, two) == {(at,): 3 if at < 5 else 2 for at in range(30)}

    columns = f'ID, A, S FROM "{two.schema}"."{two.name}"'
    for select, outcome in (
        (f"SELECT {columns} WHERE ID >= 25 ORDER BY ID", ("done", "")),
        (f"SELECT {columns.replace(', A', '')}", ("refused", f"the source refuses the select for {two}: ")),
    ):
        some = [{"data-collection": str(two), "filter": select}]
        part = execute(str(two), type="blocking", additional_conditions=some)
        status, reason = outcomes(pipeline.tick(part))[part.id]
        assert (status, reason[: len(outcome[1])]) == outcome
        assert reason.endswith("it must yield the captured columns: ID, A, S.") == (status == "refused")
    assert reads(pipeline, two) == {(at,): 3 if at < 5 or at >= 25 else 2 for at in range(30)}

    pipeline.properties = {**pipeline.properties, "snapshot.budget.s": 0}
    first, second = execute(str(two), type="blocking", id_="zz"), execute(str(one), type="blocking", id_="aa")
    begun = outcomes(pipeline.tick(first, second))
    assert (begun["zz"], begun["aa"]) == (("done", ""), ("accepted", "")), "in the order in which they were asked for"
    assert outcomes(pipeline.tick())["aa"] == ("done", "")
    assert (set(reads(pipeline, one).values()), min(reads(pipeline, two).values())) == ({3}, 3)


STEPS: list[tuple[Failpoint, When, int]] = [
    ("stage_rows", "after", 1),
    ("plan_batch", "after", 2),
    ("merge_state", "after", 1),
    ("write_journal", "before", 2),
    ("put_summary", "before", 1),
]
UNTOLD = ("write_journal", "put_summary")


@pytest.mark.long
def test_a_killed_snapshot_continues_after_its_last_published_chunk(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline, one, two = fill(new_pipeline(**SMALL))
    half: dict[str, Any] = {"additional_conditions": [{"data-collection": str(one), "filter": "ID < 15"}]}
    for number, (step, when, at) in enumerate(STEPS):
        pipeline.unseen(one, f"UPDATE {one} SET A = '{step[:9]}' WHERE ID < 3")
        ask = execute(str(one), str(two), id_=f"killed-{number}", **(half if number % 2 else {}))
        spec = pipeline.plan(signals=[ask])
        assert spec is not None
        with killed(step, when, at):
            pipeline.commit(job.run(spec))
        pipeline.execute(f'UPDATE "{one.schema}"."{one.name}" SET ID = ID + 1 WHERE ID > 15')
        pipeline.writer.commit()
        pipeline.captured()
        result = pipeline.tick() if step in UNTOLD else pipeline.tick(ask)
        assert result is not None
        assert notified(result)[-1] == "COMPLETED", step
        assert outcomes(result)[ask.id] == ("done", ""), step
        for table in (one, two):
            assert pipeline.rows(table) == pipeline.source_rows(table), step
            assert {line.table: line.rows for line in result.tables}[table] == 30, step
        found = [(row["table"], row["chunk"]) for row in certificates(pipeline, ask.id)]
        assert len(found) == len(set(found)) == shown(result, ask.id).chunks


@pytest.mark.long
def test_a_restored_state_stops_its_table_until_a_restart(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table = pipeline.create(f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))", "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(1, "old"), (2, "old")])
    pipeline.captured()
    filled = pipeline.passed().tables[0].state_version
    pipeline.execute(f"DELETE FROM {table}")
    pipeline.writer.commit()
    pipeline.captured()
    assert pipeline.passed().tables[0].rows == 0
    path = Layout(pipeline.target).state(table).name
    pipeline.spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {filled}")

    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(1, "new")])
    pipeline.captured()
    result = pipeline.tick()
    assert result is not None
    assert "somebody else has changed its current state" in result.tables[0].error
    assert pipeline.rows(table) == {(1, "old"), (2, "old")}
    pipeline.restart(table)
    assert pipeline.passed().tables[0].rows == 1
    assert pipeline.rows(table) == {(1, "new")}


@pytest.mark.long
@pytest.mark.parametrize("moved", ["state", pytest.param("changes", marks=pytest.mark.long)])
def test_a_moved_target_stops_its_table_until_it_is_back_or_restarted(
    new_pipeline: Callable[..., Pipeline], moved: str
) -> None:
    """A new target would have only later changes, and would not show that the rest is missing."""
    pipeline, one, other = fill(new_pipeline())
    place = Path(getattr(Layout(pipeline.target), moved)(one).name)
    place.rename(f"{place}.away")
    changed(pipeline, f"UPDATE {one} SET A = 'b' WHERE ID = 1", f"UPDATE {other} SET A = 'b' WHERE ID = 1")
    result = pipeline.tick()
    assert result is not None
    [failed] = result.failed
    assert (failed.table, place.exists()) == (one, False)
    assert "is not there any more" in failed.error
    Path(f"{place}.away").rename(place)
    pipeline.to_its_end()
    assert pipeline.rows(one) == pipeline.source_rows(one)
    check_log(pipeline, one)


@pytest.mark.long
def test_rows_are_recounted_if_the_tables_were_moved_away(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline, one, _ = fill(new_pipeline())
    layout = Layout(pipeline.target)
    for name in (layout.changes(one).name, layout.state(one).name):
        Path(name).rename(f"{name}.away")
    pipeline.restart(one)

    def counted() -> int | None:
        pipeline.captured()
        return {line.table: line.rows for line in pipeline.passed().tables}[one]

    assert counted() == 30 == pipeline.state(one).count()
    pipeline.execute(f'DELETE FROM "{one.schema}"."{one.name}" WHERE ID = 1')
    pipeline.writer.commit()
    assert counted() == 29 == pipeline.state(one).count()
