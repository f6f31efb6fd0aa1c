"""Small runs of the sizes that `python -m tests.bench.sizes` measures, on a Spark standalone cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from support.on_cluster import ClusterTicks
from support.pipeline import Pipeline
from support.shapes import NARROW, Shape, change, fill, long_rows, many_columns

from airflow_provider_db2cdc.demo.cluster.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize(
    ("shape", "rows", "changes", "ticks", "properties"),
    [
        # Three commits of 1,000 or 2,000 changes: a commit is never cut, so each is a tick.
        (NARROW, 5000, 4000, 3, {"incremental.snapshot.chunk.size": 500, "max.rows.per.batch": 1000}),
        (many_columns(1000), 40, 20, 1, {}),
        (long_rows(), 12, 8, 1, {}),
    ],
    ids=["backlog", "columns", "long rows"],
)
def test_a_size_passes(
    new_pipeline: Callable[..., Pipeline],
    cluster: StandaloneCluster,
    shape: Shape,
    rows: int,
    changes: int,
    ticks: int,
    properties: Mapping[str, Any],
) -> None:
    pipeline = new_pipeline(**properties)
    table = fill(pipeline, "T", rows, shape)
    on_cluster = ClusterTicks(pipeline, cluster.url)
    on_cluster.passed()
    assert pipeline.rows(table) == pipeline.source_rows(table)
    change(pipeline, table, shape, changes)
    pipeline.captured()
    assert on_cluster.to_its_end() == ticks
    assert pipeline.rows(table) == pipeline.source_rows(table)
