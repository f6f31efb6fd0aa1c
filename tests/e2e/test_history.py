"""Random histories with ticks in between. After each tick the target equals the source."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from support.history import HistoryOptions, random_history
from support.log import folded
from support.pipeline import Pipeline, Replay

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.delta.table_io import load

pytestmark = [pytest.mark.spark, pytest.mark.sandbox]


IMAGES = {"update_as": "U", "before_img_prefix": "X"}


def fitting_rows(pipeline: Pipeline, table: TableId) -> set[Any]:
    """Return a table's rows in the version that the newest row of the manifest names."""
    layout = Layout(pipeline.target)
    newest = load(pipeline.spark, layout.internal("manifest")).orderBy("batch", ascending=False).first()
    assert newest is not None
    state = load(pipeline.spark, layout.state(table), newest["tables"][str(table)])
    kept = [name for name in state.columns if not name.startswith("__")]
    return {tuple(row) for row in state.select(*(f"`{name}`" for name in kept)).collect()}


@pytest.mark.parametrize(
    ("seed", "registration", "keys"),
    [
        (1, {}, "numbers"),
        pytest.param(2, {}, "numbers", marks=pytest.mark.long),
        pytest.param(3, IMAGES, "numbers", marks=pytest.mark.long),
        pytest.param(4, {}, "case", marks=pytest.mark.long),
    ],
)
def test_target_equals_source_after_each_tick(
    new_pipeline: Callable[..., Pipeline], seed: int, registration: dict[str, Any], keys: Any
) -> None:
    rng = random.Random(seed)
    pipeline = new_pipeline(**{"max.rows.per.batch": [1_000_000, 60][seed % 2]})
    history = random_history(seed, HistoryOptions(tables=2, transactions=24, lanes=1, width=10, keys=keys))
    replay = Replay(pipeline, history, registration=registration)
    replay.prepare()
    pipeline.captured()
    while True:
        captured = pipeline.captured()
        while (result := pipeline.tick()) is not None:
            assert not result.failed, [table.error for table in result.failed]
            if all(table.lsn is not None and table.lsn >= captured for table in result.tables):
                break
        for shape in history.tables:
            table = TableId(pipeline.schema, shape.name)
            assert pipeline.rows(table) == replay.expected(shape.name) == pipeline.source_rows(table)
            assert fitting_rows(pipeline, table) == pipeline.rows(table)
            assert folded(pipeline, table) == pipeline.rows(table)
        if replay.ended:
            return
        replay.play(rng.randint(10, 16))
