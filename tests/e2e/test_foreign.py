"""Another writer changes a table's state or change log: the table stops, and a restart repairs both."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.crash import killed
from support.filled import changed, filled
from support.log import check_log, folded
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.failpoint import When
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.apply import foreign_changes
from airflow_provider_db2cdc.spark.delta.table_io import load, newest_version, set_properties

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]
Act = Callable[[SparkSession, str], None]


def restore(spark: SparkSession, path: str) -> None:
    version = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]["version"]
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version - 1}")


def maintain(spark: SparkSession, path: str) -> None:
    spark.sql(f"OPTIMIZE delta.`{path}` ZORDER BY (__commit_lsn)")
    spark.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('kept.by' = 'us')")
    spark.sql(f"VACUUM delta.`{path}`")


def put_back(spark: SparkSession, path: str) -> None:
    """An older copy: the newest commit is not in it."""
    newest = max(Path(path, "_delta_log").glob("*.json"))
    for file in (newest, newest.with_suffix(".crc"), newest.with_name(f".{newest.stem}.crc.crc")):
        file.unlink(missing_ok=True)


def purge(spark: SparkSession, path: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE key.ID = 3")


def run(text: str) -> Act:
    def act(spark: SparkSession, path: str) -> None:
        spark.sql(text.format(t=f"delta.`{path}`"))

    return act


def remove(spark: SparkSession, path: str) -> None:
    shutil.rmtree(path)


FOREIGN: Mapping[str, tuple[tuple[str, Act], ...]] = {
    "RESTORED": (("state", restore),),
    "DELETED": (("state", run("DELETE FROM {t} WHERE ID IN (8, 9, 11)")),),
    "UPDATED": (("state", run("UPDATE {t} SET A = 'x' WHERE ID = 8")),),
    "WRITTEN": (("state", run("INSERT INTO {t} SELECT 99, 'x', __commit_lsn, __batch FROM {t} LIMIT 1")),),
    "OLDER": (("state", put_back),),
    "GONE": (("state", remove),),
    "LOGPURGED": (("changes", purge),),
    "LOGRESTORED": (("changes", restore),),
    "LOGGONE": (("changes", remove),),
    "BOTHGONE": (("state", remove), ("changes", remove)),
}


def check_manifest(pipeline: Pipeline) -> int:
    """Make sure that each version that a row names holds as many rows as the row says; return how many rows it has."""
    layout = Layout(pipeline.target)
    rows = load(pipeline.spark, layout.internal("manifest")).collect()
    for row in rows:
        for name, version in row["tables"].items():
            state = layout.state(TableId(*name.split(".")))
            assert load(pipeline.spark, state, version).count() == row["rows"][name], (name, version)
    return len(rows)


FEW = ("DELETED", "GONE", "LOGPURGED")
"""One kind of damage for each way back: rows of the state, the whole state, rows of the change log."""


@pytest.mark.parametrize("kinds", [FEW, pytest.param((*FOREIGN,), marks=pytest.mark.long)], ids=["few kinds", "all"])
def test_a_table_that_a_foreign_writer_changed_stops_until_a_restart(
    new_pipeline: Callable[..., Pipeline], kinds: Sequence[str]
) -> None:
    pipeline = new_pipeline()
    tables = {name: filled(pipeline, 20, name) for name in (*kinds, "ALONE")}
    pipeline.passed()
    layout, other = Layout(pipeline.target), pipeline.spark.newSession()
    for name in kinds:
        for of, act in FOREIGN[name]:
            act(other, getattr(layout, of)(tables[name]).name)
    changed(
        pipeline,
        *(f"UPDATE {table} SET A = 'c' WHERE ID = 3" for table in tables.values()),
        *(f"DELETE FROM {table} WHERE ID IN (9, 11)" for table in tables.values()),
    )

    result = pipeline.tick()

    assert result is not None
    errors = {line.table.name: line.error for line in result.failed}
    assert errors.keys() == {*kinds}
    for name, error in errors.items():
        gone = "GONE" in name
        assert ("is not there any more" if gone else "somebody else has changed its") in error, name
        assert f"db2cdc offset restart {tables[name]}" in error, name
        pipeline.restart(tables[name])
    pipeline.to_its_end()
    for name, table in tables.items():
        assert pipeline.rows(table) == pipeline.source_rows(table), name
        assert folded(pipeline, table) == pipeline.source_rows(table), name
    assert check_manifest(pipeline) >= 1


@pytest.mark.long
def test_deletions_are_logged_if_the_state_of_a_keyless_table_is_lost(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = pipeline.create(f"CREATE TABLE {pipeline.schema}.BARE (A INTEGER, V VARCHAR(9))", "BARE")
    pipeline.many(f"INSERT INTO {table} VALUES (?, ?)", [(at % 3, f"v{at % 4}") for at in range(24)])
    pipeline.captured()
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE A = 1 AND V = 'v1'", f"INSERT INTO {table} VALUES (9, 'n'), (9, 'n')")
    pipeline.passed()
    shutil.rmtree(Layout(pipeline.target).state(table).name)
    changed(pipeline, f"DELETE FROM {table} WHERE A = 9", f"DELETE FROM {table} WHERE V = 'v2'")
    pipeline.restart(table)

    pipeline.to_its_end()

    expected = Counter(pipeline.query(f"SELECT A, V FROM {table}"))
    assert Counter(tuple(row) for row in pipeline.state(table).select("A", "V").collect()) == expected
    counted: Counter[Any] = Counter()
    for batch in sorted({row["__batch"] for row in pipeline.changes(table).collect()}):
        own = pipeline.changes(table).where(f"__batch = {batch}").collect()
        for row in own:
            for image, sign in ((row["before"], -1), (row["after"], 1)):
                if image is not None and row["op"] != "r":
                    counted[tuple(image)] = max(0, counted[tuple(image)] + sign)
        # What was read replaces a count.
        for image, count in Counter(tuple(row["after"]) for row in own if row["op"] == "r").items():
            counted[image] = count
    assert +counted == expected


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_redone_recreation_of_a_lost_state_logs_deletions(new_pipeline: Callable[..., Pipeline], when: When) -> None:
    """The state was deleted. The run that created it again died before its first batch was applied."""
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'x' WHERE ID = 4")
    pipeline.passed()
    shutil.rmtree(Layout(pipeline.target).state(table).name)
    pipeline.offsets.lose(table)
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 2")
    spec = pipeline.plan()
    assert spec is not None
    with killed("merge_state", when):
        job.run(spec)
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")

    pipeline.to_its_end()

    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.long
def test_the_pipelines_own_writes_are_not_foreign_changes(new_pipeline: Callable[..., Pipeline]) -> None:
    """They are marked: a death between merge and commit log, properties, added columns."""
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    spec = pipeline.plan()
    assert spec is not None
    with killed("merge_state", "after"):
        job.run(spec)
    layout = Layout(pipeline.target)
    set_properties(pipeline.spark, layout.state(table), {"delta.appendOnly": "true"})
    pipeline.gain(table, "N")
    changed(pipeline, f"UPDATE {table} SET A = 'c', N = 5 WHERE ID = 2")
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    check_log(pipeline, table)


@pytest.mark.long
def test_an_idle_table_is_checked_now_and_then(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    idle, busy = filled(pipeline, 9, "IDLE"), filled(pipeline, 9, "BUSY")
    pipeline.passed()
    state = Layout(pipeline.target).state(idle)
    maintain(pipeline.spark, state.name)
    monkeypatch.setattr(foreign_changes, "CHECK_EVERY", 1)
    changed(pipeline, f"UPDATE {busy} SET A = 'b' WHERE ID = 1")
    result = pipeline.passed()
    assert {line.table: line.state_version for line in result.tables}[idle] == newest_version(pipeline.spark, state)
    pipeline.spark.sql(f"DELETE FROM delta.`{state.name}` WHERE ID = 2")
    changed(pipeline, f"UPDATE {busy} SET A = 'c' WHERE ID = 1")

    last = pipeline.tick()

    assert last is not None
    [failed] = last.failed
    assert failed.table == idle
    assert "somebody else has changed its current state" in failed.error
