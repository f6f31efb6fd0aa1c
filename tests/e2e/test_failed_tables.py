"""A problem is reported for its table, with a remedy. The others continue, and no change is lost."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.crash import killed
from support.log import logged_events
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.offset import request
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.apply import change_pull
from airflow_provider_db2cdc.spark.delta.table_io import load
from airflow_provider_db2cdc.spark.session import SMALL_ROWS

pytestmark = [pytest.mark.spark, pytest.mark.sandbox]

Pair = tuple[Pipeline, TableId, TableId]
numbers = itertools.count(1)
LOGS = ("batches", "commits", "manifest", "journal")


@pytest.fixture(scope="module")
def shared(captured_sandbox: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair of tables that each test repairs again, perhaps with changes that are not pulled."""
    pipeline = Pipeline(captured_sandbox, spark, tmp_path_factory.mktemp("trouble"))
    yield paired(pipeline)
    pipeline.writer.close()


@pytest.fixture
def pair(shared: Pair) -> Pair:
    """A pipeline of two tables, both of which its last tick brought to the source's state.

    Other tests pruned this sandbox while these offsets did not move: that is a gap.
    """
    pipeline, good, bad = shared
    pipeline.captured()
    result = pipeline.tick()
    if lost := result.failed if result is not None else ():
        for line in lost:
            assert "pruned" in line.error, line.error
            pipeline.restart(line.table)
        pipeline.captured()
        pipeline.passed()
    for table in (good, bad):
        assert pipeline.rows(table) == pipeline.source_rows(table), "the previous test did not repair its tables"
    return shared


def paired(pipeline: Pipeline) -> Pair:
    """Make two tables with one row each, and snapshot them."""
    tables = []
    for name in ("GOOD", "BAD"):
        ddl = f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))'
        tables.append(pipeline.create(ddl, name))
    insert(pipeline)
    pipeline.passed()
    return pipeline, tables[0], tables[1]


def insert(pipeline: Pipeline) -> int:
    """Give each table a row of a new number, which is returned, and wait for capture."""
    number = next(numbers)
    for name in ("GOOD", "BAD"):
        pipeline.execute(f'INSERT INTO "{pipeline.schema}"."{name}" VALUES (?, ?)', number, "a")
    pipeline.writer.commit()
    pipeline.captured()
    return number


