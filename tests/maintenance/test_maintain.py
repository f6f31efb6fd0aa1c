"""Maintenance of real Delta tables: logs are trimmed, files are rewritten where it pays, and ticks continue."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.crash import killed
from support.lake import Lake
from support.maintained import DAY_MS, NOW_MS, TABLE, Maintained, lsn, names

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance import file_layout
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceSpec
from airflow_provider_db2cdc.cdc.maintenance.ledger_trim import JournalRow, JournalTrim
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot, Status
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import KeyedChunks, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConfigurationError, TargetError
from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon
from airflow_provider_db2cdc.spark.delta.ownership import LOG
from airflow_provider_db2cdc.spark.delta.table_io import (
    create_table,
    literal_frame,
    load,
    newest_version,
    set_properties,
    sql_name,
    table_properties,
)
from airflow_provider_db2cdc.spark.ledger.journal import JOURNAL
from airflow_provider_db2cdc.spark.maintenance.clustering import listed
from airflow_provider_db2cdc.spark.maintenance.facts import positions_before
from airflow_provider_db2cdc.spark.maintenance.pipeline_tables import journal_rows_to_delete
from airflow_provider_db2cdc.spark.maintenance.run import maintain
from airflow_provider_db2cdc.spark.verify.report_table import VERIFICATIONS

DAY_S = 86_400.0


def made(spark: SparkSession, folder: Path, *days: float) -> Maintained:
    """A target with a batch for each of these ages in days."""
    target = Maintained(spark, folder)
    for number, age in enumerate(days, 1):
        target.batch(number, age)
    return target


@pytest.mark.spark
def test_old_batches_are_trimmed_and_the_next_batch_continues(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 50, 40, 9, 1)
    result = target.maintain(retention_s=30 * DAY_S)
    assert names(target.steps(result)) == {"change log trim", "current state cluster", "current state compact"}
    assert names(target.steps(result, None)) == {"batches trim", "commits trim", "manifest trim"}
    assert target.logged() == [3, 4]
    assert log_horizon(spark, target.layout, TABLE) == LogHorizon(3, lsn(20))
    # The first batch says when the pipeline began.
    assert target.batches(target.layout.internal("batches")) == [1, 3, 4]
    assert target.batches(target.layout.internal("commits")) == [1, 3, 4]
    assert target.batches(target.layout.internal("manifest")) == [4]
    for name in (target.layout.changes(TABLE), target.layout.internal("batches"), target.layout.internal("commits")):
        assert table_properties(spark, name)["delta.appendOnly"] == "true"
    before = target.versions()
    assert target.steps(target.maintain(retention_s=30 * DAY_S)) == {}
    assert target.versions() == before, "a run that has nothing to do writes nothing"
    target.batch(5, 0)
    assert target.logged() == [3, 4, 5]
    history = target.history()
    assert (history.newest_batch, history.last[TABLE].batch, history.pending) == (5, 5, ())


@pytest.mark.spark
def test_a_trim_knows_the_positions_of_each_history_and_width(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    positions = [Lsn(b"\x02" * 10), Lsn(b"\x01" * 10), lsn(10), lsn(90), lsn(30), lsn(50)]
    for number, upto in enumerate(positions):
        lake.batch_log.commit([replace(lake.applied(TABLE, number), upto=upto)], 0)
    found = positions_before(spark, lake.place.layout, TABLE, 5)
    assert (found[-1], {*found}) == (lsn(30), {positions[0], positions[1], lsn(90), lsn(30)})
    assert positions_before(spark, lake.place.layout, TABLE, 0) == []


@pytest.mark.long
@pytest.mark.spark
def test_without_a_retention_and_in_a_dry_run_nothing_is_trimmed(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 50, 1)
    before = target.versions()
    dry = target.maintain(retention_s=30 * DAY_S, dry_run=True)
    assert {step.status for step in target.steps(dry).values()} == {"planned"}
    assert {"change log trim", "current state cluster"} <= names(target.steps(dry))
    assert target.versions() == before
    target.maintain()
    assert target.logged() == [1, 2]
    assert log_horizon(spark, target.layout, TABLE) == LogHorizon()
    assert target.batches(target.layout.internal("batches")) == [1, 2]


@pytest.mark.spark
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_a_run_that_dies_in_a_trim_is_finished_by_the_next(spark: SparkSession, tmp_path: Path, when: str) -> None:
    target = made(spark, tmp_path, 50, 40, 1)
    with killed("delete_rows", when):  # type: ignore[arg-type]
        target.maintain(retention_s=30 * DAY_S)
    assert log_horizon(spark, target.layout, TABLE) == LogHorizon(3, lsn(20)), "no reader takes it for complete"
    target.maintain(retention_s=30 * DAY_S)
    assert target.logged() == [3]
    assert table_properties(spark, target.layout.changes(TABLE))["delta.appendOnly"] == "true"
    target.batch(4, 0)


@pytest.mark.long
@pytest.mark.spark
def test_what_snapshots_and_pending_batches_need_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 50, 45, 40, 1)
    open_part = TableSnapshot(TABLE, status="reading", low_batch=1, bounds=(("5",),), published_chunks=1)
    target.open_snapshot(Snapshot("asked", "incremental", (open_part,), "file", started_at_ms=5))
    before = target.versions()
    [report] = target.maintain(retention_s=30 * DAY_S, tables=(TABLE,)).failed
    assert report.error.startswith("S.T: change.log.retention is shorter than the open snapshot 'asked' needs")
    assert target.versions() == before
    target.open_snapshot(Snapshot("asked", "incremental", (open_part,), "file", "completed", 5))
    chunks = KeyedChunks("asked", "incremental", 0, 0, lsn(20), 2, 2, "f")
    target.planned(5, 0, chunks)
    target.maintain(retention_s=30 * DAY_S, reported_seq=target.journal.seq)
    assert target.logged() == [3, 4]
    assert target.history().pending[0].chunk_range == chunks


@pytest.mark.spark
def test_small_files_are_sorted_by_key_and_deleted_rows_leave_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_layout, "SMALL_FILES", 3)
    target = made(spark, tmp_path, 3, 2, 1)
    state, log = target.layout.state(TABLE), target.layout.changes(TABLE)
    spark.sql(f"DELETE FROM {sql_name(state)} WHERE ID = 2")
    spark.sql(f"INSERT INTO {sql_name(state)} SELECT id, 0, '', 9 FROM range(10, 20)")
    spark.sql(f"DELETE FROM {sql_name(state)} WHERE ID = 15")
    steps = target.steps(target.maintain())
    assert {"current state cluster", "current state compact", "change log compact"} <= names(steps)
    for what in ("current state", "change log"):
        counts = steps[what, "compact"]
        assert counts.before.files >= 3
        assert counts.after.files == 1
        assert counts.before.size > counts.after.size > 0
    detail = spark.sql(f"DESCRIBE DETAIL {sql_name(state)}").first()
    assert detail is not None
    assert detail["clusteringColumns"] == ["ID"]
    assert sorted(row["ID"] for row in load(spark, state).collect()) == [1, 3, *range(10, 15), *range(16, 20)]
    assert target.logged() == [1, 2, 3]
    versions = [newest_version(spark, name) for name in (state, log)]
    assert names(target.steps(target.maintain())) <= {"current state vacuum", "change log vacuum"}
    assert [newest_version(spark, name) for name in (state, log)] == versions


@pytest.mark.long
@pytest.mark.spark
def test_a_state_without_a_key_is_compacted_and_not_clustered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_layout, "SMALL_FILES", 3)
    other = TableId("S", "KEYLESS")
    keyless = Maintained(spark, tmp_path / "keyless", TableSchema(other, Maintained.schema.columns, ()))
    keyless.planned(1, 1)
    for number in range(4):
        spark.sql(f"INSERT INTO {sql_name(keyless.layout.state(other))} VALUES ({number}, 0, 1, '', 1)")
    spark.sql(f"DELETE FROM {sql_name(keyless.layout.state(other))} WHERE ID = 2")
    steps = keyless.steps(keyless.maintain(), other)
    assert ("current state", "cluster") not in steps
    assert steps["current state", "compact"].after.files == 1


@pytest.mark.long
@pytest.mark.spark
def test_deleted_rows_are_purged_from_a_state_without_clustering(spark: SparkSession, tmp_path: Path) -> None:
    other = TableId("S", "KEYLESS")
    target = Maintained(spark, tmp_path, TableSchema(other, Maintained.schema.columns, ()))
    target.planned(1, 1)
    state = target.layout.state(other)
    spark.sql(f"INSERT INTO {sql_name(state)} SELECT id, 0, 1, '', 1 FROM range(0, 9, 1, 1)")
    spark.sql(f"DELETE FROM {sql_name(state)} WHERE ID = 2")
    assert {"current state purge"} <= names(target.steps(target.maintain(), other))
    assert len(load(spark, state).collect()) == 8
    version = newest_version(spark, state)
    target.maintain()
    assert newest_version(spark, state) == version


@pytest.mark.spark
def test_vacuum_keeps_the_versions_that_the_manifest_names(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 3)
    state = target.layout.state(TABLE)
    named = newest_version(spark, state)
    set_properties(spark, state, {"delta.deletedFileRetentionDuration": "interval 0 hours"})
    spark.sql(f"DELETE FROM {sql_name(state)}")
    result = target.maintain()
    assert [step.detail for step in result.tables[0].steps if step.step == "vacuum"][1] == "keeps 72 hours"
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration", "false")
    assert len(load(session, state, named).collect()) == 1, "a count would only read the statistics"
    target.batch_log.clear_manifest()
    steps = target.steps(target.maintain())
    vacuumed = steps["current state", "vacuum"]
    assert vacuumed.after.files < vacuumed.before.files
    assert vacuumed.after.size < vacuumed.before.size
    with pytest.raises(Exception, match=r"parquet|FILE_NOT_EXIST"):
        load(session, state, named).collect()


@pytest.mark.long
@pytest.mark.spark
def test_the_journal_keeps_every_used_id_and_what_is_open(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 1)
    part = TableSnapshot(TABLE, status="reading", bounds=(("5",),), fingerprint="f")
    started = Notification("over", "Incremental Snapshot", "STARTED", {}, 1)
    statuses: tuple[Status, ...] = ("running", "completed")
    for status in statuses:
        closed = Snapshot("over", "incremental", (part,), "file", status, 5)
        target.journal.write(
            [closed], [SignalOutcome("a", "file", "refused", "no")], [started], [], NOW_MS - 40 * DAY_MS
        )
    target.journal.write([Snapshot("open", "incremental", (part,), "file", started_at_ms=6)], [], [], [], NOW_MS)
    seq = target.journal.seq
    before = target.journal.read(seq, seq)
    steps = target.steps(target.maintain(retention_s=30 * DAY_S, reported_seq=seq), None)
    # Gone are bounds, a snapshot, an outcome and two notifications. Left are one row of each id, and the open bounds.
    assert steps["journal", "trim"].detail == "5 rows"
    assert target.journal.read(seq, seq) == before
    assert before.closed_ids == frozenset({"over"})
    assert [one.id for one in before.snapshots] == ["open"]
    assert target.journal.seq == seq


@pytest.mark.spark
def test_rows_of_the_journal_are_chosen_by_the_plain_rule(spark: SparkSession) -> None:
    rng = random.Random(5)
    kinds = ("signal", "snapshot", "begun", "skipped", "bounds", "notification")
    rows = []
    for seq in range(1, 301):
        # The newest rows of d to g are old enough to be deleted, if the rule did not keep them.
        kind, name = rng.choice(kinds), rng.choice("abc" if seq > 100 else "abcdefg")
        id_ = f'["{name}", "S", "T", "f"]' if kind == "bounds" else name
        rows.append((seq, "run", kind, id_, "{}", rng.randrange(100)))
    newest = {(kind, id_): seq for seq, _, kind, id_, _, _ in rows}
    trim = JournalTrim(60, 250, frozenset("ad"), 240)
    wanted = [
        seq
        for seq, _, kind, id_, _, at_ms in rows
        if trim.deletes(JournalRow(seq, kind, at_ms, newest[kind, id_] == seq, id_[2:3]))  # type: ignore[arg-type]
    ]
    found = journal_rows_to_delete(literal_frame(spark, rows, JOURNAL), trim).collect()
    assert sorted(row["seq"] for row in found) == wanted
    assert len(wanted) > 50


@pytest.mark.long
@pytest.mark.spark
def test_old_rows_of_the_verification_report_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 1)
    name = target.layout.internal("verifications")
    create_table(spark, name, VERIFICATIONS, LOG)
    old, new = (f"named_struct('started_at_ms', {at_ms})" for at_ms in (NOW_MS - 31 * DAY_MS, NOW_MS))
    ended = f"named_struct('started_at_ms', {NOW_MS - 31 * DAY_MS}, 'ended_at_ms', {NOW_MS - 31 * DAY_MS})"
    for row in (old, new, ended):
        columns = spark.sql(f"SELECT inline(array({row}))")
        columns.write.format("delta").mode("append").save(name.name)
    target.maintain(retention_s=30 * DAY_S)
    assert [row["started_at_ms"] for row in load(spark, name).collect()] == [NOW_MS]
    assert table_properties(spark, name)["delta.appendOnly"] == "true"


@pytest.mark.spark
def test_unknown_tables_and_targets_are_named(spark: SparkSession, tmp_path: Path) -> None:
    target = made(spark, tmp_path, 1)
    with pytest.raises(ConfigurationError, match=r"S\.X: pipeline 'test' has written no such table.*are S\.T\."):
        target.maintain(tables=(TABLE, TableId("S", "X")))
    refused = (("test", "none", "no tick has written"), ("other", "lake", "belongs to pipeline 'test'"))
    for pipeline, folder, text in refused:
        with pytest.raises(TargetError, match=text):
            maintain(spark, MaintenanceSpec(pipeline, "run", Layout(str(tmp_path / folder)).target, NOW_MS))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", []),
        ("`ID`,`__batch`", ["ID", "__batch"]),
        ("ID, A", ["ID", "A"]),
        ("`a,b`,`c``d`", ["a,b", "c`d"]),
    ],
)
def test_lists_of_columns_are_read(text: str, columns: list[str]) -> None:
    assert listed(text) == columns
