"""An operator's request to restore an offset: the next tick takes the position that the target has committed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.crash import killed
from support.memory_pipeline import MemoryPipeline, filled
from support.memory_source import lsn
from support.request import execute

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.snapshot.mode import MODES
from airflow_provider_db2cdc.cdc.table import TableId

A, B, C = (TableId("S", name) for name in "ABC")
BEYOND = lsn(1000)


@pytest.fixture
def pipeline() -> MemoryPipeline:
    """A pipeline of two tables that a first tick has loaded and a second tick has continued."""
    pipeline = filled(A, B, C, rows=3)
    pipeline.tables = [A, B]
    pipeline.passed()
    pipeline.change(A, 1, 5)
    pipeline.passed()
    return pipeline


def lose(pipeline: MemoryPipeline) -> None:
    pipeline.offsets.lose(A)


def put_ahead(pipeline: MemoryPipeline) -> None:
    pipeline.offsets.put(replace(offset_of(pipeline), lsn=BEYOND, batch=99))


def offset_of(pipeline: MemoryPipeline) -> Offset:
    offset = pipeline.offsets.get(A)
    assert offset is not None
    return offset


@pytest.mark.parametrize("damage", [lose, put_ahead])
def test_lost_or_ahead_offset_is_restored_without_a_snapshot(pipeline: MemoryPipeline, damage: object) -> None:
    before = offset_of(pipeline)
    assert callable(damage)
    damage(pipeline)
    assert "offset restore S.A" in pipeline.failure(A)
    pipeline.change(A, 2, 6)
    pipeline.restore(A)
    result = pipeline.passed()
    after = offset_of(pipeline)
    assert not after.restore
    assert before.lsn < after.lsn < BEYOND
    assert (after.committed_lsn, after.commit_lsn) == (after.lsn, after.lsn)
    assert result.tables[0].after == before.lsn, "changes are pulled from the committed position"
    assert pipeline.reads(A) == dict.fromkeys(range(3), 1)
    pipeline.finish()


def test_an_older_copy_of_the_target_reuses_no_batch_number(pipeline: MemoryPipeline) -> None:
    """A consumer that has read up to a batch of the lost target reads on with the next one."""
    copy = pipeline.target.copy()
    for value in (6, 7):
        pipeline.change(A, 2, value)
        newest = max(line.batch or 0 for line in pipeline.passed().tables)
    pipeline.target = copy
    errors = {line.table: line.error for line in pipeline.tick().failed}
    for table in (A, B):
        assert "ahead of the target" in errors[table]
        pipeline.restore(table)
    result = pipeline.passed()
    assert {line.batch for line in result.tables} == {newest + 1}
    pipeline.finish()


def test_an_older_copy_without_a_snapshot_reuses_no_batch_number(pipeline: MemoryPipeline) -> None:
    """No offset is ahead of the copy, because the lost batches have read only snapshots."""
    copy, journal = pipeline.target.copy(), pipeline.journal.copy()
    pipeline.target.put_rows(A, {(2,): None})
    pipeline.passed(execute("s1", A))
    newest = max(each.batch for each in pipeline.target.planned)
    pipeline.target, pipeline.journal = copy, journal
    pipeline.passed()
    pipeline.change(A, 1, 7)
    assert {line.batch for line in pipeline.passed().tables if line.creates or line.updates} == {newest + 1}


def test_offset_is_restored_though_there_is_nothing_to_pull(pipeline: MemoryPipeline) -> None:
    before = offset_of(pipeline)
    lose(pipeline)
    pipeline.restore(A)
    assert [line.status for line in pipeline.passed().tables] == ["unchanged", "unchanged"]
    assert replace(offset_of(pipeline), revision="", planned_at_ms=0) == replace(before, revision="", planned_at_ms=0)


def test_restore_requested_during_a_tick_belongs_to_the_next_tick(pipeline: MemoryPipeline) -> None:
    pipeline.change(A, 2, 6)
    spec = pipeline.plan()
    put_ahead(pipeline)
    pipeline.restore(A)
    pipeline.commit(pipeline.run(spec))
    assert (offset_of(pipeline).lsn, offset_of(pipeline).restore) == (BEYOND, True)
    pipeline.finish()
    assert not offset_of(pipeline).restore


@pytest.mark.parametrize("point", ["append_changes", "commit_batch", "commit_offsets"])
def test_restore_survives_a_death(pipeline: MemoryPipeline, point: str) -> None:
    put_ahead(pipeline)
    pipeline.restore(A)
    pipeline.change(A, 2, 6)
    spec = pipeline.plan()
    with killed(point, "after"):  # type: ignore[arg-type]
        pipeline.commit(pipeline.run(spec))
    pipeline.commit(pipeline.run(spec))
    assert not offset_of(pipeline).restore
    pipeline.finish()


def test_restore_of_a_table_that_the_target_does_not_have_begins_nothing(pipeline: MemoryPipeline) -> None:
    pipeline.tables = [A, B, C]
    pipeline.offsets.put(Offset(C, BEYOND, 5, restore=True))
    for _ in range(2):
        error = pipeline.failure(C)
        assert "cannot be restored, because the target holds nothing of this table" in error
        assert "offset restart S.C" in error
    assert pipeline.offsets.summary().failure(C).waits_for_operator  # type: ignore[union-attr]
    pipeline.restart(C)
    pipeline.finish()


def test_restore_does_not_hide_that_changes_are_missing(pipeline: MemoryPipeline) -> None:
    pipeline.offsets.put(replace(offset_of(pipeline), lsn=BEYOND, capture_interrupted=True))
    pipeline.restore(A)
    for _ in range(2):
        assert "was not active for a while" in pipeline.failure(A)
    assert offset_of(pipeline).lsn < BEYOND, "the position is restored anyway"


def test_source_found_restored_is_recorded_in_a_lost_offset(pipeline: MemoryPipeline) -> None:
    lose(pipeline)
    pipeline.restore(A)
    pipeline.restored(A)
    assert "the source was restored" in pipeline.failure(A)
    assert offset_of(pipeline).source_restored


def test_restore_takes_a_restart_back(pipeline: MemoryPipeline) -> None:
    pipeline.restart(A)
    pipeline.restore(A)
    pipeline.change(A, 2, 6)
    pipeline.passed()
    assert pipeline.reads(A) == dict.fromkeys(range(3), 1)
    pipeline.finish()


def test_restart_takes_a_restore_back(pipeline: MemoryPipeline) -> None:
    lose(pipeline)
    pipeline.restore(A)
    pipeline.restart(A)
    pipeline.finish()
    assert pipeline.reads(A) == dict.fromkeys(range(3), 2)


def test_mode_without_streaming_restores_the_offset_and_pulls_nothing() -> None:
    pipeline = filled(A, rows=3)
    pipeline.mode = MODES["initial_only"]
    pipeline.passed()
    before = offset_of(pipeline)
    pipeline.change(A, 9, 5)
    lose(pipeline)
    pipeline.restore(A)
    pipeline.passed()
    assert 9 not in pipeline.state(A)
    assert offset_of(pipeline).lsn == before.lsn
    lose(pipeline)
    pipeline.restore(A)
    pipeline.source.prune()
    assert "pruned" in pipeline.failure(A, execute("ask", A)), "a snapshot notices what it misses"


def test_mode_that_repairs_a_loss_snapshots_what_cannot_be_restored() -> None:
    pipeline = filled(A, rows=3)
    pipeline.mode = MODES["when_needed"]
    pipeline.offsets.put(Offset(A, Lsn(bytes(15) + b"\7"), 5, restore=True))
    pipeline.passed()
    pipeline.finish()
