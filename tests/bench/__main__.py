"""`python -m tests.bench`: run the cases, print a table, write build/bench.json.

Seconds are noise where a machine is shared, so each case runs ours and the limit in turns and compares the medians.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from .cases import CASES
from .measured import Measured
from .stage import Stage


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the big table")
    parser.add_argument("--large-rows", type=int, default=20_000_000, help="rows of the large table of `scattered`")
    parser.add_argument("--changes", type=int, default=100_000, help="changes of a batch")
    parser.add_argument("--tables", type=int, default=30, help="small tables of the case of many")
    parser.add_argument("--mb-per-s", type=float, default=4.0, help="how fast the network of that case is")
    parser.add_argument("--commit-interval", type=float, default=1.0, help="seconds between two commits of capture")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path, default=Path("build/bench.json"))
    options = parser.parse_args()
    console = Console()
    results: dict[str, Measured] = {}
    with (
        tempfile.TemporaryDirectory(prefix="db2cdc-bench-") as folder,
        Stage.open(Path(folder), options.commit_interval) as stage,
    ):
        for name in options.cases:
            console.print(f"[bold]{name}[/]")
            results[name] = CASES[name](stage, options, console)
            options.into.parent.mkdir(parents=True, exist_ok=True)
            options.into.write_text(json.dumps({name: one.as_data() for name, one in results.items()}, indent=2))
    console.print(_table(results))


def _table(results: dict[str, Measured]) -> Table:
    table = Table("case", "ours (s)", "limit (s)", "ratio", "goal", "more")
    for name, one in results.items():
        limit = f"{median(one.limit_s):.2f}" if one.limit_s else ""
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        goal = "" if one.goal is None else f">= {one.goal}"
        more = ", ".join(f"{key}: {value}" for key, value in one.more.items())
        table.add_row(name, f"{median(one.ours_s):.2f}", limit, ratio, goal, more)
    return table


if __name__ == "__main__":
    main()
