"""The cases: ours against the same work done barely."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from rich.console import Console
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.document import PROGRESS_MARK
from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.cdc.lsn import LsnRange
from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.spark import job
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.sql.changes import change_rows
from airflow_provider_db2cdc.submit.runner import Login, run_job

from .bare import bare_merge, reduced_rows
from .maintenance import scattered
from .many_tables import many_tables
from .measured import Measured, high_water_kb, note, planned, run, timed
from .repairs import backfill
from .snapshots import heal, incremental, network, snapshot
from .stage import ROOT, Stage
from .verification import verify


def batch(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure a batch of changes against reading and appending its rows, and merging what is already reduced."""
    pipeline = stage.pipeline()
    table = stage.big_table(pipeline, options.rows)
    pipeline.captured()
    pipeline.commit(job.run(planned(pipeline)))
    copy = str(stage.folder / "copy")
    pipeline.state(table).write.format("delta").option("delta.enableDeletionVectors", "true").save(copy)
    measured = Measured(goal=0.8, more={"rows": options.rows, "changes": options.changes})
    for number in range(options.rounds + 1):
        stage.change(pipeline, options.changes, options.rows, number)
        pipeline.captured()
        spec = planned(pipeline)
        limit = timed(partial(_bare_append, stage, spec, number))
        ours = timed(partial(_run_and_commit, pipeline, spec))
        reduced = reduced_rows(stage, pipeline, table, copy, number)
        limit += timed(partial(bare_merge, stage, copy, reduced))
        note(measured, number, ours, limit, console)
    return measured


def large(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Run ten times the changes as one batch in a driver of 2 GB. It must pass, and its peak memory is reported."""
    pipeline = stage.pipeline()
    stage.big_table(pipeline, options.rows)
    pipeline.captured()
    conf = {"spark.driver.memory": "2g"}
    pipeline.commit(_submit(pipeline, planned(pipeline), conf, [])[0])
    stage.change(pipeline, options.changes * 10, options.rows, 0)
    pipeline.captured()
    spec = planned(pipeline)
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
    pipeline.commit(_submit(pipeline, planned(pipeline), {}, [])[0])
    measured = Measured()
    parts: list[tuple[float, float]] = []
    idle: list[float] = []
    for number in range(options.rounds):
        idle.append(timed(pipeline.plan))
        for at in range(3):
            pipeline.execute(f'UPDATE "{pipeline.schema}"."SMALL{at}" SET A = {number + 1} WHERE ID < 100')
        pipeline.writer.commit()
        pipeline.captured()
        spec = planned(pipeline)
        started = time.monotonic()
        result, session_s = _submit(pipeline, spec, {}, [])
        measured.ours_s.append(time.monotonic() - started)
        parts.append((session_s, measured.ours_s[-1] - session_s))
        pipeline.commit(result)
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
    "heal": heal,
    "verify": verify,
    "network": network,
    "batch": batch,
    "large": large,
    "tick": tick,
    "scattered": scattered,
    "backfill": backfill,
    "tables": many_tables,
}


def _run_and_commit(pipeline: Pipeline, spec: JobSpec) -> None:
    pipeline.commit(run(spec))


def _bare_append(stage: Stage, spec: JobSpec, number: int) -> None:
    source, task = JdbcSource(spec.source), spec.tables[0]
    assert task.stored_lsn is not None
    rows = source.frame(stage.bare, change_rows(task.schema, task.capture, LsnRange(task.stored_lsn, task.upto)))
    path = stage.folder / f"rows{number}"
    rows.write.format("delta").mode("append").save(str(path))
    shutil.rmtree(path)


def _submit(pipeline: Pipeline, spec: JobSpec, conf: dict[str, str], peaks: list[int]) -> tuple[Any, float]:
    """Run the spec by spark-submit; return its result and how long it took until there was a session."""
    started, session = time.monotonic(), [0.0]

    def on_line(line: str) -> None:
        if line.startswith(f"{PROGRESS_MARK}session"):
            session[0] = time.monotonic() - started
        peaks.append(_peak_kb())

    spark = SparkConfig(master="local[2]", jars=ROOT / "build" / "jars", conf=conf)
    result = run_job(spec, spark, Login(pipeline.sandbox.user, pipeline.sandbox.password), on_line)
    return result, session[0]


def _peak_kb() -> int:
    """Return the peak memory of the JVM that runs the submitted job."""
    found = subprocess.run(["pgrep", "-f", "SparkSubmit.*--spec"], capture_output=True, text=True, check=False)
    return max((high_water_kb(pid) for pid in found.stdout.split()), default=0)
