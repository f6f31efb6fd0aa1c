"""The cases of snapshots: the initial one, the incremental one, and the same through a slow network."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from support.pipeline import Pipeline
from support.visited import VisitingConnection

from airflow_provider_db2cdc.cdc.job import ApplySettings, JobSpec, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.jdbc.chunk_reader import chunk_key
from airflow_provider_db2cdc.spark.jdbc.connection import FETCH, JdbcSource, driver_connection
from airflow_provider_db2cdc.sql.chunk import chunk_predicate, table_rows

from .counting import counted
from .measured import Measured, high_water_kb, note, planned, run, timed
from .network import slow_network
from .stage import Stage
from .writing import changing


def snapshot(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure an initial snapshot against a bare JDBC read of the same chunks appended to Delta."""
    pipeline = stage.pipeline()
    table = stage.big_table(pipeline, options.rows)
    measured = Measured(goal=0.8, more={"rows": options.rows})
    pipeline.captured()
    for number in range(options.rounds + 1):
        pipeline.target = str(stage.folder / f"snapshot{number}")
        spec = planned(pipeline)
        limit = timed(partial(_bare_snapshot, stage, spec, number))
        ours = timed(partial(run, spec))
        note(measured, number, ours, limit, console)
        shutil.rmtree(pipeline.target)
    assert pipeline.source_rows(table) is not None
    return measured


