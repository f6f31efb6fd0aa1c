"""What happens beside a tick: an old run that goes on, pruning while a snapshot is read, columns that turn and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.crash import Killed, killed
from support.log import logged_events
from support.pipeline import Pipeline
from support.writing import behind

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset import Offset
from airflow_provider_db2cdc.cdc.signal import Signal
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox import faults
from airflow_provider_db2cdc.spark import jobs, pull
from airflow_provider_db2cdc.spark.journal import Journal
from airflow_provider_db2cdc.spark.target import Target
from airflow_provider_db2cdc.tick import commit_tick

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def filled(pipeline: Pipeline, rows: int, **registration: Any) -> TableId:
    ddl = f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))"
    table = pipeline.create(ddl, "T", **registration)
    pipeline.many(f"INSERT INTO {table} VALUES (?, 'a')", [(at,) for at in range(rows)])
    pipeline.captured()
    return table


def changed(pipeline: Pipeline, *statements: str) -> None:
    """Commit statements as one transaction that capture has passed."""
    for statement in statements:
        pipeline.execute(statement)
    pipeline.writer.commit()
    pipeline.captured()


def test_a_table_cut_anew_under_its_first_columns_is_read_from_its_beginning(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    small = {"incremental.snapshot.chunk.size": 10, "snapshot.group.chunks": 1, "snapshot.budget.s": 0}
    pipeline = new_pipeline(**small)
    table = filled(pipeline, 30)
    assert pipeline.passed().snapshots[0].done == 1
    changed(pipeline, f"DELETE FROM {table} WHERE ID < 15")
    pipeline.properties = {**small, "column.exclude.list": rf"{table.schema}\.T\.A"}
    turned = pipeline.tick()
    assert turned is not None
    assert "needs column" in turned.failed[0].error
    pipeline.properties = small
    spec = pipeline.plan()
    assert spec is not None
    with killed(Journal, "write", "after"):
        jobs.run(spec)
    while (result := pipeline.tick()) is not None and result.snapshots[0].status != "completed":
        pipeline.captured()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.parametrize("prefix", ["", "X"], ids=["bare", "with before images"])
def test_a_row_deleted_and_inserted_again_is_no_gap_in_what_a_death_left(
    new_pipeline: Callable[..., Pipeline], prefix: str
) -> None:
    """Of a registration with update rows: these two are change rows of their own."""
    pipeline = new_pipeline(**{"accept.update.rows": True})
    table = filled(pipeline, 9, update_as="U", before_img_prefix=prefix)
    pipeline.passed()
    changed(pipeline, f"DELETE FROM {table} WHERE ID = 1", f"INSERT INTO {table} VALUES (1, 'b')")
    spec = pipeline.plan()
    assert spec is not None
    with killed(Target, "append_changes", "after"):
        jobs.run(spec)
    result = jobs.run(spec)
    assert not result.failed, result.failed
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_changes_pruned_before_their_group_is_published_are_a_gap(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 30)
    pipeline.passed()
    pipeline.properties = {"incremental.snapshot.chunk.size": 12, "snapshot.group.chunks": 2}

    def change(read: int) -> None:
        if read == 1:
            changed(pipeline, f"UPDATE {table} SET A = 'new' WHERE ID = 1")
            faults.prune(pipeline.writer)

    ask = Signal("ask", "execute-snapshot", json.dumps({"data-collections": [str(table)]}), "airflow")
    with behind(Target, "stage", change):
        result = pipeline.tick(ask)
    assert result is not None
    assert "are pruned" in result.failed[0].error


def test_an_old_run_that_fills_the_state_beside_a_restart_doubles_no_row(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 20)
    spec = pipeline.plan()
    assert spec is not None
    real, waits = Target.fill, []

    def hangs(*arguments: Any) -> Any:
        waits.append(arguments)
        raise Killed("it hangs before it fills the state")

    def wakes(*arguments: Any) -> Any:
        while waits:
            real(*waits.pop())
        return real(*arguments)

    monkeypatch.setattr(Target, "fill", hangs)
    with pytest.raises(Killed):
        jobs.run(spec)
    pipeline.offsets.put(Offset(table, Lsn(bytes(16)), 0, restart=True))
    pipeline.captured()
    monkeypatch.setattr(Target, "fill", wakes)
    pipeline.passed()
    assert pipeline.state(table).count() == 20


def test_an_old_run_deletes_nothing_of_a_batch_that_another_has_finished(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    spec = pipeline.plan()
    assert spec is not None
    real, seen = pull._check_all_read, []

    def beside(*arguments: Any) -> Any:
        if not seen:
            seen.append(True)
            commit_tick(jobs.run(spec), pipeline.offsets)
            faults.prune(pipeline.writer)
        return real(*arguments)

    monkeypatch.setattr(pull, "_check_all_read", beside)
    with pytest.raises(Exception, match="another run has finished batch"):
        jobs.run(spec)
    assert sum(logged_events(pipeline, table).values()) == 1
