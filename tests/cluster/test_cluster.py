"""A pipeline on a Spark standalone cluster: one master, two workers that have no Python and none of this package."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.filled import ask, filled
from support.on_cluster import ClusterTicks
from support.pipeline import Pipeline
from support.program import wait_for
from support.slow_relay import slow_relay

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.demo.cluster.standalone import Node, StandaloneCluster, WorkerSize
from airflow_provider_db2cdc.errors import TickFailedError

pytestmark = [pytest.mark.spark, pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(1200)]

CHUNKS = {"incremental.snapshot.chunk.size": 50}
KILL_TIMEOUT_S = 300
HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def is_equal(pipeline: Pipeline, table: TableId) -> bool:
    """Return whether the target has the source's rows."""
    return pipeline.rows(table) == pipeline.source_rows(table)


def test_a_local_target_is_refused_before_anything_is_written(
    new_pipeline: Callable[..., Pipeline], cluster: StandaloneCluster, tmp_path: Path
) -> None:
    pipeline = new_pipeline(**{"target.shared.mount": False})
    filled(pipeline, 5)
    ticks = ClusterTicks(pipeline, cluster.url, {"spark.sql.warehouse.dir": str(tmp_path / "warehouse")})
    with pytest.raises(TickFailedError, match=f"target {pipeline.target} is a local path, and Spark runs on spark://"):
        ticks.tick()
    assert not Path(pipeline.target).exists()
    pipeline.target = "default"
    with pytest.raises(TickFailedError, match=r"target file:\S+/warehouse is a local path"):
        ticks.tick()


def test_snapshots_and_ticks_use_both_workers(
    new_pipeline: Callable[..., Pipeline], cluster: StandaloneCluster
) -> None:
    pipeline = new_pipeline(**CHUNKS)
    table = filled(pipeline, 1000)
    ticks = ClusterTicks(pipeline, cluster.url)
    ticks.passed()
    assert is_equal(pipeline, table)
    shares = ticks.shares
    assert tuple(shares) == HOSTS
    assert sum(share.source_rows for share in shares.values()) >= 1000
    assert all(share.readers and share.written_bytes for share in shares.values()), shares

    pipeline.execute(f"UPDATE {table} SET A = 'ü', ID = ID + 5000 WHERE ID < 40")
    pipeline.execute(f"DELETE FROM {table} WHERE ID BETWEEN 100 AND 120")
    pipeline.writer.commit()
    ticks.passed()
    assert is_equal(pipeline, table)
    assert ticks.passed(ask(table)).snapshots[-1].status == "completed"
    assert is_equal(pipeline, table)
    assert set(ticks.executor_hosts()) == {*HOSTS}
    assert not [path for worker in cluster.workers for path in worker.folder.rglob("*") if "python" in path.name]


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true"},
        {"spark.default.parallelism": "4"},
    ],
    ids=["dynamic allocation", "default parallelism"],
)
def test_slots_need_not_be_known(
    new_pipeline: Callable[..., Pipeline], cluster: StandaloneCluster, conf: dict[str, str]
) -> None:
    pipeline = new_pipeline(**CHUNKS, **{"snapshot.group.chunks": 4})
    table = filled(pipeline, 400)
    ticks = ClusterTicks(pipeline, cluster.url, conf)
    ticks.passed()
    pipeline.execute(f"UPDATE {table} SET A = 'b' WHERE ID < 40")
    pipeline.writer.commit()
    ticks.passed()
    assert is_equal(pipeline, table)


def killing(ticks: ClusterTicks, after: str, worker: Callable[[], Node | None]) -> None:
    """Run a tick. Once its driver has printed a text, kill the first worker that is returned. A table may fail."""
    printed, killed = threading.Event(), threading.Event()

    def kill() -> None:
        printed.wait(KILL_TIMEOUT_S)
        wait_for(worker, KILL_TIMEOUT_S).kill()
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    result = ticks.tick(on_line=lambda line: printed.set() if after in line else None)
    assert killed.is_set(), f"the driver did not print {after!r}, or the moment did not come"
    sys.stdout.write(f"{ticks.task_ends()} {[table.error for table in result.failed]}\n")