def test_a_gap_stops_its_table_until_it_is_restarted(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline, good, bad = pair
    lost = insert(pipeline)
    capsys.readouterr()
    pipeline.passed()
    assert re.findall(r" applied: (\d of \d)", capsys.readouterr().out) == ["1 of 2", "2 of 2"]
    pipeline.execute(f'DELETE FROM "{pipeline.schema}"."BAD" WHERE ID = {lost}')
    pipeline.writer.commit()
    fence = pipeline.captured()
    faults.reregister(pipeline.writer, pipeline.schema, "BAD")
    insert(pipeline)
    manifest = Layout(pipeline.target).internal("manifest")
    fit = load(pipeline.spark, manifest).count()

    result = pipeline.tick()

    assert result is not None
    assert [line.table for line in result.failed] == [bad]
    assert "created again" in result.failed[0].error
    assert "offset restart" in result.failed[0].error
    assert pipeline.rows(good) == pipeline.source_rows(good)
    assert load(pipeline.spark, manifest).count() == fit, "one of the versions lags"
    offset = pipeline.offsets.get(bad)
    assert offset is not None
    assert offset.lsn < fence
    pipeline.restart(bad)
    # A batch that the target does not know.
    pipeline.offsets.put(replace(need_offset(pipeline, good), batch=99))
    insert(pipeline)
    pipeline.passed()
    for table in (good, bad):
        assert pipeline.rows(table) == pipeline.source_rows(table)
    assert (lost, "a") not in pipeline.rows(bad)
    assert load(pipeline.spark, manifest).count() > fit


def test_changes_that_only_the_change_log_has_reach_the_state(pair: Pair) -> None:
    pipeline, good, bad = pair
    insert(pipeline)
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after", at=2):
        pipeline.commit(job.run(spec))
    change_tables = [f'ASNCDC."CDC_{table.schema}_{table.name}"' for table in (good, bad)]
    [(last,)] = pipeline.query(f"SELECT MAX(IBMSNAP_COMMITSEQ) FROM {change_tables[0]}")
    faults.prune(pipeline.writer, upto=bytes(last))
    assert [pipeline.query(f"SELECT COUNT(*) FROM {name}") for name in change_tables] == [[(0,)], [(0,)]]
    pipeline.passed()
    for table in (good, bad):
        assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("prefix", "change", "says"),
    [
        ("", "A = 2", "N"),
        pytest.param("", "A = 2", "Y", marks=pytest.mark.long),
        pytest.param("X", "A = 2", "N", marks=pytest.mark.long),
        pytest.param("X", "ID = -ID", "N", marks=pytest.mark.long),
    ],
)
def test_a_pruned_update_row_is_missed_after_a_death(
    new_pipeline: Callable[..., Pipeline], prefix: str, change: str, says: str
) -> None:
    """It is one change row, neither two halves of an update nor a deletion and an insertion.

    Also if the registration `says` pairs, and the agent has not read it again.
    """
    pipeline = new_pipeline(**{"accept.update.rows": True})
    table = begun(pipeline, 3, update_as="U", before_img_prefix=prefix)
    told = "UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = ? WHERE SOURCE_OWNER = ?"
    pipeline.execute(told, says, pipeline.schema)
    pipeline.writer.commit()
    commits = []
    for id_ in (1, 2):
        pipeline.execute(f"UPDATE {table} SET {change} WHERE ID = {id_}")
        pipeline.writer.commit()
        commits.append(pipeline.captured())
    spec = pipeline.plan()
    assert spec is not None
    assert spec.tables[0].rows == 2
    faults.prune(pipeline.writer, upto=commits[0].raw)
    with killed("append_changes", "after"):
        job.run(spec)
    [line] = job.run(spec).tables
    assert "pruned" in line.error


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("update_as", "prefix"), [("DI", ""), ("U", ""), ("U", "X")])
def test_a_fully_logged_batch_continues_though_its_changes_are_pruned(
    new_pipeline: Callable[..., Pipeline], update_as: Any, prefix: str
) -> None:
    pipeline = new_pipeline(**{"accept.update.rows": True})
    table = begun(pipeline, 9, update_as=update_as, before_img_prefix=prefix)
    for change in ("SET A = 2 WHERE ID < 5", "SET A = NULL", "SET ID = -ID WHERE ID > 6" if prefix else "SET A = 3"):
        pipeline.execute(f"UPDATE {table} {change}")
        pipeline.execute(f"DELETE FROM {table} WHERE ID = (SELECT MIN(ID) FROM {table})")
        pipeline.execute(f"INSERT INTO {table} SELECT MAX(ID) + 1, 0 FROM {table}")
        pipeline.writer.commit()
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)
    faults.prune(pipeline.writer)
    result = job.run(spec)
    assert not result.failed, result.failed
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.parametrize("after", ["", "a death", "a death and another plan"])
def test_pruning_between_the_plan_and_its_reads_is_a_gap(pair: Pair, after: str) -> None:
    pipeline, _, bad = pair
    insert(pipeline)
    [(first,)] = pipeline.query(f'SELECT MAX(IBMSNAP_COMMITSEQ) FROM ASNCDC."CDC_{bad.schema}_{bad.name}"')
    insert(pipeline)
    held = pipeline.rows(bad)
    spec = pipeline.plan()
    assert spec is not None
    faults.prune(pipeline.writer, upto=bytes(first))
    if after:
        with killed("append_changes", "after", 2):
            job.run(spec)
    if "another plan" in after:
        insert(pipeline)
        spec = pipeline.plan()
        assert spec is not None
    result = job.run(spec)
    pipeline.commit(result)
    for failed in (result, job.run(spec), pipeline.tick()):
        assert failed is not None
        assert all("pruned" in line.error for line in failed.tables), failed.tables
        assert pipeline.rows(bad) == held
    for line in result.tables:
        pipeline.restart(line.table)
    pipeline.captured()
    pipeline.passed()
    for line in result.tables:
        assert pipeline.rows(line.table) == pipeline.source_rows(line.table)
        assert set(logged_events(pipeline, line.table).values()) <= {1}