def incremental(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure an incremental snapshot against the bare read of its chunks, each during 200 changes a second.

    The table has twice the rows. Then follow one round for each of several sizes of chunks, and one of many groups: it
    shows whether the last groups are slower.
    """
    rows, (pipeline, table) = 2 * options.rows, held(stage, 2 * options.rows)
    measured = Measured(goal=0.7, more={"rows": rows})
    for number in range(options.rounds + 1):
        _round(stage, pipeline, partial(_asked, pipeline, table, f"round{number}"), number, measured, console)
    small = rows // 200
    sizes: dict[str, dict[str, Any]] = {
        f"chunks of {size}": {"incremental.snapshot.chunk.size": size} for size in (small, rows // 20, rows // 2)
    }
    sizes[f"groups of {16 * small}"] = {"incremental.snapshot.chunk.size": small, "snapshot.group.chunks": 16}
    base = pipeline.properties
    for name, properties in sizes.items():
        pipeline.properties = {**base, **properties}
        ours, told = _beside_writer(pipeline, rows, _asked(pipeline, table, name))
        console.print(f"  {name}: {ours:.1f} s, {rows / ours:.0f} rows/s, {told}")
        measured.more[name] = {"rows/s": round(rows / ours), **told}
    measured.more["rows looked at for bounds, by row"] = _visited(pipeline, table) / rows
    gateway: Any = stage.spark.sparkContext._gateway
    measured.more["peak memory (MB)"] = high_water_kb(gateway.proc.pid) // 1024
    return measured


def heal(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure a heal of equal rows with 100 differences against the bare read of its chunks, and a bare merge of these.

    Of a table of twice the rows. Before each round 100 rows are changed at the source, and capture does not see it.
    """
    rows, (pipeline, table) = 2 * options.rows, held(stage, 2 * options.rows)
    measured = Measured(goal=0.6, more={"rows": rows})
    copy = str(stage.folder / "healed")
    pipeline.state(table).write.format("delta").option("delta.enableDeletionVectors", "true").save(copy)
    for number in range(options.rounds + 1):
        differs = f"ID BETWEEN {number * 1000} AND {number * 1000 + 99}"
        pipeline.unseen(table, f"UPDATE {table} SET C4 = -1 WHERE {differs}")
        spec = _asked(pipeline, table, f"heal{number}", kind="heal")
        changed = pipeline.state(table).where(differs).withColumn("C4", F.lit(-1)).localCheckpoint()
        limit = timed(partial(_bare_snapshot, stage, spec, number))
        limit += (merge_s := timed(partial(_bare_update, stage, copy, changed)))
        console.print(f"  the bare merge took {merge_s:.1f} s")
        ours = timed(partial(_run_and_commit, pipeline, spec))
        note(measured, number, ours, limit, console)
        assert pipeline.state(table).where("C4 = -1").count() == 100 * (number + 1)
    return measured


def _run_and_commit(pipeline: Pipeline, spec: JobSpec) -> None:
    pipeline.commit(run(spec))


def _bare_update(stage: Stage, copy: str, changed: DataFrame) -> None:
    columns = {name: f"s.{name}" for name in changed.columns}
    merge = DeltaTable.forPath(stage.spark, copy).alias("t").merge(changed.alias("s"), "t.ID = s.ID")
    merge.whenMatchedUpdate(set=dict(columns)).whenNotMatchedInsert(values=dict(columns)).execute()


def _visited(pipeline: Pipeline, table: TableId) -> int:
    """Return how many rows the source looks at to find where chunks of the usual size end."""
    spec = _asked(pipeline, table, "visited")
    connection = pipeline.sandbox.connect()
    source = VisitingConnection(connection.cursor())
    source.chunk_bounds(chunk_key(spec.tables[0].schema, TableSnapshot(table)), spec.settings.snapshot_chunk_rows)
    connection.close()
    return source.visited


def network(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure the same, of a source whose answers come through a network of so many megabytes a second."""
    rows, (pipeline, table) = 2 * options.rows, held(stage, 2 * options.rows)
    measured = Measured(goal=0.7, more={"rows": rows, "MB/s": options.mb_per_s})
    with slow_network(pipeline.sandbox.port, options.mb_per_s * 1e6) as port:
        for number in range(options.rounds + 1):
            far = partial(_asked, pipeline, table, f"round{number}", port)
            _round(stage, pipeline, far, number, measured, console)
    return measured


def held(stage: Stage, rows: int) -> tuple[Pipeline, TableId]:
    """Return a pipeline that has its table of so many rows."""
    pipeline = stage.pipeline()
    pipeline.properties = {"snapshot.budget.s": 36_000}
    table = stage.big_table(pipeline, rows)
    pipeline.captured()
    pipeline.commit(run(planned(pipeline)))
    return pipeline, table


def _round(
    stage: Stage, pipeline: Pipeline, ask: Callable[[], JobSpec], number: int, measured: Measured, console: Console
) -> None:
    """Measure both. Changes made during the bare read are pulled before ours begins."""
    rows, spec = measured.more["rows"], ask()
    with changing(pipeline, rows, 200):
        limit = timed(lambda: _bare_snapshot(stage, spec, number))
    _catch_up(pipeline)
    ours, told = _beside_writer(pipeline, rows, ask())
    note(measured, number, ours, limit, console)
    measured.more |= told


def _by(url: str, port: int) -> str:
    return re.sub(r":\d+/", f":{port}/", url, count=1)


def _asked(pipeline: Pipeline, table: TableId, id_: str, port: int | None = None, kind: str = "incremental") -> JobSpec:
    """Plan a tick that is asked for a snapshot; Spark reaches the source by that port, if one is given."""
    asked = Signal(id_, "execute-snapshot", json.dumps({"data-collections": [str(table)], "type": kind}), "airflow")
    spec = pipeline.plan(signals=[asked])
    assert spec is not None
    url = spec.source.jdbc_url
    return spec if port is None else replace(spec, source=replace(spec.source, jdbc_url=_by(url, port)))


def _beside_writer(pipeline: Pipeline, rows: int, spec: JobSpec) -> tuple[float, dict[str, Any]]:
    """Run a snapshot while rows are changed, then catch up; return its seconds, and what it asked of the source."""
    with changing(pipeline, rows, 200) as changes, counted() as counts:
        ours = timed(lambda: pipeline.commit(run(spec)))
    _catch_up(pipeline)
    return ours, counts.told(ours, changes[0])


def _catch_up(pipeline: Pipeline) -> None:
    pipeline.captured()
    while (rest := pipeline.plan()) is not None:
        pipeline.commit(run(rest))


def chunk_frame(stage: Stage, source_spec: SourceSpec, task: TableTask, settings: ApplySettings) -> DataFrame:
    """Return the rows of a table as they are at the source, read in chunks."""
    source = JdbcSource(source_spec)
    with driver_connection(stage.spark, source) as connection:
        cut = chunk_key(task.schema, TableSnapshot(task.table))
        bounds = connection.chunk_bounds(cut, settings.snapshot_chunk_rows)
    predicates = [chunk_predicate(cut.of_rows, bounds, chunk) for chunk in range(len(bounds) + 1)]
    return source.parts(stage.bare, table_rows(task.schema, cut), predicates, FETCH)


def _bare_snapshot(stage: Stage, spec: JobSpec, number: int) -> None:
    rows = chunk_frame(stage, spec.source, spec.tables[0], spec.settings)
    path = stage.folder / f"bare{number}"
    rows.write.format("delta").mode("append").save(str(path))
    shutil.rmtree(path)
