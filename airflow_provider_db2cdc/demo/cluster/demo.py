"""The demo's Spark as a standalone cluster, and a table of what each worker did."""

from __future__ import annotations

from contextlib import ExitStack

from airflow_provider_db2cdc.cli.screen import Console, Table
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.cluster.spread import event_log_conf, shares_of_folder
from airflow_provider_db2cdc.demo.cluster.standalone import DRIVER_CONF, StandaloneCluster
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome, SparkPlace

CHUNK_ROWS = 100
"""So small that the shop's tables have chunks for readers on each worker."""


def enter_cluster(stack: ExitStack, home: AirflowHome, board: Board) -> None:
    """Start a cluster that ends with the stack, and let Airflow's Spark connection name it."""
    with board.step("a Spark standalone cluster: one master, two workers") as step:
        cluster = stack.enter_context(StandaloneCluster(home.folder / "cluster"))
        home.events.mkdir()
        home.spark = place_of(cluster.url, home)
        step.outcome = f"{cluster.url}, workers at {', '.join(worker.host for worker in cluster.workers)}"


def place_of(url: str, home: AirflowHome) -> SparkPlace:
    """Return what the pipeline needs to run on a cluster. All its nodes see this machine's folders, as a mount."""
    host, _, port = url.rpartition(":")
    return SparkPlace(
        {"host": host, "port": int(port), "extra": {"deploy-mode": "client"}},
        {**DRIVER_CONF, **event_log_conf(home.events), "spark.executor.memory": "1g"},
        {"target.shared.mount": True, "incremental.snapshot.chunk.size": CHUNK_ROWS},
    )


def show_spread(console: Console, home: AirflowHome) -> None:
    """Print what each worker did."""
    table = Table(title="What each worker of the cluster did, over all DAG runs")
    for name in ("worker", "tasks", "JDBC readers", "rows read from the source", "bytes written"):
        table.add_column(name, justify="left" if name == "worker" else "right")
    for host, share in shares_of_folder(home.events).items():
        counts = (share.tasks, share.readers, share.source_rows, share.written_bytes)
        table.add_row(host, *(str(count) for count in counts))
    console.print(table)