@pytest.mark.long
def test_a_table_whose_first_batch_cannot_be_redone_is_restarted(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    for name in ("GOOD", "BAD"):
        pipeline.create(f"CREATE TABLE {pipeline.schema}.{name} (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))", name)
    insert(pipeline)
    spec = pipeline.plan()
    assert spec is not None
    pipeline.execute(f"INSERT INTO {pipeline.schema}.GOOD VALUES (0, 'x')")
    pipeline.writer.commit()
    pipeline.captured()
    with killed("commit_batch", "before"):
        job.run(spec)
    faults.reregister(pipeline.writer, pipeline.schema, "BAD")
    insert(pipeline)
    result = pipeline.tick()
    assert result is not None
    [line] = result.failed
    assert f"db2cdc offset restart {line.table}" in line.error
    assert pipeline.offsets.get(line.table) is None

    request(write_config(pipeline), "restart", [str(line.table)])
    pipeline.passed()
    assert pipeline.rows(line.table) == pipeline.source_rows(line.table)
    offset = pipeline.offsets.get(line.table)
    assert offset is not None
    assert not offset.restart


@pytest.mark.long
@pytest.mark.parametrize("small_rows", [pytest.param(SMALL_ROWS, marks=pytest.mark.long), 0])
def test_updates_without_an_old_row_stop_their_table_until_a_restart(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, small_rows: int
) -> None:
    """The registration says 'Y'. The agent reads it only at its start, and continues with the old setting."""
    monkeypatch.setattr(change_pull, "SMALL_ROWS", small_rows)
    pipeline = new_pipeline()
    good = pipeline.create(f"CREATE TABLE {pipeline.schema}.GOOD (ID INTEGER NOT NULL PRIMARY KEY, A INTEGER)", "GOOD")
    stale = [
        pipeline.create(f"CREATE TABLE {pipeline.schema}.{name} (ID INTEGER{key}, A INTEGER)", name, update_as="U")
        for name, key in (("KEYED", " NOT NULL PRIMARY KEY"), ("BARE", ""))
    ]
    for table in (good, *stale):
        pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(number, 1) for number in (1, 2)])
    pipeline.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'Y' WHERE SOURCE_OWNER = ?", good.schema)
    pipeline.writer.commit()
    pipeline.captured()
    pipeline.passed()
    appended = [pipeline.changes(table).count() for table in stale]

    for table in (good, *stale):
        pipeline.execute(f"UPDATE {table} SET ID = -ID, A = 2")
    pipeline.writer.commit()
    pipeline.captured()
    for _ in range(2):
        result = pipeline.tick()
        assert result is not None
        assert {line.table for line in result.failed} == {*stale}
        for line in result.failed:
            assert f"{line.table} holds updates as single rows (U)" in line.error
            assert "CHG_UPD_TO_DEL_INS = 'Y'" in line.error
            assert "reinit" in line.error
            assert f"db2cdc offset restart {line.table}" in line.error
        assert [pipeline.changes(table).count() for table in stale] == appended
        assert pipeline.rows(good) == pipeline.source_rows(good)

    for table in stale:
        pipeline.restart(table)
    pipeline.passed()
    for table in stale:
        assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_offsets_of_an_idle_pipeline_move_on_and_its_tables_do_not(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline, good, bad = pair
    while pipeline.tick() is not None:
        pass
    kept = {table: pipeline.offsets.get(table) for table in (good, bad)}
    pipeline.captured()
    assert pipeline.tick() is None
    for offset in kept.values():
        assert offset is not None
        pipeline.offsets.put(replace(offset, planned_at_ms=0))
    capsys.readouterr()
    [one, other] = pipeline.passed().tables
    assert " applied: " not in capsys.readouterr().out
    for line in (one, other):
        before, after = kept[line.table], pipeline.offsets.get(line.table)
        assert before is not None
        assert after is not None
        assert before.lsn < after.lsn == line.lsn
        assert before.commit_ts_ms == after.commit_ts_ms
        assert (line.creates, line.updates, line.deletes, line.reads) == (0, 0, 0, 0)
    assert one.lsn == other.lsn
    assert pipeline.tick() is None
    pipeline.execute(f'INSERT INTO "{pipeline.schema}"."GOOD" VALUES (?, ?)', next(numbers), "a")
    pipeline.writer.commit()
    pipeline.captured()
    capsys.readouterr()
    assert [line.creates for line in pipeline.passed().tables] in ([1, 0], [0, 1])
    assert " applied: " not in capsys.readouterr().out, "the other table has only its old position"


@pytest.mark.long
def test_tables_that_were_compacted_and_vacuumed_continue(pair: Pair) -> None:
    pipeline, good, _ = pair
    for _ in range(2):
        insert(pipeline)
        pipeline.passed()
    layout, spark = Layout(pipeline.target), pipeline.spark
    logged, held = pipeline.changes(good).collect(), pipeline.rows(good)
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(check, "false")
    for name in (layout.changes(good).name, layout.state(good).name):
        assert len([*Path(name).glob("*.parquet")]) > 1
        spark.sql(f"OPTIMIZE delta.`{name}`")
        spark.sql(f"VACUUM delta.`{name}` RETAIN 0 HOURS")
        assert len([*Path(name).glob("*.parquet")]) == 1
    spark.conf.unset(check)
    assert (pipeline.changes(good).collect(), pipeline.rows(good)) == (logged, held)

    insert(pipeline)
    pipeline.passed()

    assert pipeline.rows(good) == pipeline.source_rows(good)
    assert len(pipeline.changes(good).collect()) == len(logged) + 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["initial", pytest.param("when_needed", marks=pytest.mark.long)])
