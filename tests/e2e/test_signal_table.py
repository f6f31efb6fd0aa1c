"""A signal table of CHAR columns, padded with blanks: its signals, and the watermarks in it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.pipeline import Pipeline, use_signal_table

from airflow_provider_db2cdc.source.preflight.checks import preflight

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]

PADDED = "ID CHAR(42) NOT NULL PRIMARY KEY, TYPE CHAR(32) NOT NULL, DATA CHAR(200)"


def test_signals_and_watermarks_of_a_padded_table_are_found_again(new_pipeline: Callable[..., Pipeline]) -> None:
    """Signals from before capture has shown a row are read from the table, later ones from the change table."""
    pipeline = new_pipeline()
    signals = use_signal_table(pipeline, f"{pipeline.schema}_SIGNALS", PADDED)
    table = pipeline.create(f'CREATE TABLE "{pipeline.schema}"."T" (ID INTEGER NOT NULL PRIMARY KEY)', "T")
    pipeline.many(f"INSERT INTO {table} VALUES (?)", [(at,) for at in range(5)])
    pipeline.captured()
    pipeline.passed()
    asked = json.dumps({"data-collections": [str(table)]})
    for id_, strategy in (("first", "insert_insert"), ("second", "insert_delete")):
        pipeline.properties = {**pipeline.properties, "incremental.snapshot.watermarking.strategy": strategy}
        with pipeline.source() as source:
            assert [check for check in preflight(source, pipeline.config) if not check.ok] == []
        pipeline.execute(f"INSERT INTO {signals} VALUES (?, 'execute-snapshot', ?)", id_, asked)
        pipeline.writer.commit()
        if id_ != "first":
            pipeline.captured()
        result = pipeline.passed()
        found = {one.id: (one.status, one.reason) for one in result.signals}
        assert found[id_] == ("done", ""), strategy
        assert not [name for name in found if name.strip() != name or name not in ("first", "second")]
    assert pipeline.changes(table).where("op = 'r'").count() == 3 * 5
