"""`db2cdc maintain`: trims, compacts and cleans the Delta tables of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_db2cdc.cdc.codec import to_data
from airflow_provider_db2cdc.cdc.maintenance.job import (
    FileCount,
    MaintenanceResult,
    MaintenanceSpec,
    StepReport,
    maintenance_spec,
    raise_for_failed_tables,
)
from airflow_provider_db2cdc.cdc.selection.table_names import parse_table
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.cli.pipeline import open_kept
from airflow_provider_db2cdc.cli.screen import Text, new_table, note, print_json, screen, tell_ignored
from airflow_provider_db2cdc.cli.tick import spark_output
from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.pipeline import PipelineConfig
from airflow_provider_db2cdc.submit.runner import Login, run_job

OWN_TABLES = "the pipeline's own tables"
COLOURS = {"done": "green", "planned": "yellow", "skipped": "yellow", "nothing": "dim"}
UNITS = ("B", "KB", "MB", "GB")


def run(config: Path, wanted: Mapping[str, Any], as_json: bool, progress: bool) -> None:
    """Maintain the `wanted` tables and show what was done.

    :raises TickFailedError: when maintenance of a table failed. The others are maintained and shown.
    """
    tables = tuple(parse_table(name, "the table's name") for name in wanted["tables"])
    pipeline = load_config(config, with_database=False)
    tell_ignored(pipeline.ignored)
    spec = replace(_spec(pipeline, wanted["airflow"]), tables=tables, dry_run=wanted["dry_run"])
    with spark_output(f"maintenance of {len(tables) or 'all'} tables", progress) as on_line:
        result = run_job(spec, pipeline.spark, Login(), on_line)
    show(result, as_json)
    raise_for_failed_tables(result)


def show(result: MaintenanceResult, as_json: bool) -> None:
    """Show the steps that did something, or the whole result as JSON."""
    if as_json:
        print_json(to_data(result))
        return
    dry = " (dry run: nothing was written)" if result.dry_run else ""
    title = f"{result.pipeline}: maintenance of {len(result.tables)} tables{dry}"
    shown = new_table("table", "", "step", "", "files", "bytes", "", title=title)
    rows = [(report.table, step) for report in result.tables for step in report.steps if step.status != "nothing"]
    for table, step in rows:
        shown.add_row(*_row(table, step))
    if rows:
        screen().print(shown)
    elif not result.failed:
        note(f"{result.pipeline}: there was nothing to do")


def _spec(pipeline: PipelineConfig, airflow: bool) -> MaintenanceSpec:
    now = datetime.now(UTC)
    summary = open_kept(pipeline, airflow).summary()
    return maintenance_spec(pipeline, summary, f"cli__{now.isoformat()}", int(now.timestamp() * 1000))


def _row(table: TableId | None, step: StepReport) -> Sequence[str | Text]:
    name = OWN_TABLES if table is None else str(table)
    files, sizes = (_change(step, measure) for measure in (_files, _size))
    return name, step.delta_table, step.step, Text(step.status, COLOURS[step.status]), files, sizes, step.detail


def _change(step: StepReport, measure: Any) -> str:
    before, after = measure(step.before), measure(step.after)
    return f"{before} -> {after}" if step.status == "done" else str(before)


def _files(count: FileCount) -> str:
    return str(count.files)


def _size(count: FileCount) -> str:
    size, unit = float(count.size), 0
    while size >= 10_000 and unit + 1 < len(UNITS):
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {UNITS[unit]}"
