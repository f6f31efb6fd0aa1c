"""The result of the demo: one line per table, the verdict, and what to try next."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cli.screen import Console, Table, Text, span
from airflow_provider_db2cdc.demo.comparison.compare import Comparison
from airflow_provider_db2cdc.demo.services.airflow_home import Run
from airflow_provider_db2cdc.demo.shop import KEYS, ORDERS, SCHEMA
from airflow_provider_db2cdc.demo.stage import Stage

SHOWN_KEYS = 5


def totals(result: JobResult, now_ms: int) -> str:
    """Return what a tick did to all its tables, in one line."""
    kinds = ("reads", "creates", "updates", "deletes")
    counts = [sum(getattr(table, kind) for table in result.tables) for kind in kinds]
    newest = [table.commit_ts_ms for table in result.tables if table.commit_ts_ms is not None]
    age = f", newest commit {span((now_ms + result.source_ahead_ms - max(newest)) / 1000)} old" if newest else ""
    failed = "".join(f"; {table.table} FAILED, for the next run to take up: {table.error}" for table in result.failed)
    return "{} tables, read {}, created {}, updated {}, deleted {}{}{}".format(len(result.tables), *counts, age, failed)


def missing_changes(runs: Sequence[Run]) -> list[str]:
    """Return the changes that no run after the snapshot applied, as `SHOP.ORDERS: updated`. A good demo has none."""
    applied: Counter[str] = Counter()
    for result in (run.result for run in runs[1:] if run.result):
        for table in result.tables:
            applied[f"{table.table}: created"] += table.creates
            applied[f"{table.table}: updated"] += table.updates
            applied[f"{table.table}: deleted"] += table.deletes
    kinds = ("created", "updated", "deleted")
    return [name for table in KEYS for name in (f"{table}: {kind}" for kind in kinds) if not applied[name]]


def show(console: Console, compared: Sequence[Comparison], missing: Sequence[str]) -> None:
    """Print one line per table, and below it what is wrong."""
    table = Table(title="Source and target, compared row by row and column by column")
    for name in ("table", "source rows", "target rows", "read", "created", "updated", "deleted"):
        table.add_column(name, justify="left" if name == "table" else "right", overflow="fold")
    for name in ("offset", "lag", "Delta version", "verdict"):
        table.add_column(name, justify="left" if name in ("offset", "verdict") else "right", overflow="fold")
    for line in compared:
        table.add_row(*_row(line))
    capture_lsn = compared[0].capture_lsn if compared else "-"
    table.caption = (
        "read, created, updated, deleted: events in the change log; "
        f"lag: change rows between the offset and the capture position, which is {capture_lsn}"
    )
    console.print(table)
    for line in compared:
        if line.differing:
            keys = "; ".join(", ".join(map(str, key)) for key in line.differing[:SHOWN_KEYS])
            _accuse(console, f"{line.table}: {len(line.differing)} keys differ, the first: {keys}")
    if missing:
        _accuse(console, f"no change of these kinds flowed after the snapshot: {', '.join(missing)}")


def tell_ways_on(console: Console, stage: Stage, kept: bool, taken: str) -> None:
    """Print where everything lies, and what to try."""
    place, layout = _short(stage.home.folder), Layout(str(stage.home.lake))
    statuses = f"SELECT STATUS, COUNT(*) FROM delta.`{layout.state(ORDERS).name}` GROUP BY STATUS"
    events = f"SELECT op, key, before, after FROM delta.`{layout.changes(ORDERS).name}` LIMIT 9"
    look = shlex.quote(str(_short(stage.home.spark_sql)))
    lines = [
        f"Done in {taken}. The Delta tables lie in {place}/lake: tables/{SCHEMA}/* as they are now, "
        f"changes/{SCHEMA}/* all changes.",
        f"Logs: {place}/logs, {place}/airflow/logs (each task's own), {place}/sandbox/service.log",
        "",
        "Look at the target:",
        *(f"  {look} -e '{query}'" for query in (statuses, events)),
        "Look at the source:",
        *_source_lines(place / "sandbox", kept),
        "Click through a running one:",
        "  make ui",
    ]
    for text in lines:
        console.print(text, soft_wrap=True)


def _accuse(console: Console, text: str) -> None:
    console.print(text, style="red", soft_wrap=True)


def _row(line: Comparison) -> list[str | Text]:
    verdict = Text("EQUAL", "bold green") if line.equal else Text("DIFFERENT", "bold red")
    return [
        str(line.table),
        *(str(count) for count in (line.source_rows, line.target_rows)),
        *(str(line.events.get(op, 0)) for op in "rcud"),
        str(line.offset.lsn) if line.offset else "-",
        "-" if line.waiting is None else f"{line.waiting} rows",
        str(line.version),
        verdict,
    ]


def _source_lines(folder: Path, kept: bool) -> list[str]:
    command, place = _program("db2cdc"), shlex.quote(str(folder))
    query = "SELECT STATUS, COUNT(*) FROM SHOP.ORDERS GROUP BY STATUS"
    up = [] if kept else [f"  {command} sandbox up --dir {place}"]
    return [*up, f'  {command} sandbox sql --dir {place} "{query}"', f"  {command} sandbox down --dir {place}"]


def _program(name: str) -> str:
    """Return a program of this Python environment as a user types it here."""
    installed = Path(sys.executable).with_name(name)
    return str(_short(installed)) if installed.is_file() else name


def _short(path: Path) -> Path:
    working_folder = Path.cwd()
    return path.relative_to(working_folder) if path.is_relative_to(working_folder) else path
