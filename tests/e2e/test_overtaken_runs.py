"""Runs that another run has overtaken: they hang and resume, or are cleared, and report nothing false."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pytest
from support.crash import Killed, killed
from support.filled import changed, filled, one_update
from support.log import logged_events
from support.pipeline import Pipeline
from support.writing import once_before

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError, GapError
from airflow_provider_db2cdc.failpoint import Failpoint, ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import control_tables, faults
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.apply import change_pull
from airflow_provider_db2cdc.spark.delta.replica import Replica
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

HALVES_OR_ROWS = ["halves", "halves, or rows with before images"]


@pytest.mark.long
def test_an_old_run_that_fills_the_state_during_a_restart_doubles_no_row(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 20)
    spec = pipeline.plan()
    assert spec is not None
    waits, errors = list[Callable[[], object]](), []

    def hang(reached: ReachedFailpoint) -> None:
        waits.append(partial(Replica.append_rows, **reached.arguments))
        raise Killed("it hangs before it fills the state")

    def wake() -> None:
        try:
            waits.pop()()
        except Exception as error:
            errors.append(str(error))

    with failpoint_action("fill_state", before=hang), pytest.raises(Killed):
        job.run(spec)
    pipeline.offsets.put(Offset(table, Lsn(bytes(16)), 0, restart=True))
    pipeline.captured()
    with once_before("append_changes", wake):
        pipeline.passed()
    assert pipeline.state(table).count() == 20
    [error] = errors
    assert "a later plan has given up batch" in error


@pytest.mark.long
@pytest.mark.parametrize(
    "dies_before",
    ["await_high_mark", pytest.param("fence_writers", marks=pytest.mark.long)],
    ids=["fenced", "before the fence"],
)
def test_a_cleared_run_publishes_no_chunk_that_a_later_plan_abandoned(
    new_pipeline: Callable[..., Pipeline], dies_before: Failpoint
) -> None:
    """A dies after its plan. B finds a gap, abandons A's batch, and dies before any other step. A is cleared."""
    pipeline = new_pipeline(
        **{"snapshot.mode": "when_needed", "incremental.snapshot.chunk.size": 30, "snapshot.group.chunks": 1}
    )
    pipeline.properties = {**pipeline.properties, "table.include.list": rf"{pipeline.schema}\.T"}
    table, other = filled(pipeline, 50), filled(pipeline, 1, "O")
    a = pipeline.plan("A")
    assert a is not None
    with killed("plan_batch", "after"):
        job.run(a)
    floor = changed(pipeline, f"INSERT INTO {other} VALUES (100, 'x')")
    faults.prune(pipeline.writer, upto=floor.raw)
    b = pipeline.plan("B")
    assert b is not None
    with killed(dies_before, "before"):
        job.run(b)
    pipeline.commit(job.run(a))
    for _ in range(3):
        pipeline.captured()
        if pipeline.tick() is None:
            break
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_a_cleared_run_commits_no_batch_that_a_restart_abandoned(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table, a = one_update(pipeline)
    with killed("merge_state", "before"):
        job.run(a)
    pipeline.restart(table)
    b = pipeline.plan("B")
    assert b is not None
    with killed("await_high_mark", "before"):
        job.run(b)
    result = job.run(a)
    [line] = result.failed
    assert "a later plan has given up batch" in line.error
    pipeline.commit(result)
    pipeline.captured()
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.parametrize("before_img_prefix", [pytest.param(None, marks=pytest.mark.long), "X"], ids=HALVES_OR_ROWS)
def test_an_old_run_deletes_nothing_of_a_batch_that_another_run_finished(
    new_pipeline: Callable[..., Pipeline], before_img_prefix: str | None
) -> None:
    """The changes that it read are pruned by then. The change log shows that all were read, or may show it."""
    pipeline = new_pipeline()
    table, spec = one_update(pipeline, before_img_prefix=before_img_prefix)

    def another() -> None:
        pipeline.commit(job.run(spec))
        faults.prune(pipeline.writer)

    finished = pytest.raises(ConcurrentRunError, match="another run has finished batch")
    with once_before("check_all_read", another), finished:
        job.run(spec)
    assert sum(logged_events(pipeline, table).values()) == 1
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.parametrize("before_img_prefix", [None, "X"], ids=HALVES_OR_ROWS)
def test_an_old_run_deletes_nothing_of_a_batch_about_to_be_finished(
    new_pipeline: Callable[..., Pipeline], before_img_prefix: str | None
) -> None:
    pipeline = new_pipeline()
    table, spec = one_update(pipeline, before_img_prefix=before_img_prefix)
    old: list[Mapping[str, Any]] = []

    def hang(reached: ReachedFailpoint) -> None:
        if old:
            return
        old.append(reached.arguments)
        result = job.run(spec)
        assert not result.failed
        pipeline.commit(result)
        raise Killed("the old run")

    def wake() -> None:
        faults.prune(pipeline.writer)
        with nullcontext() if before_img_prefix is None else pytest.raises(GapError):
            change_pull._check_all_read(**old[0])

    with failpoint_action("check_all_read", before=hang), once_before("commit_batch", wake), pytest.raises(Killed):
        job.run(spec)
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert sum(logged_events(pipeline, table).values()) == 1


def shown(pipeline: Pipeline, manifest: Any, table: TableId) -> dict[int, str]:
    state = load(pipeline.spark, Layout(pipeline.target).state(table), manifest["tables"][str(table)])
    return {row["ID"]: row["A"] for row in state.collect()}


def manifests(pipeline: Pipeline) -> dict[int, Any]:
    rows = load(pipeline.spark, Layout(pipeline.target).internal("manifest")).collect()
    return {row["batch"]: row for row in rows}


def test_a_resumed_run_names_no_version_of_a_later_run(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """A hangs before its merge. B applies A's batch and one of its own, and has no manifest yet when A resumes."""
    pipeline = new_pipeline()
    table, a = one_update(pipeline)

    def another() -> None:
        changed(pipeline, f"UPDATE {table} SET A = 'z' WHERE ID = 2")
        b = pipeline.plan("B")
        assert b is not None
        with killed("publish_manifest", "before"):
            job.run(b)

    finished = pytest.raises(ConcurrentRunError, match=r"another run has finished batch \d+ of .*\.T meanwhile")
    with once_before("merge_state", another), finished:
        job.run(a)
    pipeline.to_its_end()
    assert {shown(pipeline, row, table)[2] for row in manifests(pipeline).values() if row["batch"] > 1} == {"z"}
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_a_cleared_restart_abandons_no_batch_of_a_later_plan(new_pipeline: Callable[..., Pipeline], key: str) -> None:
    """B restarts the table, and is done. C pulls, and dies before it commits its batch. B, not C, is cleared."""
    pipeline = new_pipeline()
    other = filled(pipeline, 3, "O")
    table = pipeline.create(f"CREATE TABLE {pipeline.schema}.T (ID INTEGER NOT NULL {key}, A VARCHAR(9))", "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?, 'a')", [(at,) for at in range(3)])
    pipeline.captured()
    pipeline.passed()
    pipeline.restart(table)
    b = pipeline.plan("B")
    assert b is not None
    pipeline.commit(job.run(b))
    changed(pipeline, f"INSERT INTO {table} VALUES (100, 'x')", f"UPDATE {other} SET A = 'x' WHERE ID = 1")
    c = pipeline.plan("C")
    assert c is not None
    with killed("commit_batch", "before"):
        job.run(c)
    with pytest.raises(ConcurrentRunError):
        job.run(b)
    pipeline.to_its_end()
    held = Counter(tuple(row) for row in pipeline.state(table).select("ID", "A").collect())
    assert held == Counter(pipeline.query(f"SELECT * FROM {table}"))
    assert pipeline.changes(table).where("op = 'c'").count() == 1


@pytest.mark.long
def test_a_cleared_run_applies_no_later_batch_with_its_old_columns(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """A fails at once. A column is added. B plans a batch and dies. A is cleared."""
    pipeline = new_pipeline()
    table, a = one_update(pipeline)
    with killed("read_history", "before"):
        job.run(a)
    pipeline.gain(table, "B")
    changed(pipeline, f"UPDATE {table} SET B = 5 WHERE ID = 1")
    b = pipeline.plan("B")
    assert b is not None
    with killed("plan_batch", "after"):
        job.run(b)
    with pytest.raises(ConcurrentRunError):
        job.run(a)
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
@pytest.mark.parametrize(
    "hangs_before",
    [
        pytest.param("read_history", marks=pytest.mark.long),
        pytest.param("read_journal", marks=pytest.mark.long),
        "plan_batch",
    ],
)
def test_no_manifest_names_a_table_that_another_run_has_restarted(
    new_pipeline: Callable[..., Pipeline], hangs_before: Failpoint
) -> None:
    """C hangs. B repairs a gap by a snapshot, publishes half of it, and dies. C resumes."""
    pipeline = new_pipeline(
        **{"snapshot.mode": "when_needed", "incremental.snapshot.chunk.size": 30, "snapshot.group.chunks": 1}
    )
    table, other = filled(pipeline, 100), filled(pipeline, 3, "O")
    pipeline.to_its_end()
    control_tables.removetable(pipeline.writer, table.schema, table.name)
    pipeline.execute(f"DELETE FROM {table} WHERE ID = 95")
    pipeline.writer.commit()
    control_tables.addtable(pipeline.writer, table.schema, table.name)
    pipeline.captured()
    b = pipeline.plan("B")
    changed(pipeline, f"UPDATE {other} SET A = 'x' WHERE ID = 1")
    c = pipeline.plan("C")
    assert b is not None
    assert c is not None

    def another() -> None:
        with killed("settle_table_snapshot", "before"):
            job.run(b)

    before = manifests(pipeline)
    with once_before(hangs_before, another), suppress(ConcurrentRunError):
        pipeline.commit(job.run(c))
    pipeline.to_its_end()
    new = [shown(pipeline, row, table) for batch, row in manifests(pipeline).items() if batch not in before]
    assert new, "there is one in the end"
    assert all(95 not in rows for rows in new)
