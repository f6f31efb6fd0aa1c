"""Commits of other writers are distinguished from the pipeline's own and from those that change no row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import TargetError
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.spark.apply.foreign_changes import apply_guarded, is_check_due
from airflow_provider_db2cdc.spark.delta.ownership import CHECKED, Owner, Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import (
    literal_frame,
    newest_version,
    set_properties,
    table_properties,
)
from airflow_provider_db2cdc.spark.session import TableSessions, temporary_conf

pytestmark = pytest.mark.spark
TABLE = TableId("S", "T")
SCHEMA = TableSchema(TABLE, (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))
OWNER = Owner("test", "ledger")
COMMIT = AppliedBatch(1, TABLE, Lsn(bytes(16)), CaptureIdentity("C", "a", "b", "0"), 0, 0, 0, 0, None, 0, 0, 0)
DEFAULTS = "spark.databricks.delta.properties.defaults."


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Replica:
    return made(spark, tmp_path, OWNER)


def made(spark: SparkSession, folder: Path, marked_by: Owner) -> Replica:
    session = TableSessions(spark, marked_by.mark).session(TABLE, 0)
    one = Replica(session, Place(Layout(str(folder)), OWNER), SCHEMA)
    one.prepare()
    return one


def looked_at(target: Replica) -> AppliedBatch:
    """The commit of a batch that did nothing but look."""
    return apply_guarded(target, None, lambda _: COMMIT)


def fill(target: Replica, batch: int) -> None:
    target.append_rows(literal_frame(target.spark, [(batch, 0, "")], "ID int, A int, __commit_lsn string"), batch)


def commit_by_hand(target: Replica, *actions: object, name: DeltaName | None = None) -> None:
    """Write a version as another writer of Delta does, by default of the state."""
    name = name or target.layout.state(TABLE)
    file = Path(name.name, "_delta_log", f"{newest_version(target.spark, name) + 1:020}.json")
    file.write_text("\n".join(json.dumps(action) for action in actions))


DELETED = {"timestamp": 1, "operation": "DELETE", "operationParameters": {}}


def by_delta_rs(operation: str) -> Callable[[Replica], None]:
    info = {"timestamp": 1, "operation": operation, "operationParameters": {}, "engineInfo": "delta-rs:1.2"}
    return lambda target: commit_by_hand(target, {"commitInfo": info})


def without_its_past(target: Replica) -> None:
    """The log is cleaned up to a checkpoint."""
    name = target.layout.state(TABLE)
    for at in range(3):
        set_properties(target.spark, name, {"a.b": str(at)})
    jvm = target.spark._jvm
    assert jvm is not None
    logs = jvm.org.apache.spark.sql.delta.DeltaLog
    logs.forTable(target.spark._jsparkSession, name.name).checkpoint()
    for file in Path(name.name, "_delta_log").glob("*0[012].*"):
        file.unlink()
    logs.clearCache()


def restored(target: Replica) -> None:
    target.spark.newSession().sql(f"RESTORE TABLE delta.`{target.layout.state(TABLE).name}` TO VERSION AS OF 0")


def put_back(target: Replica) -> None:
    """The state is an older copy, without the newest commit."""
    newest = max(Path(target.layout.state(TABLE).name, "_delta_log").glob("*.json"))
    for file in newest.parent.glob(f"*{newest.stem}*"):
        file.unlink()
    jvm = target.spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def maintained(target: Replica) -> None:
    name, other = target.layout.state(TABLE).name, target.spark.newSession()
    other.sql(f"OPTIMIZE delta.`{name}` ZORDER BY (ID)")
    other.sql(f"REORG TABLE delta.`{name}` APPLY (PURGE)")
    other.sql(f"ALTER TABLE delta.`{name}` SET TBLPROPERTIES ('kept.by' = 'us')")
    other.sql(f"VACUUM delta.`{name}`")


def log_changed(target: Replica) -> None:
    commit_by_hand(target, {"commitInfo": DELETED}, name=target.layout.changes(TABLE))


def with_another_mark(target: Replica) -> None:
    fill(made(target.spark, Path(target.layout.target), replace(OWNER, pipeline="other")), 7)


def created_again(target: Replica) -> None:
    shutil.rmtree(target.layout.state(TABLE).name)
    target.prepare()


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (by_delta_rs("OPTIMIZE"), ""),
        (by_delta_rs("VACUUM END"), ""),
        (maintained, ""),
        (lambda target: fill(target, 2), ""),
        (lambda target: target.fence_writers(9), ""),
        (by_delta_rs("DELETE"), "is of DELETE"),
        (by_delta_rs("FSCK"), "is of FSCK"),
        (lambda target: commit_by_hand(target, {"txn": {"appId": "x", "version": 1}}), "of unknown origin"),
        (with_another_mark, "is of WRITE"),
        (without_its_past, "no longer tells"),
        (created_again, "another table"),
        (restored, "is of RESTORE"),
        (put_back, "is gone, the newest is"),
        (log_changed, "changed its change log .* is of DELETE"),
    ],
)
def test_commits_of_other_writers_are_found(target: Replica, act: Callable[[Replica], None], why: str) -> None:
    fill(target, 1)
    last = looked_at(target)
    act(target)
    if why:
        with pytest.raises(TargetError, match=why):
            apply_guarded(target, last, lambda _: COMMIT)
    else:
        now = apply_guarded(target, last, lambda _: COMMIT)
        assert now.state_id == last.state_id
        assert now.state_version == newest_version(target.spark, target.layout.state(TABLE)) > last.state_version


def test_a_change_between_the_check_and_the_write_is_found(target: Replica) -> None:
    last = looked_at(target)

    def apply(_: int | None) -> AppliedBatch:
        by_delta_rs("UPDATE")(target)
        fill(target, 1)
        return COMMIT

    with pytest.raises(TargetError, match="is of UPDATE"):
        apply_guarded(target, last, apply)


def test_a_batchs_own_writes_do_not_need_the_history(target: Replica) -> None:
    last, looks = looked_at(target), list[ReachedFailpoint]()

    def apply(_: int | None) -> AppliedBatch:
        fill(target, 1)
        return COMMIT

    with failpoint_action("read_table_history", before=looks.append):
        now = apply_guarded(target, last, apply)
    assert looks == []
    assert (now.state_version, now.changes_version) == (last.state_version + 1, last.changes_version)


def test_each_idle_table_is_checked_in_one_of_a_hundred_batches() -> None:
    for table in (TABLE, TableId("Ş", "ß")):
        assert sum(is_check_due(table, batch) for batch in range(400)) == 4


def test_tables_have_their_properties_whatever_the_sessions_defaults(spark: SparkSession, tmp_path: Path) -> None:
    defaults = {
        "setTransactionRetentionDuration": "interval 1 second",
        "appendOnly": "true",
        "columnMapping.mode": "id",
    }
    defaults |= {"deletedFileRetentionDuration": "interval 90 days", "enableChangeDataFeed": "true"}
    session = TableSessions(spark, "m").session(TABLE, 0)
    with temporary_conf(session, {f"{DEFAULTS}{name}": value for name, value in defaults.items()}):
        one = Replica(session, Place(Layout(str(tmp_path)), OWNER), SCHEMA)
        one.prepare()
    state, log = one.layout.state(TABLE), one.layout.changes(TABLE)
    for name, append_only in ((state, "false"), (log, "true")):
        found = table_properties(spark, name)
        assert {key: found[key] for key in CHECKED} == {**CHECKED, "delta.appendOnly": append_only}
        assert (
            not {f"delta.{key}": value for key, value in defaults.items()}.items()
            & {key: value for key, value in found.items() if key != "delta.appendOnly"}.items()
        )
    set_properties(spark, log, {"delta.appendOnly": "false", "delta.setTransactionRetentionDuration": "interval 1 day"})
    one.prepare()
    assert {key: table_properties(spark, log)[key] for key in CHECKED} == {**CHECKED, "delta.appendOnly": "true"}