def test_changes_during_an_inactive_registration_are_a_gap(new_pipeline: Callable[..., Pipeline], mode: str) -> None:
    """The registration does not show it afterwards. The plan that found it has recorded it in the offset."""
    pipeline, good, bad = paired(new_pipeline(**{"snapshot.mode": mode}))
    faults.set_state(pipeline.writer, pipeline.schema, "BAD", "S")
    insert(pipeline)
    pipeline.captured()
    result = pipeline.tick()
    assert result is not None
    [failed] = result.failed
    assert (failed.table, "registered in state 'S'" in failed.error) == (bad, True)
    faults.set_state(pipeline.writer, pipeline.schema, "BAD", "A")
    insert(pipeline)
    pipeline.captured()

    result = pipeline.tick()

    assert result is not None
    assert pipeline.rows(good) == pipeline.source_rows(good)
    if mode == "initial":
        [failed] = result.failed
        assert "its registration was not active for a while" in failed.error
        pipeline.restart(bad)
        result = pipeline.tick()
    assert result is not None
    assert not result.failed
    assert pipeline.rows(bad) == pipeline.source_rows(bad)
    assert not need_offset(pipeline, bad).capture_interrupted


@pytest.mark.long
@pytest.mark.slow
def test_a_plan_at_the_time_of_a_dead_commit_is_not_its_retry(new_pipeline: Callable[..., Pipeline]) -> None:
    """With offsets ahead of the planner's clock both have the same millisecond. A restart in between is not over."""
    pipeline, good, _ = paired(new_pipeline())
    ahead_ms = int(time.time() * 1000) + 600_000
    pipeline.offsets.put(replace(need_offset(pipeline, good), planned_at_ms=ahead_ms))
    insert(pipeline)
    pipeline.captured()
    first = pipeline.plan()
    assert first is not None
    job.run(first)
    pipeline.restart(good)

    second = pipeline.plan()

    assert second is not None
    assert first.planned_at_ms == second.planned_at_ms
    result = job.run(second)
    assert not result.failed
    assert [one.status for one in result.snapshots] == ["completed"]
    pipeline.commit(result)
    assert not need_offset(pipeline, good).restart
    with pytest.raises(ConcurrentRunError, match="A later run has continued from here"):
        job.run(first)


@pytest.mark.long
@pytest.mark.slow
def test_a_restart_requested_during_another_belongs_to_the_next_tick(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline, good, _ = paired(new_pipeline())
    config = write_config(pipeline)
    request(config, "restart", [str(good)])
    spec = pipeline.plan()
    assert spec is not None
    result = job.run(spec)
    request(config, "restart", [str(good)])
    pipeline.commit(result)
    assert need_offset(pipeline, good).restart


def begun(pipeline: Pipeline, rows: int, **registration: Any) -> TableId:
    """A table T of so many rows that is in the target."""
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A INTEGER)"
    table = pipeline.create(ddl, "T", **registration)
    pipeline.many(f"INSERT INTO {table} VALUES (?, 1)", [(at,) for at in range(rows)])
    pipeline.captured()
    pipeline.passed()
    return table


def write_config(pipeline: Pipeline) -> Path:
    file = pipeline.folder / "pipeline.json"
    own = {"pipeline": "test", "target": pipeline.target, "offsets.file": str(pipeline.offsets.path)}
    file.write_text(json.dumps(own))
    return file


def need_offset(pipeline: Pipeline, table: TableId) -> Offset:
    offset = pipeline.offsets.get(table)
    assert offset is not None
    return offset


def test_no_error_about_an_unreadable_row_shows_its_values(
    new_pipeline: Callable[..., Pipeline], capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark's own error quotes the value, and the statement with its filter."""
    pipeline = new_pipeline()
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))"
    table = pipeline.create(ddl, "T")
    pipeline.execute(f"INSERT INTO {table} VALUES (1, 'c4n4ry')")
    pipeline.writer.commit()
    pipeline.captured()
    spec = pipeline.plan()
    assert spec is not None
    schema = spec.tables[0].schema
    number = replace(schema, columns=(schema.columns[0], replace(schema.columns[1], type="INTEGER", length=4)))
    capfd.readouterr()

    result = job.run(replace(spec, tables=(replace(spec.tables[0], schema=number),)))

    [failed] = result.failed
    assert "SparkNumberFormatException" in failed.error
    said = capfd.readouterr().out
    assert failed.error in said
    assert not [text for text in (said, result.to_json()) if "c4n4ry" in text]