def test_a_worker_killed_while_it_reads_a_snapshot_loses_nothing(
    new_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    pipeline = new_pipeline(**CHUNKS)
    table = filled(pipeline, 1000)
    with StandaloneCluster(tmp_path / "cluster") as cluster, slow_relay(pipeline.sandbox.port, 1_000) as relay:
        ticks = ClusterTicks(pipeline, cluster.url, address=f"127.0.0.1:{relay.port}")
        # The driver has up to two connections, and each worker two readers. So one of five is of this worker.
        killing(ticks, ": 21 chunks", lambda: cluster.workers[0] if relay.connections >= 5 else None)
        assert ticks.task_ends()["ExecutorLostFailure"], "no reader of that worker was lost"
        ticks.to_its_end()
    assert is_equal(pipeline, table)


def test_a_worker_killed_while_it_merges_loses_nothing(new_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    pipeline = new_pipeline()
    table = filled(pipeline, 3000)
    commits = Path(pipeline.target, "tables", pipeline.schema, "T", "_delta_log")
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        ticks = ClusterTicks(pipeline, cluster.url)
        ticks.passed()
        before = len([*commits.glob("*.json")])
        pipeline.execute(f"UPDATE {table} SET A = 'b', ID = -ID WHERE ID > 0")
        pipeline.writer.commit()

        def last_used() -> Node:
            assert len([*commits.glob("*.json")]) == before, "the merge was over"
            return next(worker for worker in cluster.workers if worker.host == ticks.last_host())

        killing(ticks, "in the change log", last_used)
        ticks.to_its_end()
    assert is_equal(pipeline, table)


def test_a_worker_that_cannot_reach_the_source_is_named_and_can_be_avoided(
    new_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    pipeline = new_pipeline(**CHUNKS)
    table = filled(pipeline, 1000)
    sizes = tuple(knowing_localhost_as(tmp_path / name, name) for name in ("127.0.0.1", "127.0.0.9"))
    with StandaloneCluster(tmp_path / "cluster", sizes) as cluster:
        ticks = ClusterTicks(pipeline, cluster.url, address=f"localhost:{pipeline.sandbox.port}")
        [failed] = ticks.tick().failed
        assert failed.table == table
        assert re.match(
            r"the source \(on executor \d of 127\.0\.0\.3\) cannot be reached \(.*127\.0\.0\.9", failed.error
        )
        ticks.conf = {"spark.excludeOnFailure.enabled": "true"}
        ticks.passed()
        assert ticks.task_ends()["ExceptionFailure"] > 4
    assert is_equal(pipeline, table)


def knowing_localhost_as(hosts: Path, address: str) -> WorkerSize:
    """Return a worker whose JVMs take another address for that of localhost."""
    hosts.write_text(f"{address} localhost\n127.0.0.1 {socket.gethostname()}\n")
    return WorkerSize(environment={"JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}"})


def test_two_workers_read_a_slow_source_faster_than_one(new_pipeline: Callable[..., Pipeline], tmp_path: Path) -> None:
    """Readers wait for the source, not for a core. So this holds on a machine of two cores, too.

    The first task of a new executor takes seconds longer. So the reads take a minute on one worker.
    """
    rates = []
    for sizes in ((WorkerSize(),), (WorkerSize(), WorkerSize())):
        pipeline = new_pipeline(**CHUNKS)
        table = filled(pipeline, 2000)
        folder = tmp_path / f"workers{len(sizes)}"
        with StandaloneCluster(folder, sizes) as cluster, slow_relay(pipeline.sandbox.port, 500) as relay:
            ticks = ClusterTicks(pipeline, cluster.url, address=f"127.0.0.1:{relay.port}")
            ticks.passed()
        assert is_equal(pipeline, table)
        rates.append(ticks.rows_per_s())
        sys.stdout.write(f"{len(sizes)} workers: {rates[-1]:.1f} rows/s, {ticks.shares}\n")
    assert rates[1] > 1.2 * rates[0], rates
