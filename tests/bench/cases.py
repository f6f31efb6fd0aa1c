"""The cases: ours against the same work done barely."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F
from rich.console import Console
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import PROGRESS_MARK, JobSpec
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.cdc.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot import Part
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.config import SparkConfig
from airflow_provider_db2cdc.spark import jobs
from airflow_provider_db2cdc.spark.jdbc import FETCH, JdbcSource, driver_connection
from airflow_provider_db2cdc.spark.snapshot import cut_of
from airflow_provider_db2cdc.sql.changes import change_rows
from airflow_provider_db2cdc.sql.chunk import chunk_predicate, table_rows
from airflow_provider_db2cdc.submit.runner import run_job
from airflow_provider_db2cdc.tick import commit_tick
from tests.bench.counting import counted
from tests.bench.stage import ROOT, Stage
from tests.bench.writing import changing


@dataclass
class Measured:
    """Seconds of each round; `ratio` is limit by ours, medians: 1 means as fast as the bare work."""

    ours_s: list[float] = field(default_factory=list)
    limit_s: list[float] = field(default_factory=list)
    goal: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How ours compares with the limit."""
        return median(self.limit_s) / median(self.ours_s) if self.limit_s else None

    def as_data(self) -> Mapping[str, Any]:
        """Return what build/bench.json keeps."""
        return {"ours_s": self.ours_s, "limit_s": self.limit_s, "ratio": self.ratio, "goal": self.goal, **self.more}


