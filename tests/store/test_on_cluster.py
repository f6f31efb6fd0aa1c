"""A target on S3 that the executors of a standalone cluster write. Only the driver has the login in its environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.object_store import SECRET_KEY
from support.stored import StoredPipeline, changed, filled

from airflow_provider_db2cdc.demo.cluster.spread import event_log_conf, shares_of_folder
from airflow_provider_db2cdc.demo.cluster.standalone import DRIVER_CONF, StandaloneCluster

pytestmark = [pytest.mark.cluster, pytest.mark.sandbox, pytest.mark.timeout(1800)]

MEMORY = {"spark.executor.memory": "1g", "spark.driver.memory": "1g"}


def test_executors_write_a_target_on_s3_with_the_drivers_login(
    new_stored: Callable[..., StoredPipeline], tmp_path: Path
) -> None:
    pipeline = new_stored(**{"incremental.snapshot.chunk.size": 10})
    events = pipeline.folder / "events"
    events.mkdir()
    with StandaloneCluster(pipeline.folder / "cluster") as cluster:
        pipeline.master = cluster.url
        pipeline.more_conf = {**DRIVER_CONF, **MEMORY, **event_log_conf(events)}
        table = filled(pipeline)
        pipeline.passed("tick")
        pipeline.assert_equal(table)
        changed(pipeline, table, 1000)
        pipeline.passed("tick")
        pipeline.assert_equal(table)
        pipeline.passed("verify")
        pipeline.passed("maintain")
    assert sum(share.written_bytes for share in shares_of_folder(events).values())
    kept = [path for path in pipeline.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in kept if SECRET_KEY.encode() in path.read_bytes()]
