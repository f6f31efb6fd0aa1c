"""The output of `db2cdc backfill` and `db2cdc replay`."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.repair.report import interval_times, remarks, repair_report, warnings
from airflow_provider_db2cdc.cli.screen import Text, clock, new_table, note, print_json, screen, span

COLOURS = {"equal": "green", "corrected": "yellow", "different": "yellow", "not compared": "dim", "failed": "red"}
COLUMNS = ("table", "", "commits", "events", "keys", "events added", "rows corrected", "only in log", "compared since")


def show(result: JobResult, is_dry_run: bool, as_json: bool, taken_s: float) -> None:
    """Show what was found and corrected, as a table or as JSON."""
    if as_json:
        status = "failed" if result.failed else "done"
        print_json({"status": status, "pipeline": result.pipeline, "dry_run": is_dry_run, **repair_report(result)})
        return
    shown = new_table(*COLUMNS, title=_title(result, is_dry_run, taken_s))
    for table in result.tables:
        shown.add_row(*_row(table, is_dry_run))
    screen().print(shown)
    for table in result.tables:
        for remark in remarks(table, result.repair):
            note(remark)
        for warning in warnings(table):
            note(f"warning: {warning}")


def show_idle(reason: str, as_json: bool) -> None:
    """Show that there is nothing to compare."""
    if as_json:
        print_json({"status": "idle", "reason": reason})
    else:
        note(f"idle: {reason}")


def _title(result: JobResult, is_dry_run: bool, taken_s: float) -> str:
    times = interval_times(result.repair)
    work = f"backfill of {' to '.join(times.values())}" if times else "replay"
    dry = " (dry run: nothing was written)" if is_dry_run else ""
    return f"{result.pipeline}: {work} in {span(taken_s)}{dry}"


def _row(table: TableResult, is_dry_run: bool) -> list[str | Text]:
    found, word = table.repair, _word(table, is_dry_run)
    if found is None:
        return [str(table.table), Text(word, COLOURS[word]), *[""] * (len(COLUMNS) - 2)]
    counts = (found.commits, found.events, found.keys, found.events_added, found.rows_corrected)
    return [
        str(table.table),
        Text(word, COLOURS[word]),
        *(str(count) if count else "" for count in (*counts, found.events_only_in_log)),
        clock(found.comparable_since_ms),
    ]


def _word(table: TableResult, is_dry_run: bool) -> str:
    """Return what became of a table, in one word."""
    found = table.repair
    if found is None:
        return "failed"
    if found.is_equal:
        return "not compared" if found.note and not found.keys else "equal"
    return "different" if is_dry_run else "corrected"
