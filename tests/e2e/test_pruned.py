"""Change rows pruned at any moment between a plan and the commit: missed, or read before; never lost unseen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed
from support.filled import ask, changed, filled, one_update
from support.pipeline import Pipeline
from support.writing import behind

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.failpoint import ReachedFailpoint, failpoint_action
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def prune(pipeline: Pipeline, upto: Lsn | None = None) -> None:
    faults.prune(pipeline.writer, upto=upto.raw if upto else None)


def rename(pipeline: Pipeline, schema: str, old: str, new: str) -> None:
    pipeline.execute(f'RENAME TABLE "{schema}"."{old}" TO "{new}"')
    pipeline.writer.commit()


def test_while_the_offset_is_behind_the_target_is_a_gap(new_pipeline: Callable[..., Pipeline]) -> None:
    """The commit task died, so the plan counts another range than is pulled."""
    pipeline = new_pipeline()
    table, first = one_update(pipeline)
    assert not job.run(first).failed
    pruned = changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = 2")
    changed(pipeline, f"UPDATE {table} SET A = 'd' WHERE ID = 3")
    spec = pipeline.plan()
    assert spec is not None
    prune(pipeline, pruned)
    [line] = job.run(spec).failed
    assert "are pruned" in line.error


def test_a_table_that_cannot_be_counted_fails_alone(new_pipeline: Callable[..., Pipeline]) -> None:
    """Its change table goes behind the plan; it comes back, for the tests behind this one share the source."""
    pipeline = new_pipeline()
    table, other = filled(pipeline, 9), filled(pipeline, 9, "O")
    pipeline.passed()
    for value in ("b", "c"):
        both = [f"UPDATE {one} SET A = '{value}' WHERE ID = 1" for one in (table, other)]
        changed(pipeline, *both)
        spec = pipeline.plan()
        assert spec is not None
        if value == "b":
            assert not job.run(spec).failed, "its commit task dies"
    [capture] = [task.capture for task in spec.tables if task.table == table]
    there, away = capture.cd_table, f"{capture.cd_table}_AWAY"
    rename(pipeline, capture.cd_owner, there, away)
    try:
        result = job.run(spec)
    finally:
        rename(pipeline, capture.cd_owner, away, there)
    assert [line.table for line in result.failed] == [table]
    assert pipeline.rows(other) == pipeline.source_rows(other)


def test_behind_the_read_is_no_gap(new_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    with behind("append_changes", lambda _: prune(pipeline)):
        pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_of_updates_of_which_nobody_knows_how_many_rows_they_were_is_a_gap(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Single rows with before images, under a registration of pairs of which the agent has not heard yet."""
    pipeline = new_pipeline()
    table = filled(pipeline, 3, update_as="U", before_img_prefix="X")
    pipeline.passed()
    pairs = "UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'Y' WHERE SOURCE_OWNER = ?"
    pipeline.execute(pairs, pipeline.schema)
    pipeline.writer.commit()
    first, _ = (changed(pipeline, f"UPDATE {table} SET A = 'n' WHERE ID = {id_}") for id_ in (1, 2))
    spec = pipeline.plan()
    assert spec is not None
    assert spec.tables[0].rows == 2
    prune(pipeline, first)
    with killed("append_changes", "after"):
        job.run(spec)
    [line] = job.run(spec).failed
    assert "pruned" in line.error


@pytest.mark.long
def test_of_a_batch_that_nobody_can_tell_to_be_whole_is_mended_by_a_snapshot(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """An update may be two halves or one row there; its event is in the change log, and the run died behind that."""
    pipeline = new_pipeline(**{"snapshot.mode": "when_needed"})
    table = filled(pipeline, 9, before_img_prefix="X")
    pipeline.passed()
    pruned = changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    spec = pipeline.plan()
    assert spec is not None
    with killed("append_changes", "after"):
        job.run(spec)
    prune(pipeline, pruned)
    changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = 2")
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)


def test_in_a_window_that_could_not_be_counted_fails_the_table(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    commits: list[Lsn] = []

    def fail(_: ReachedFailpoint) -> None:
        if commits:
            raise OSError("deadlock or timeout")

    with (
        behind("stage_rows", lambda _: commits.append(changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1"))),
        failpoint_action("count_changes", before=fail),
        behind("count_ranges", lambda _: prune(pipeline, commits[0]) if commits else None),
    ):
        result = pipeline.tick(ask(table))
    assert result is not None
    assert "OSError" in result.failed[0].error
    after = pipeline.tick()
    assert after is not None
    assert "are pruned" in after.failed[0].error


@pytest.mark.parametrize("left", [pytest.param(0, marks=pytest.mark.long), 1], ids=["all of them", "some"])
def test_while_the_plan_is_made_is_a_gap(new_pipeline: Callable[..., Pipeline], left: int) -> None:
    """The plan looks at the registrations first, and counts behind that."""
    pipeline = new_pipeline()
    table, other = filled(pipeline, 9), filled(pipeline, 9, "O")
    pipeline.passed()
    pruned = changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    if left:
        changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = 2")
    changed(pipeline, f"UPDATE {other} SET A = 'd' WHERE ID = 3")
    with behind("read_capture", lambda _: prune(pipeline, pruned)):
        spec = pipeline.plan()
    assert spec is not None
    result = job.run(spec)
    pipeline.commit(result)
    assert table in [line.table for line in result.failed]
