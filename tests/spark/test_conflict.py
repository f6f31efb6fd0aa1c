"""A write that meets another writer's commit is repeated, and still has its effect once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.spark.delta import conflict
from airflow_provider_db2cdc.spark.delta.conflict import is_conflict, repeat_on_conflict, skip_on_conflict
from airflow_provider_db2cdc.spark.delta.ownership import Owner, Place
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import append, literal_frame, load

SCHEMA = TableSchema(TableId("S", "T"), (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))
ROW = "ID int, A int, __commit_lsn string"


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Replica:
    """A state of two small files with a deleted row each."""
    made = Replica(spark.newSession(), Place(Layout(str(tmp_path / "lake")), Owner("test", "ledger")), SCHEMA)
    made.prepare()
    for batch in (1, 2):
        rows = [(batch * 10 + number, 0, "") for number in range(4)]
        made.append_rows(literal_frame(made.spark, rows, ROW).coalesce(1), batch)
    made.spark.sql(f"DELETE FROM {state(made)} WHERE ID IN (10, 20)")
    return made


def state(target: Replica) -> str:
    return f"delta.`{target.layout.state(target.table).name}`"


def rows(target: Replica) -> list[tuple[int, int]]:
    return sorted((row[0]["ID"], row[0]["A"]) for row in target.rows().collect())


@contextmanager
def held(frame: DataFrame, folder: Path) -> Iterator[tuple[DataFrame, Callable[[], None]]]:
    """Yield the frame so that its first read waits, and a function that waits for this read to begin.

    The read continues at the end of the block.
    """
    begun, go = folder / "begun", folder / "go"

    def wait(batches: Iterator[object]) -> Iterator[object]:
        begun.touch()
        while not go.exists():
            time.sleep(0.02)
        yield from batches

    def wait_for_begin() -> None:
        while not begun.exists():
            time.sleep(0.02)

    try:
        yield frame.mapInArrow(wait, frame.schema), wait_for_begin
    finally:
        go.touch()


def merge_beside(target: Replica, folder: Path, statement: str) -> tuple[int | None, int | None]:
    """Merge batch 3, and run a statement of another session after the merge has begun and before it commits."""
    effects = literal_frame(target.spark, [(11, 5, "", True), (30, 6, "", True)], f"{ROW}, __present boolean")
    with ThreadPoolExecutor(1) as pool:
        with held(effects, folder) as (waiting, wait_for_begin):
            merged = pool.submit(target.merge, waiting, 3, "", None)
            wait_for_begin()
            target.spark.newSession().sql(statement.format(state(target))).collect()
        return merged.result()


MAINTENANCE = {
    "OPTIMIZE": "OPTIMIZE {}",
    "REORG": "REORG TABLE {} APPLY (PURGE)",
    "properties": "ALTER TABLE {} SET TBLPROPERTIES ('kept.by' = 'us')",
    "CLUSTER BY": "ALTER TABLE {} CLUSTER BY (ID)",
}


@pytest.mark.spark
@pytest.mark.parametrize("name", MAINTENANCE)
def test_a_merge_during_maintenance_is_repeated_and_counts_once(
    target: Replica, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    growth, version = merge_beside(target, tmp_path, MAINTENANCE[name])
    assert ("this write is repeated (1)" in capsys.readouterr().out) == (name != "CLUSTER BY"), "it does not conflict"
    assert (growth, version) == (1, target.newest_version())
    assert rows(target) == [(11, 5), (12, 0), (13, 0), (21, 0), (22, 0), (23, 0), (30, 6)]
    again = literal_frame(target.spark, [(11, 9, "", True)], f"{ROW}, __present boolean")
    assert target.merge(again, 3, "", None) == (None, None)


@pytest.mark.spark
def test_without_a_repetition_a_merge_loses_to_an_optimize(
    target: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflict, "is_conflict", lambda error: False)
    with pytest.raises(Exception, match="DELTA_CONCURRENT") as lost:
        merge_beside(target, tmp_path, MAINTENANCE["OPTIMIZE"])
    assert is_conflict(lost.value)
    assert len(rows(target)) == 6


@pytest.mark.spark
def test_an_append_during_a_change_of_properties_is_repeated(
    target: Replica, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, frame = (
        target.layout.state(target.table),
        literal_frame(target.spark, [(40, 1, "", 4)], f"{ROW}, __batch bigint"),
    )
    with ThreadPoolExecutor(1) as pool:
        with held(frame, tmp_path) as (waiting, wait_for_begin):
            appended = pool.submit(append, waiting, name, ("app", 4))
            wait_for_begin()
            target.spark.newSession().sql(MAINTENANCE["properties"].format(state(target)))
        assert appended.result() == target.newest_version()
    assert "this write is repeated (1)" in capsys.readouterr().out
    assert load(target.spark, name).where("ID = 40").count() == 1


class DeltaError(Exception):
    """An error with a text of Delta's."""


def fail(text: str, times: int) -> Callable[[], int]:
    """Return a write that fails so many times, and then returns how often it was done."""
    done: list[int] = []

    def write() -> int:
        done.append(1)
        if len(done) <= times:
            raise DeltaError(text)
        return len(done)

    return write


@pytest.mark.parametrize(
    "text",
    ["io.delta.exceptions.ConcurrentAppendException: x", "[DELTA_CONCURRENT_DELETE_READ.OPTIMIZE] x",
     "MetadataChangedException: x", "[DELTA_METADATA_CHANGED] x", "ConcurrentDeleteDeleteException: x"],
)  # fmt: skip
def test_a_conflict_is_repeated_so_many_times(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflict, "PAUSE_S", 0)
    assert repeat_on_conflict(fail(text, 2), "t", attempts=3) == 3
    with pytest.raises(DeltaError):
        repeat_on_conflict(fail(text, 3), "t", attempts=3)


@pytest.mark.parametrize(
    "text", ["[DELTA_CONCURRENT_TRANSACTION] x", "ConcurrentTransactionException: ConcurrentAppend", "disk full"]
)
def test_another_runs_write_is_no_conflict(text: str) -> None:
    with pytest.raises(DeltaError):
        repeat_on_conflict(fail(text, 1), "t")


def test_what_may_be_left_out_is_left_out_after_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflict, "PAUSE_S", 0)
    text = "[DELTA_CONCURRENT_DELETE_DELETE] x"
    assert skip_on_conflict(fail(text, 1), "t")
    assert not skip_on_conflict(fail(text, 2), "t")
    with pytest.raises(DeltaError):
        skip_on_conflict(fail("disk full", 1), "t")
