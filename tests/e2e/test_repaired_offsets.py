"""Commands that repair offsets, with real Delta tables: a lost offset, and all tables that have failed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.command_line import Command
from support.filled import changed, filled
from support.pipeline import Pipeline
from support.submitted import config_file

from airflow_provider_db2cdc.sandbox.capture import faults

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def test_a_lost_offset_is_restored_and_failed_tables_are_restarted(
    new_pipeline: Callable[..., Pipeline], db2cdc: Command
) -> None:
    pipeline = new_pipeline()
    config = config_file(pipeline)
    tables = table, other = filled(pipeline, 3, "T"), filled(pipeline, 3, "U")
    pipeline.passed()
    changed(pipeline, f"UPDATE {table} SET A = 'x' WHERE ID = 2")
    pipeline.passed()
    before = pipeline.offsets.lose(table)
    changed(pipeline, f"UPDATE {table} SET A = 'b' WHERE ID = 1", f"DELETE FROM {other} WHERE ID = 2")
    result = pipeline.tick()
    assert result is not None
    assert [line.table for line in result.failed] == [table]
    assert f"db2cdc offset restore {table}" in result.failed[0].error
    assert pipeline.rows(other) == pipeline.source_rows(other)

    done = db2cdc("offset", "restore", "--config", config, str(table))
    assert done.returncode == 0, done.stderr
    result = pipeline.passed()
    [line] = [line for line in result.tables if line.table == table]
    assert (line.after, line.updates, line.reads) == (before.lsn, 1, 0), "it continues, and reads nothing again"
    assert pipeline.rows(table) == pipeline.source_rows(table)

    for name in ("T", "U"):
        faults.reregister(pipeline.writer, pipeline.schema, name)
    changed(pipeline, *(f"UPDATE {name} SET A = 'c' WHERE ID = 0" for name in tables))
    result = pipeline.tick()
    assert result is not None
    assert {line.table for line in result.failed} == {*tables}
    done = db2cdc("offset", "restart", "--config", config, "--all-failed")
    assert done.returncode == 0, done.stderr
    pipeline.passed()
    assert [pipeline.rows(name) for name in tables] == [pipeline.source_rows(name) for name in tables]
    assert db2cdc("offset", "restart", "--config", config, "--all-failed").stderr.count("nothing to do") == 1
