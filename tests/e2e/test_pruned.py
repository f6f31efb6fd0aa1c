"""Change rows are pruned at any moment between a plan and the commit: none is lost unnoticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.crash import killed, once
from support.filled import ask, changed, filled
from support.pipeline import Pipeline
from support.writing import after_each

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark import job

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def prune(pipeline: Pipeline, upto: Lsn | None = None) -> None:
    faults.prune(pipeline.writer, upto=upto.raw if upto else None)


def failure(result: JobResult | None) -> str:
    assert result is not None
    [line] = result.failed
    return line.error


def test_changes_lost_unread_are_a_gap_that_a_snapshot_repairs(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Change rows are pruned after they were read, then before that. Last, the agent is started cold."""
    pipeline = new_pipeline()
    table = filled(pipeline, 9)
    pipeline.passed()
    read = changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    with after_each("append_changes", lambda _: prune(pipeline, read)):
        pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table), "they were read before"

    def prune_unread() -> None:
        changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = 2")
        prune(pipeline)

    with once("stage_rows", "after", prune_unread):
        assert "are pruned" in failure(pipeline.tick(ask(table)))
    pipeline.properties = {"snapshot.mode": "when_needed"}
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)

    def start_cold() -> None:
        pipeline.unseen(table, f"UPDATE {table} SET ID = -1 WHERE ID = 8")
        faults.cold_start(pipeline.writer)

    with once("stage_rows", "after", start_cold):
        assert "was started cold" in failure(pipeline.tick(ask(table, "later")))
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)


@pytest.mark.long
def test_pruning_of_updates_of_unknown_form_is_a_gap(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """Single rows with before images. The registration asks for pairs, but the agent has not read that yet."""
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
def test_pruning_of_a_possibly_incomplete_batch_is_repaired_by_a_snapshot(
    new_pipeline: Callable[..., Pipeline],
) -> None:
    """An update may be two halves or one row there. Its event is in the change log, and the run died after that."""
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


@pytest.mark.long
@pytest.mark.parametrize("left", [0, 1], ids=["all of them", "some"])
def test_pruning_while_the_plan_is_made_is_a_gap(new_pipeline: Callable[..., Pipeline], left: int) -> None:
    """The plan reads the registrations first, and counts after that."""
    pipeline = new_pipeline()
    table, other = filled(pipeline, 9), filled(pipeline, 9, "O")
    pipeline.passed()
    pruned = changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    if left:
        changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = 2")
    changed(pipeline, f"UPDATE {other} SET A = 'd' WHERE ID = 3")
    with after_each("read_capture", lambda _: prune(pipeline, pruned)):
        spec = pipeline.plan()
    assert spec is not None
    result = job.run(spec)
    pipeline.commit(result)
    assert table in [line.table for line in result.failed]
