"""A catalog's schema as target: the same tables by name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.signal.signal import Signal

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def test_snapshots_and_changes_reach_a_catalogs_tables(
    new_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_db2cdc.spark.tables.SMALL_ROWS", 0)
    pipeline = new_pipeline()
    pipeline.target = "Lake"
    pipeline.spark.sql("CREATE SCHEMA IF NOT EXISTS Lake")
    ddl = f'CREATE TABLE "{pipeline.schema}"."MY TABLE" (ID INTEGER NOT NULL PRIMARY KEY, A VARCHAR(9))'
    table = pipeline.create(ddl, "MY TABLE")
    name = f'"{pipeline.schema}"."MY TABLE"'
    pipeline.many(f"INSERT INTO {name} VALUES (?, ?)", [(at, "a") for at in range(5)])
    pipeline.captured()
    pipeline.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)

    pipeline.gain(table, "B", "INTEGER DEFAULT 7")
    pipeline.execute(f"UPDATE {name} SET A = 'b' WHERE ID = 1")
    pipeline.writer.commit()
    pipeline.captured()
    asked = {"data-collections": [name]}
    second = pipeline.passed(Signal("again", "execute-snapshot", json.dumps(asked), "airflow"))
    assert [(one.status, one.rows) for one in second.snapshots] == [("completed", 5)]
    assert pipeline.rows(table) == pipeline.source_rows(table)
    tables = {row.tableName for row in pipeline.spark.sql("SHOW TABLES IN Lake").collect()}
    assert {name for name in tables if name.startswith(table.schema.lower())} == {
        f"{table.schema.lower()}__my_x20_table{suffix}" for suffix in ("", "__changes")
    }
