"""A source that was restored: no tick succeeds after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.filled import changed, filled
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture.trigger_journal import find_journal

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.long]


def failures(result: JobResult | None) -> dict[TableId, str]:
    assert result is not None, "it was taken for an idle tick"
    return {line.table: line.error for line in result.failed}


def restore(pipeline: Pipeline, table: TableId, *statements: str) -> None:
    """Take the table's last commit back, as a backup of before it does; its agent then passes where it stood."""
    journal = find_journal(pipeline.writer, table.schema, table.name)
    assert journal is not None
    offset = pipeline.offsets.get(table)
    assert offset is not None
    assert offset.commit_lsn is not None
    owner, name = journal.change_table
    pipeline.unseen(table, *statements)
    for where in (f'"{owner}"."{name}"', "ASNCDC.IBMSNAP_UOW"):
        pipeline.execute(f"DELETE FROM {where} WHERE IBMSNAP_COMMITSEQ = X'{offset.commit_lsn.hex}'")
    pipeline.writer.commit()
    pipeline.captured()


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_restored_source_stops_all_tables_after_capture_passes_them(
    new_pipeline: Callable[..., Pipeline], mode: str
) -> None:
    pipeline = new_pipeline(**{"snapshot.mode": mode})
    table, other = filled(pipeline, 3, "T"), filled(pipeline, 3, "U")
    pipeline.to_its_end()
    for value in ("b", "c"):
        changed(pipeline, f"UPDATE {table} SET A = '{value}' WHERE ID = 1")
        pipeline.to_its_end()
    restore(pipeline, table, f"UPDATE {table} SET A = 'b' WHERE ID = 1")
    if mode == "initial":
        for _ in range(2):
            found = failures(pipeline.tick())
            assert found.keys() == {table, other}
            assert all("the source was restored or capture reset" in error for error in found.values())
        pipeline.restart(table)
        pipeline.restart(other)
    pipeline.passed()
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    changed(pipeline, f"UPDATE {table} SET A = 'd' WHERE ID = 1")
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
