"""Heals against a source: what another writer has changed, what was never captured, and a gap."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.filled import ask, changed, filled
from support.log import folded, reads
from support.pipeline import Pipeline
from support.shared_spark import forget_delta_logs

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.sandbox.capture import faults
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow]


def by_text(pipeline: Pipeline) -> TableId:
    """Create a table whose key Spark does not sort as the source does."""
    ddl = f"CREATE TABLE {pipeline.schema}.TEXTS (ID VARCHAR(9) NOT NULL PRIMARY KEY, A VARCHAR(9))"
    table = pipeline.create(ddl, "TEXTS")
    pipeline.many(f"INSERT INTO {table} VALUES (?, 'a')", [(f"k{at}",) for at in range(20)])
    pipeline.captured()
    return table


def test_damage_of_every_kind_is_healed(new_pipeline: Callable[..., Pipeline]) -> None:
    """Another writer has changed, deleted, added and doubled rows. A change was not captured. Then changes are lost."""
    pipeline = new_pipeline(
        **{"incremental.snapshot.chunk.size": 4, "snapshot.mode": "when_needed", "snapshot.on.gap": "heal"}
    )
    numbers, texts = filled(pipeline, 20, "NUMBERS"), by_text(pipeline)
    pipeline.passed()
    before = {table: Counter(reads(pipeline, table)) for table in (numbers, texts)}
    other = pipeline.spark.newSession()
    for table, key in ((numbers, "{}"), (texts, "'k{}'")):
        state = f"delta.`{Layout(pipeline.target).state(table).name}`"
        other.sql(f"UPDATE {state} SET A = 'x' WHERE ID = {key.format(1)}")
        other.sql(f"DELETE FROM {state} WHERE ID = {key.format(2)}")
        other.sql(f"INSERT INTO {state} (ID, A) VALUES ({key.format(77)}, 'x'), ({key.format(3)}, 'y')")
        pipeline.unseen(table, f"UPDATE {table} SET A = 'l' WHERE ID = {key.format(8)}")
        changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = {key.format(4)}")

    result = pipeline.passed(ask(numbers, "heal", **{"data-collections": [str(numbers), str(texts)], "type": "heal"}))

    assert [outcome.status for outcome in result.signals] == ["done"]
    for table in (numbers, texts):
        assert pipeline.rows(table) == pipeline.source_rows(table), table
        assert folded(pipeline, table) == pipeline.source_rows(table), table
        again = Counter(reads(pipeline, table)) - before[table]
        assert sum(again.values()) <= 4, "equal rows have no event"
    pipeline.to_its_end()
    check_gap(pipeline, numbers)


def check_gap(pipeline: Pipeline, table: TableId) -> None:
    """Lose a change of a table, and check that only its key is published."""
    before = Counter(reads(pipeline, table))
    changed(pipeline, f"UPDATE {table} SET A = 'lost' WHERE ID = 6")
    faults.prune(pipeline.writer)
    changed(pipeline, f"UPDATE {table} SET A = 'kept' WHERE ID = 7")
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    again = Counter(reads(pipeline, table)) - before
    assert {*again} <= {(6,), (7,)}
    assert again[(6,)] == 1
    changed(pipeline, f"UPDATE {table} SET A = 'later' WHERE ID = 9")
    pipeline.to_its_end()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert folded(pipeline, table) == pipeline.source_rows(table)


def test_a_heal_of_an_older_state_removes_the_manifest_of_newer_ones(new_pipeline: Callable[..., Pipeline]) -> None:
    """The versions that it names are given to other commits."""
    pipeline = new_pipeline()
    table = filled(pipeline, 20)
    pipeline.passed()
    state, copy = Path(Layout(pipeline.target).state(table).name), pipeline.folder / "copy"
    shutil.copytree(state, copy)
    changed(pipeline, f"UPDATE {table} SET A = 'c' WHERE ID = 4")
    pipeline.passed()
    named = manifest_batches(pipeline)
    shutil.rmtree(state)
    copy.rename(state)
    forget_delta_logs(pipeline.spark)
    pipeline.passed(ask(table, "heal", type="heal"))
    assert pipeline.rows(table) == pipeline.source_rows(table)
    assert named
    assert not named & manifest_batches(pipeline)


def manifest_batches(pipeline: Pipeline) -> set[int]:
    """Return the batches of the manifest's rows."""
    rows = load(pipeline.spark, Layout(pipeline.target).internal("manifest")).select("batch").collect()
    return {row["batch"] for row in rows}
