"""The batch log reads, since the offsets, only what a tick needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch, begins
from airflow_provider_db2cdc.cdc.repair.repair import Findings, PlannedRepair, Replay
from airflow_provider_db2cdc.cdc.signal.signal import SnapshotKind
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import (
    ChunkCounts,
    ChunkRange,
    DeleteMissing,
    KeyedChunks,
    KeylessRead,
)
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint_action
from airflow_provider_db2cdc.spark.delta.table_io import literal_frame, load
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.ledger.batch_rows import BATCHES, begins_table, planned_row
from airflow_provider_db2cdc.spark.maintenance.facts import read_facts

pytestmark = pytest.mark.spark
FAST, SLOW, ODD = TableId("S", "FAST"), TableId("S", "SLOW"), TableId("S.T", 'O"dd')
NEW = TableId("S", "NEW")
CAPTURE = CaptureIdentity("ASNCDC.CD", "2026-01-01", "2025-01-01", "0")


def lsn(number: int) -> Lsn:
    return Lsn(number.to_bytes(16, "big"))


def ledger(spark: SparkSession, folder: Path) -> BatchLog:
    one = BatchLog(spark, Layout(str(folder / "lake")), "test")
    one.prepare()
    return one


def entry(batch: int, table: TableId, of: ChunkRange | None = None, run_id: str = "run") -> PlannedBatch:
    has_offset = table == SLOW or (table, batch) == (ODD, 2)
    return PlannedBatch(
        batch,
        run_id,
        "0a",
        table,
        lsn(batch),
        lsn(batch + 1),
        7,
        CAPTURE,
        of,
        has_offset,
        batch if has_offset else None,
    )


def commit(of: PlannedBatch) -> AppliedBatch:
    published = {0: 8} if of.chunk_range else {}
    numbers, snapshot = (1, 2, 3, 4, 5, 6, 7, 8), of.chunk_range.snapshot if of.chunk_range else None
    commit_lsn = None if of.chunk_range else of.upto
    return AppliedBatch(of.batch, of.table, of.upto, CAPTURE, *numbers, of.chunk_range, published, snapshot, commit_lsn)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A batch log of three batches. SLOW has only the first, which is committed twice. ODD's last batch is pending."""
    folder = tmp_path_factory.mktemp("ledger")
    of = KeyedChunks("s", "initial", 0, 0, lsn(1), 0, 0, "fp", counts=(ChunkCounts((), ("9",), 9, 9),))
    parts = [[entry(1, table, of) for table in (FAST, SLOW, ODD)], [entry(2, FAST), entry(2, ODD)], [entry(3, ODD)]]
    one = ledger(spark, folder)
    for batch in parts:
        one.plan(batch)
        if batch[0].batch < 3:
            one.commit([commit(part) for part in batch], 8)
    one.commit([commit(part) for part in parts[0]], 9)
    return folder


def test_written_batches_are_read_back(spark: SparkSession, folder: Path) -> None:
    told = ledger(spark, folder).history({})
    assert {table: last.batch for table, last in told.last.items()} == {FAST: 2, SLOW: 1, ODD: 2}
    assert told.last[ODD] == commit(entry(2, ODD))
    assert told.tables_with_offset == {SLOW, ODD}
    assert told.pending == (entry(3, ODD),)
    assert told.newest_batch == 3
    of, mark = told.chunk_ranges[ODD]
    assert of.counts == (ChunkCounts((), ("9",), 9, 9),)
    assert mark.batch == 1


@pytest.mark.parametrize(
    ("since", "rows"),
    [
        ({FAST: 2, SLOW: 1, ODD: 2}, {(1, SLOW), (2, FAST), (2, ODD), (3, ODD)}),
        ({FAST: 2, ODD: 2}, {(2, FAST), (2, ODD), (3, ODD)}),
        # ODD is not requested, but the greatest batch has to be known.
        ({FAST: 2}, {(2, FAST), (2, ODD), (3, ODD)}),
        # SLOW lags. ODD is not read from the same batch on because of that.
        ({FAST: 3, SLOW: 1, ODD: 2}, {(1, SLOW), (2, ODD), (3, ODD)}),
        ({FAST: 9}, set()),
    ],
)
def test_batches_before_the_offset_of_their_table_are_not_read(
    spark: SparkSession, folder: Path, since: dict[TableId, int], rows: set[tuple[int, TableId]]
) -> None:
    one = ledger(spark, folder)
    selected: list[DataFrame] = []
    with failpoint_action("select_batch_rows", after=lambda reached: selected.append(reached.result)):
        told = one.history(since)
    found = selected[0].collect()
    assert {(row["batch"], TableId(row["schema"], row["table"])) for row in found} == rows
    whole = one.history({})
    if rows:
        assert (told.newest_batch, told.pending) == (whole.newest_batch, whole.pending)
        known = {table for table in since if since[table] <= whole.last[table].batch}
        assert {table: told.last[table] for table in known} == {table: whole.last[table] for table in known}


