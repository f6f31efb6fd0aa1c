"""The case of verifications: equal rows against a bare read of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from rich.console import Console
from support.pipeline import Pipeline

from airflow_provider_db2cdc.cdc.verify.document import VerifySpec
from airflow_provider_db2cdc.source.planning.verification import VerifyRequest, plan_verification
from airflow_provider_db2cdc.spark.verify import job

from .measured import Measured, note, timed
from .snapshots import chunk_frame, held
from .stage import Stage

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PARENT, TIMES = 1, slice(11, 15)
"""Fields of /proc/<pid>/stat after the name: the parent, and the times of the process and of its ended children."""


def verify(stage: Stage, options: argparse.Namespace, console: Console) -> Measured:
    """Measure a verification of equal rows against the bare parallel read of its chunks, which writes nothing.

    Of a table of twice the rows.
    """
    rows, (pipeline, _) = 2 * options.rows, held(stage, 2 * options.rows)
    measured = Measured(goal=0.7, more={"rows": rows})
    used: list[tuple[float, float]] = []
    for number in range(options.rounds + 1):
        spec = _spec(pipeline, f"round{number}")
        limit, limit_cpu = _cpu(stage, partial(_bare_read, stage, spec))
        ours, ours_cpu = _cpu(stage, partial(_verified, spec, rows))
        note(measured, number, ours, limit, console)
        console.print(f"  seconds of CPU: ours {ours_cpu:.1f}, limit {limit_cpu:.1f}, ratio {limit_cpu / ours_cpu:.2f}")
        used += [(ours_cpu, limit_cpu)] if number else []
    ours_s, limit_s = (round(median(times), 1) for times in zip(*used, strict=True))
    measured.more |= {"CPU (s)": ours_s, "CPU of the limit (s)": limit_s, "CPU ratio": round(limit_s / ours_s, 2)}
    return measured


def _spec(pipeline: Pipeline, id_: str) -> VerifySpec:
    with pipeline.source() as source:
        return plan_verification(source, pipeline.config, VerifyRequest(id_))


def _verified(spec: VerifySpec, rows: int) -> None:
    [verdict] = job.run(spec).tables
    assert (verdict.status, verdict.source_rows) == ("equal", rows), verdict


def _bare_read(stage: Stage, spec: VerifySpec) -> None:
    rows: DataFrame = chunk_frame(stage, spec.source, spec.tables[0], spec.settings)
    rows.coalesce(spec.settings.parallel_reads).write.format("noop").mode("overwrite").save()


def _cpu(stage: Stage, action: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of an action by the clock, and the seconds of CPU of this process, Spark and the source."""
    before = _cpu_s(stage)
    taken = timed(action)
    return taken, _cpu_s(stage) - before


def _cpu_s(stage: Stage) -> float:
    processes = dict(_processes())
    wanted = {os.getpid(), stage.sandbox.state.pid}
    while more := {pid for pid, fields in processes.items() if int(fields[PARENT]) in wanted} - wanted:
        wanted |= more
    return sum(int(ticks) for pid in wanted & processes.keys() for ticks in processes[pid][TIMES]) / TICKS_PER_S


def _processes() -> Iterator[tuple[int, list[str]]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