def snapshot(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure an initial snapshot against a bare JDBC read of the same chunks appended to Delta."""
    pipeline = stage.pipeline()
    table = stage.big_table(pipeline, options.rows)
    measured = Measured(goal=0.8, more={"rows": options.rows})
    pipeline.captured()
    for number in range(options.rounds + 1):
        pipeline.target = str(stage.folder / f"snapshot{number}")
        spec = _spec(pipeline)
        limit = _timed(lambda spec=spec, number=number: _bare_snapshot(stage, spec, number))
        ours = _timed(lambda spec=spec: _run(spec))
        _note(measured, number, ours, limit, console)
        shutil.rmtree(pipeline.target)
    assert pipeline.source_rows(table) is not None
    return measured


def incremental(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure an incremental snapshot against the bare read of its chunks, each beside 200 changes a second.

    Of a table of twice the rows; then one round for each of several sizes of chunks, and one of enough groups to tell
    whether the last ones are slower.
    """
    rows, pipeline = 2 * options.rows, stage.pipeline()
    pipeline.properties = {"snapshot.budget.s": 36_000}
    table = stage.big_table(pipeline, rows)
    pipeline.captured()
    commit_tick(_run(_spec(pipeline)), pipeline.offsets)
    measured = Measured(goal=0.7, more={"rows": rows})
    for number in range(options.rounds + 1):
        spec = _asked(pipeline, table, f"round{number}")
        with changing(pipeline, rows, 200):
            limit = _timed(lambda spec=spec, number=number: _bare_snapshot(stage, spec, number))
        ours, told = _beside_writer(pipeline, rows, spec)
        _note(measured, number, ours, limit, console)
        measured.more |= told
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
    measured.more["peak memory (MB)"] = _high_water_kb(stage.spark.sparkContext._gateway.proc.pid) // 1024
    return measured


def _asked(pipeline: Pipeline, table: TableId, id_: str) -> JobSpec:
    asked = Signal(id_, "execute-snapshot", json.dumps({"data-collections": [str(table)]}), "airflow")
    spec = pipeline.plan(signals=[asked])
    assert spec is not None
    return spec


def _beside_writer(pipeline: Pipeline, rows: int, spec: JobSpec) -> tuple[float, dict[str, Any]]:
    """Run a snapshot while rows are changed, then catch up; return its seconds, and what it asked of the source."""
    with changing(pipeline, rows, 200) as changes, counted() as counts:
        ours = _timed(lambda: commit_tick(_run(spec), pipeline.offsets))
    pipeline.captured()
    while (rest := pipeline.plan()) is not None:
        commit_tick(_run(rest), pipeline.offsets)
    return ours, counts.told(ours, changes[0])


def batch(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure a batch of changes against reading and appending its rows, and merging what is already reduced."""
    pipeline = stage.pipeline()
    table = stage.big_table(pipeline, options.rows)
    pipeline.captured()
    commit_tick(jobs.run(_spec(pipeline)), pipeline.offsets)
    copy = str(stage.folder / "copy")
    pipeline.state(table).write.format("delta").option("delta.enableDeletionVectors", "true").save(copy)
    measured = Measured(goal=0.8, more={"rows": options.rows, "changes": options.changes})
    for number in range(options.rounds + 1):
        stage.change(pipeline, options.changes, options.rows, number)
        pipeline.captured()
        spec = _spec(pipeline)
        limit = _timed(lambda spec=spec, number=number: _bare_append(stage, spec, number))
        ours = _timed(lambda spec=spec: commit_tick(_run(spec), pipeline.offsets))
        reduced = _reduced(stage, pipeline, table, copy, number)
        limit += _timed(lambda reduced=reduced: _bare_merge(stage, copy, reduced))
        _note(measured, number, ours, limit, console)
    return measured


def large(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Run ten times the changes as one batch in a driver of 2 GB; it must pass, and its peak memory is told."""
    pipeline = stage.pipeline()
    stage.big_table(pipeline, options.rows)
    pipeline.captured()
    conf = {"spark.driver.memory": "2g"}
    commit_tick(_submit(pipeline, _spec(pipeline), conf, [])[0], pipeline.offsets)
    stage.change(pipeline, options.changes * 10, options.rows, 0)
    pipeline.captured()
    spec = _spec(pipeline)
    peaks: list[int] = []
    started = time.monotonic()
    result, _ = _submit(pipeline, spec, conf, peaks)
    taken = time.monotonic() - started
    assert not result.failed, result.failed[0].error
    rows = spec.tables[0].rows
    return Measured([taken], more={"change rows": rows, "peak memory (MB)": max(peaks, default=0) // 1024})


def tick(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Time an idle tick, and a tick of three tables with 100 changes each: submit, session, work."""
    pipeline = stage.pipeline()
    for at in range(3):
        name = f"SMALL{at}"
        pipeline.create(f'CREATE TABLE "{pipeline.schema}"."{name}" (ID INTEGER NOT NULL PRIMARY KEY, A INTEGER)', name)
        pipeline.many(f'INSERT INTO "{pipeline.schema}"."{name}" VALUES (?, ?)', [(id_, 0) for id_ in range(1000)])
    pipeline.captured()
    commit_tick(_submit(pipeline, _spec(pipeline), {}, [])[0], pipeline.offsets)
    measured = Measured()
    parts: list[tuple[float, float]] = []
    idle: list[float] = []
    for number in range(options.rounds):
        idle.append(_timed(pipeline.plan))
        for at in range(3):
            pipeline.execute(f'UPDATE "{pipeline.schema}"."SMALL{at}" SET A = {number + 1} WHERE ID < 100')
        pipeline.writer.commit()
        pipeline.captured()
        spec = _spec(pipeline)
        started = time.monotonic()
        result, session_s = _submit(pipeline, spec, {}, [])
        measured.ours_s.append(time.monotonic() - started)
        parts.append((session_s, measured.ours_s[-1] - session_s))
        commit_tick(result, pipeline.offsets)
        console.print(f"  round {number}: {measured.ours_s[-1]:.1f} s")
    measured.more = {
        "idle plan (s)": round(median(idle), 3),
        "submit and session (s)": round(median(part[0] for part in parts), 1),
        "work (s)": round(median(part[1] for part in parts), 1),
    }
    return measured


CASES: dict[str, Callable[[Stage, argparse.Namespace, Console], Measured]] = {
    "snapshot": snapshot,
    "incremental": incremental,
    "batch": batch,
    "large": large,
    "tick": tick,
}


def _spec(pipeline: Pipeline) -> JobSpec:
    spec = pipeline.plan()
    assert spec is not None
    return spec


def _run(spec: JobSpec) -> Any:
    result = jobs.run(spec)
    assert not result.failed, result.failed[0].error
    return result


def _timed(action: Callable[[], Any]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def _note(measured: Measured, number: int, ours: float, limit: float, console: Console) -> None:
    """Keep a round's times, but for the first one's: it warms both up."""
    if number:
        measured.ours_s.append(round(ours, 3))
        measured.limit_s.append(round(limit, 3))
    console.print(f"  round {number}: ours {ours:.1f} s, limit {limit:.1f} s, ratio {limit / ours:.2f}")


def _bare_snapshot(stage: Stage, spec: JobSpec, number: int) -> None:
    source, task = JdbcSource(spec.source), spec.tables[0]
    with driver_connection(stage.spark, source) as connection:
        cut = cut_of(task.schema, Part(task.table))
        bounds = connection.chunk_bounds(cut, spec.settings.snapshot_chunk_rows)
    predicates = [chunk_predicate(cut.of_rows, bounds, chunk) for chunk in range(len(bounds) + 1)]
    rows = source.parts(stage.spark, table_rows(task.schema, cut), predicates, FETCH)
    path = stage.folder / f"bare{number}"
    rows.write.format("delta").mode("append").save(str(path))
    shutil.rmtree(path)


def _bare_append(stage: Stage, spec: JobSpec, number: int) -> None:
    source, task = JdbcSource(spec.source), spec.tables[0]
    assert task.believed is not None
    rows = source.frame(stage.spark, change_rows(task.schema, task.capture, LsnRange(task.believed, task.upto)))
    path = stage.folder / f"rows{number}"
    rows.write.format("delta").mode("append").save(str(path))
    shutil.rmtree(path)


def _reduced(stage: Stage, pipeline: Pipeline, table: TableId, copy: str, number: int) -> Path:
    """Return a parquet folder with what differs between the copy and the state, one row a key."""
    state, old = pipeline.state(table), stage.spark.read.format("delta").load(copy)
    new = state.join(old.select("ID", "__commit_lsn"), ["ID", "__commit_lsn"], "left_anti").withColumn(
        "gone", F.lit(False)
    )
    gone = old.join(state.select("ID"), "ID", "left_anti").withColumn("gone", F.lit(True))
    path = stage.folder / f"reduced{number}"
    new.unionByName(gone).write.parquet(str(path))
    return path


def _bare_merge(stage: Stage, copy: str, reduced: Path) -> None:
    source = stage.spark.read.parquet(str(reduced))
    columns = {name: f"s.{name}" for name in source.columns if name != "gone"}
    merge = DeltaTable.forPath(stage.spark, copy).alias("t").merge(source.alias("s"), "t.ID = s.ID")
    merge = merge.whenMatchedDelete("s.gone").whenMatchedUpdate(set=dict(columns))
    merge.whenNotMatchedInsert("NOT s.gone", values=dict(columns)).execute()


def _submit(pipeline: Pipeline, spec: JobSpec, conf: dict[str, str], peaks: list[int]) -> tuple[Any, float]:
    """Run the spec by spark-submit; return its result and how long it took until there was a session."""
    started, session = time.monotonic(), [0.0]

    def on_line(line: str) -> None:
        if line.startswith(f"{PROGRESS_MARK}session"):
            session[0] = time.monotonic() - started
        peaks.append(_peak_kb())

    spark = SparkConfig(master="local[2]", jars=ROOT / "build" / "jars", conf=conf)
    result = run_job(spec, spark, pipeline.sandbox.user, pipeline.sandbox.password, on_line)
    return result, session[0]


def _peak_kb() -> int:
    """Return the peak memory of the JVM that runs the submitted job."""
    found = subprocess.run(["pgrep", "-f", "SparkSubmit.*--spec"], capture_output=True, text=True, check=False)
    return max((_high_water_kb(pid) for pid in found.stdout.split()), default=0)


def _high_water_kb(pid: object) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    return next((int(text.split()[1]) for text in status.read_text().splitlines() if text.startswith("VmHWM")), 0)
