"""`python -m tests.bench.sizes`: run each size on a Spark cluster with a driver of 2 GB and executors of 1 GB.

It prints the figures of each phase, writes build/sizes.json, and compares every row with the source.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console
from support.shapes import NARROW, long_rows, many_columns

from airflow_provider_db2cdc.demo.cluster.standalone import StandaloneCluster
from bench.stage import Stage

from .case import Case, Running

BACKLOG_ROWS = 1_000_000
"""Rows of the table that gets the backlog."""


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the large table")
    parser.add_argument("--changes", type=int, default=5_000_000, help="changes of the backlog, in a million rows")
    parser.add_argument("--columns", type=int, default=1000, help="columns of the wide table")
    parser.add_argument("--wide-rows", type=int, default=20_000, help="rows of the wide table")
    parser.add_argument("--long-rows", type=int, default=1000, help="rows of 1 MB, and changes of them")
    parser.add_argument("--into", type=Path, default=Path("build/sizes.json"))
    options = parser.parse_args()
    console, results = Console(), {}
    options.into.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="db2cdc-sizes-") as name,
        options.into.with_suffix(".log").open("a", encoding="utf-8", buffering=1) as log,
        Stage.open(Path(name)) as stage,
        StandaloneCluster(Path(name, "cluster")) as cluster,
    ):
        running = Running(stage, cluster.url, lambda line: log.write(f"{line}\n"))
        for name in options.cases:
            console.print(f"[bold]{name}[/]")
            results[name] = running.run(_case(name, options))
            console.print_json(data=results[name])
            options.into.write_text(json.dumps(results, indent=2))


NAMES = ["rows", "backlog", "columns", "long"]


def _case(name: str, options: argparse.Namespace) -> Case:
    match name:
        case "rows":
            return Case(NARROW, options.rows, 0)
        case "backlog":
            return Case(NARROW, min(options.rows, BACKLOG_ROWS), options.changes)
        case "columns":
            rows = options.wide_rows
            return Case(many_columns(options.columns), rows, rows // 10)
    return Case(long_rows(), options.long_rows, options.long_rows)


if __name__ == "__main__":
    main()
