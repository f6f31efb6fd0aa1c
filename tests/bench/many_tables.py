"""The cases of many small tables, in seconds of CPU of the submitted job: its Python, and its Spark."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.job import JobSpec
from airflow_provider_db2cdc.config.pipeline import SparkConfig
from airflow_provider_db2cdc.submit.command import spark_conf
from airflow_provider_db2cdc.submit.runner import Login, run_job

from .measured import Measured, planned
from .stage import ROOT, Stage

ROWS, CHANGES = 1000, 200


def many_tables(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure ticks of many small tables: the first one, all changed, two changed; and a bare loop of the changes."""
    measured = Measured(more={"tables": options.tables})

    def note(name: str, cpu_s: float) -> None:
        measured.more[f"{name} (CPU s)"] = round(cpu_s, 1)
        console.print(f"  {name}: {cpu_s:.1f} s of CPU")

    note("first tick, empty", _cpu_s(partial(_tick, _pipeline(stage, options.tables, 0))))
    pipeline = _pipeline(stage, options.tables, ROWS)
    note(f"first tick, {ROWS} rows each", _cpu_s(partial(_tick, pipeline)))
    for tables in (options.tables, 2):
        _change(pipeline, tables)
        name = f"{CHANGES} changes each in {tables}"
        spec = planned(pipeline)
        note(f"bare loop, {name}", _cpu_s(partial(_bare_loop, stage, spec, _copies(stage, pipeline, spec))))
        measured.ours_s.append(_cpu_s(partial(_apply, pipeline, spec)))
        note(f"tick, {name}", measured.ours_s[-1])
    return measured


def _pipeline(stage: Stage, tables: int, rows: int) -> Pipeline:
    pipeline = stage.pipeline()
    for number in range(tables):
        stage.table(pipeline, f"T{number}", rows)
    pipeline.writer.commit()
    pipeline.captured()
    return pipeline


def _change(pipeline: Pipeline, tables: int) -> None:
    for number in range(tables):
        pipeline.execute(f'UPDATE "{pipeline.schema}"."T{number}" SET C4 = C4 + 1 WHERE ID < {CHANGES}')
        pipeline.writer.commit()
    pipeline.captured()


def _tick(pipeline: Pipeline) -> None:
    _apply(pipeline, planned(pipeline))


def _apply(pipeline: Pipeline, spec: JobSpec) -> None:
    spark = SparkConfig(master="local[2]", jars=ROOT / "build" / "jars")
    login = Login(pipeline.sandbox.user, pipeline.sandbox.password)
    result = run_job(spec, spark, login, lambda _: None)
    assert not result.failed, result.failed[0].error
    pipeline.commit(result)


def _copies(stage: Stage, pipeline: Pipeline, spec: JobSpec) -> Path:
    """Copy the states for the bare loop."""
    folder = stage.folder / "copies"
    for task in spec.tables:
        pipeline.state(task.table).write.format("delta").mode("overwrite").save(str(folder / task.table.name))
    return folder


def _bare_loop(stage: Stage, spec: JobSpec, copies: Path) -> None:
    path = stage.folder / "bare.json"
    path.write_text(spec.to_json())
    conf = spark_conf(sorted((ROOT / "build" / "jars" / "spark").glob("*.jar")), short=True)
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", *settings]
    subprocess.run([*submit, str(Path(__file__).with_name("bare_loop.py")), str(path), str(copies)], check=True)


def _cpu_s(action: Callable[[], None]) -> float:
    """Return the seconds of CPU of the processes that an action has started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
