"""The journal outlives the tick that writes it, and returns what no commit has reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue, add_initial
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import Bound, TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.spark.delta.ownership import Owner
from airflow_provider_db2cdc.spark.ledger.journal import Journal

pytestmark = pytest.mark.spark
TABLE, OTHER = TableId("S", "T"), TableId("S", "O")


def journal(spark: SparkSession, folder: Path, run_id: str = "run") -> Journal:
    return Journal(spark, Layout(str(folder / "lake")), Owner("test", "ledger"), run_id)


def snapshot(fingerprint: str, *bounds: Bound) -> Snapshot:
    part = TableSnapshot(TABLE, status="reading", bounds=bounds, fingerprint=fingerprint)
    return Snapshot("ad-hoc", "incremental", (part,), "file", started_at_ms=5)


def test_bounds_are_those_of_the_columns_that_they_were_named_with(spark: SparkSession, tmp_path: Path) -> None:
    first, other = snapshot("one", ("4",), ("8",)), snapshot("two", ("5",))
    writer = journal(spark, tmp_path)
    # Back under the first columns the table has grown: bounds of the same name say something else.
    turned = (first, other, first, replace(first, status="paused"), snapshot("one", ("4",), ("9",)), snapshot("one"))
    for one in turned:
        writer.write([one], [], [], [], 1)
        assert journal(spark, tmp_path).read(0, 0).snapshots == (one,)


def test_bounds_are_those_of_the_table_whatever_dots_its_name_has(spark: SparkSession, tmp_path: Path) -> None:
    named = {TableId("A.B", "C"): ("4",), TableId("A", "B.C"): ("8",)}
    parts = [
        TableSnapshot(table, status="reading", bounds=(bound,), fingerprint="one") for table, bound in named.items()
    ]
    one = Snapshot("ad-hoc", "incremental", tuple(parts), "file", started_at_ms=5)
    journal(spark, tmp_path).write([one], [], [], [], 1)
    assert journal(spark, tmp_path).read(0, 0).snapshots == (one,)


def test_bounds_are_written_once(spark: SparkSession, tmp_path: Path) -> None:
    writer, one = journal(spark, tmp_path), snapshot("one", ("4",))
    writer.write([one], [], [], [], 1)
    assert writer.seq == 2
    again = journal(spark, tmp_path)
    again.read(0, 0)
    again.write([replace(one, status="paused")], [], [], [], 2)
    assert again.seq == 3


def test_entries_after_the_last_commit_are_unreported(spark: SparkSession, tmp_path: Path) -> None:
    writer, one = journal(spark, tmp_path), snapshot("one", ("4",))
    refused = SignalOutcome("a", "file", "refused", "no such table")
    told = Notification("ad-hoc", "Incremental Snapshot", "STARTED", {"data_collections": "S.T"}, 1)
    writer.write([one], [refused], [told], [], 1)
    seq = writer.seq
    stopped = SignalOutcome("ad-hoc", "file", "stopped", "by hand")
    aborted = Notification("ad-hoc", "Incremental Snapshot", "ABORTED", {}, 2)
    writer.write([replace(one, status="stopped")], [stopped], [aborted], [], 2)

    late = journal(spark, tmp_path)
    agenda = late.read(seq, seq)
    assert (late.unreported.outcomes, late.unreported.notifications) == ((stopped,), (aborted,))
    assert agenda.outcomes == {("file", "a"): refused, ("file", "ad-hoc"): stopped}
    assert agenda.snapshots[0].status == "stopped"

    all_of_it = journal(spark, tmp_path)
    all_of_it.read(0, 0)
    assert all_of_it.unreported.notifications == (told, aborted)
    unsent = journal(spark, tmp_path)
    unsent.read(writer.seq, 0)
    assert (unsent.unreported.outcomes, unsent.unreported.notifications) == ((), (told, aborted))
    nothing = journal(spark, tmp_path)
    nothing.read(writer.seq, writer.seq)
    assert (nothing.unreported.notifications, nothing.unreported.outcomes) == ((), ())


def test_an_overtaken_run_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    journal(spark, tmp_path).write([snapshot("one")], [], [], [], 1)
    fast, slow = journal(spark, tmp_path, "fast"), journal(spark, tmp_path, "slow")
    fast.read(0, 0)
    slow.read(0, 0)
    fast.write([snapshot("two")], [], [], [], 2)
    seq = slow.seq
    with pytest.raises(ConcurrentRunError, match="another run wrote to the journal"):
        slow.write([snapshot("three")], [], [], [], 2)
    assert slow.seq == seq
    assert journal(spark, tmp_path).read(0, 0).snapshots == (snapshot("two"),)


def test_bounds_are_read_only_for_open_or_unreported_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    """They may be many, and every old snapshot has some."""
    writer, goes_on = journal(spark, tmp_path), snapshot("one", ("4",))
    ended = replace(snapshot("one", ("8",)), id='ad "hoc"', status="completed")
    writer.write([goes_on, ended], [], [], [], 1)
    late, later = journal(spark, tmp_path), journal(spark, tmp_path)
    assert {*late.read(0, 0).snapshots} == {goes_on, ended}
    assert later.read(writer.seq, writer.seq).snapshots == (goes_on,)
    assert later.seq == writer.seq
    assert [*later.bounded.values()] == [(("4",),)]


def test_only_the_ids_of_closed_reported_snapshots_are_known(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise each tick would read all old snapshots. The mode `always` makes one in each tick."""
    writer = journal(spark, tmp_path)
    begun = [add_initial(SnapshotQueue(), [TableSnapshot(TABLE), TableSnapshot(OTHER)], 1).snapshots[0]]
    begun.append(replace(begun[0], id="initial-2", tables=(TableSnapshot(TABLE),)))
    for one in begun:
        writer.write([one], [], [], [], 1)
    paused = replace(snapshot("one"), status="paused")
    ended = [replace(one, status="completed") for one in begun]
    writer.write([*ended, paused], [], [], [], 2)
    assert writer.seq == 2 + 2 + 3, "the start of a table is written once"

    agenda = journal(spark, tmp_path).read(writer.seq, writer.seq)
    assert agenda.snapshots == (paused,)
    assert agenda.closed_ids == {"initial-1", "initial-2"}
    assert [agenda.has_begun(table) for table in (TABLE, OTHER, TableId("S", "NONE"))] == [True, True, False]
    assert {*journal(spark, tmp_path).read(4, 4).snapshots} == {*ended, paused}, "their end is not reported yet"