@pytest.mark.parametrize(
    "since", [{FAST: 2, SLOW: 1, ODD: 0}, {FAST: 0, ODD: 2}, {FAST: 0, SLOW: 0, ODD: 0}, {NEW: 0, FAST: 2, ODD: 0}]
)
def test_without_an_offset_only_the_last_batch_of_a_table_is_read(
    spark: SparkSession, folder: Path, since: dict[TableId, int]
) -> None:
    one, asked = ledger(spark, folder), list[Mapping[str, Any]]()
    with failpoint_action("select_batch_rows", before=lambda reached: asked.append(reached.arguments)):
        told = one.history(since)
    whole = one.history({})
    lasts = {FAST: 2, SLOW: 1, ODD: 2, NEW: 0}
    lost = {table for table, batch in since.items() if not batch and table != NEW}
    expected = ({table: lasts[table] for table in since}, dict.fromkeys(lost, 1))
    assert [(one["since"], one["also"]) for one in asked] == [expected] * 2
    assert {table: told.chunk_ranges[table] for table in lost} == {table: whole.chunk_ranges[table] for table in lost}
    assert (told.newest_batch, told.pending) == (whole.newest_batch, whole.pending)
    assert told.tables_with_offset & lost == whole.tables_with_offset & lost
    assert {table: told.last.get(table) for table in since} == {table: whole.last.get(table) for table in since}


def test_an_offset_that_only_an_early_plan_found_is_known(spark: SparkSession, tmp_path: Path) -> None:
    one = ledger(spark, tmp_path)
    for part in (replace(entry(1, FAST), has_offset=True), entry(2, FAST)):
        one.plan([part])
        one.commit([commit(part)], 8)
    assert ledger(spark, tmp_path).history({FAST: 0}).tables_with_offset == {FAST}


def test_a_batch_log_that_this_run_created_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    one = ledger(spark, tmp_path)
    one.plan([entry(1, FAST)])
    assert one.history({}) == BatchHistory()
    assert ledger(spark, tmp_path).history({}).pending == (entry(1, FAST),)


def test_the_first_to_plan_a_batch_wins(spark: SparkSession, tmp_path: Path) -> None:
    ledger(spark, tmp_path).plan([entry(1, FAST, run_id="first")])
    with pytest.raises(ConcurrentRunError, match="run first planned batch 1"):
        ledger(spark, tmp_path).plan([entry(1, SLOW, run_id="second")])
    assert ledger(spark, tmp_path).history({}).pending == (entry(1, FAST, run_id="first"),)


@pytest.mark.parametrize("pipeline", ["curl", "tokens of a secret password", "access.key"])
def test_a_pipelines_name_may_look_like_a_secret_that_spark_redacts(
    spark: SparkSession, tmp_path: Path, pipeline: str
) -> None:
    owners = [BatchLog(spark, Layout(str(tmp_path / "lake")), pipeline).prepare() for _ in range(2)]
    assert owners[0] == owners[1]
    assert owners[0].pipeline == pipeline


def test_tables_with_similar_names_are_distinct_in_a_manifest(spark: SparkSession, tmp_path: Path) -> None:
    one, layout = ledger(spark, tmp_path), Layout(str(tmp_path / "lake"))
    alike = [replace(commit(entry(1, table)), rows=at) for at, table in enumerate([ODD, TableId("S", 'T.O"dd'), FAST])]
    one.write_manifest(1, lsn(1), alike, 7)
    [row] = load(spark, layout.internal("manifest")).collect()
    assert row["rows"] == {'"S.T"."O""dd"': 0, '"S"."T.O""dd"': 1, "S.FAST": 2}


def test_the_batch_that_begins_a_table_is_found_by_the_plain_rule(spark: SparkSession) -> None:
    """A batch with chunks or without, with an empty range or not, and a repair."""
    ranges: list[ChunkRange | None] = [
        kind("s", snapshot_kind, first, first, lsn(1), 0, 0, "f")
        for kind in (KeyedChunks, KeylessRead, DeleteMissing)
        for snapshot_kind in get_args(SnapshotKind)
        for first in (0, 1)
    ]
    each = [replace(entry(1, FAST, chunks), upto=lsn(upto)) for chunks in (None, *ranges) for upto in (1, 2)]
    each += [replace(planned, repair=PlannedRepair(Replay(), Findings())) for planned in each]
    numbered = [replace(planned, batch=number) for number, planned in enumerate(each)]
    frame = literal_frame(spark, [planned_row(planned) for planned in numbered], BATCHES)
    found = {row["batch"] for row in frame.where(begins_table()).collect()}
    assert found == {planned.batch for planned in numbered if begins(planned)}
    assert len(found) == 5


def test_maintenance_keeps_the_newest_applied_batch_that_began_a_table(spark: SparkSession, tmp_path: Path) -> None:
    one = ledger(spark, tmp_path)
    first_group, later = (KeyedChunks("s", "initial", first, first, lsn(1), 0, 0, "f") for first in (0, 1))
    for part in (entry(1, FAST, first_group), entry(2, FAST), entry(3, FAST, first_group), entry(4, FAST, later)):
        one.plan([part])
        one.commit([commit(part)], 8)
    one.plan([entry(5, FAST, first_group)])
    spec = MaintenanceSpec("test", "run", str(tmp_path / "lake"), 9)
    kept = read_facts(spark, Layout(spec.target), spec).tables[FAST].kept
    assert kept == {"chunks": 4, "offset": None, "begun": 3, "first": 1}
