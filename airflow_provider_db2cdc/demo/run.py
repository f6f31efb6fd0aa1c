"""The demo: the shop changes, the shipped DAG runs, and in the end both sides are compared row by row."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_db2cdc.cli.screen import Console, span
from airflow_provider_db2cdc.demo.board import Board
from airflow_provider_db2cdc.demo.cluster.demo import show_spread
from airflow_provider_db2cdc.demo.comparison.compare import Comparison, compare, read_position, read_target
from airflow_provider_db2cdc.demo.comparison.verdict import missing_changes, show, tell_ways_on, totals
from airflow_provider_db2cdc.demo.services.airflow_home import DagRuns, Run
from airflow_provider_db2cdc.demo.stage import Stage, StageOptions, describe, open_stage
from airflow_provider_db2cdc.sandbox.capture.agent import await_captured

RATE = 6.0
"""Transactions a second of each writer."""

CAPTURE_TIMEOUT_S = 120.0
REPEATS = 2
"""How many more runs may take up what the last one left, if the sandbox failed under it."""


@dataclass(frozen=True)
class DemoOptions:
    """The size and length of a demo: `rows` at the shop's start, and `ticks` between the snapshot and the last one.

    With `cluster`, Spark is a standalone cluster on this machine.
    """

    folder: Path
    ticks: int = 3
    seconds_per_tick: float = 3.0
    rows: int = 4000
    keep: bool = False
    cluster: bool = False


def run(options: DemoOptions, console: Console) -> bool:
    """Run the demo. Return whether changes of every kind flowed into every table and all tables are equal.

    Everything that it started is ended, whatever happens. With `keep` the sandbox continues to run.

    Raises:
        Db2CdcError: a step failed.
    """
    started = time.monotonic()
    board = Board(console)
    wanted = StageOptions(options.folder, options.rows, RATE, options.keep, cluster=options.cluster)
    with board, open_stage(wanted, board) as stage:
        dag = stage.ending.enter_context(stage.home.runs(stage.sandbox))
        runs = _run_all(dag, stage, board, options)
        compared = _compare(stage, board, runs[-1])
        missing = missing_changes(runs)
        show(console, compared, missing)
        if options.cluster:
            show_spread(console, stage.home)
    tell_ways_on(console, stage, options.keep, span(time.monotonic() - started))
    return not missing and all(line.equal for line in compared)


def _run_all(dag: DagRuns, stage: Stage, board: Board, options: DemoOptions) -> list[Run]:
    runs = [_run(dag, board, "DAG run 1, the initial snapshot while the writers continue")]
    for number in range(2, options.ticks + 2):
        with board.step("the writers continue") as step:
            time.sleep(options.seconds_per_tick)
            stage.writers.check()
            step.outcome = describe(stage.writers)
        runs.append(_run(dag, board, f"DAG run {number}, a tick while the writers continue"))
    with board.step("the writers stop, capture catches up") as step:
        stage.writers.stop()
        stage.writers.check()
        with closing(stage.sandbox.connect()) as connection:
            await_captured(connection, CAPTURE_TIMEOUT_S)
        step.outcome = describe(stage.writers)
    runs.append(_run(dag, board, f"DAG run {len(runs) + 1}, the last tick"))
    while not runs[-1].whole and len(runs) < options.ticks + 2 + REPEATS:
        runs.append(_run(dag, board, f"DAG run {len(runs) + 1}, for what the last one left"))
    return runs


def _run(dag: DagRuns, board: Board, title: str) -> Run:
    with board.step(title) as step:
        run = dag.run(board.tell)
        step.good = run.whole
        step.outcome = "nothing new" if run.result is None else totals(run.result, time.time_ns() // 1_000_000)
    return run


def _compare(stage: Stage, board: Board, last: Run) -> list[Comparison]:
    with board.step("every row of source and target is compared") as step:
        board.tell("Spark reads the Delta tables")
        target = read_target(stage.home)
        position = read_position(stage.sandbox, last.offsets)
        with closing(stage.sandbox.connect()) as connection:
            compared = compare(connection, target, last.offsets, position)
        step.outcome = f"{sum(line.source_rows for line in compared)} rows"
    return compared
