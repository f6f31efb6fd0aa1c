"""What a repair reports to people and later tasks: a line and remarks per table, and a document of all tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.repair.repair import Backfill, Findings, Repair

COUNTS = ("commits", "events", "keys", "events_added", "rows_corrected", "events_only_in_log", "events_doubled")


def interval_times(repair: Repair | None) -> dict[str, str]:
    """Return begin and end of a backfill's interval as ISO texts in UTC. A replay has none."""
    if not isinstance(repair, Backfill):
        return {}
    return {"interval_start": iso(repair.begin_ms), "interval_end": iso(repair.end_ms)}


def repair_report(result: JobResult) -> dict[str, Any]:
    """Return what a repair found per table, as a JSON object for later tasks."""
    assert result.repair is not None
    tables = {str(table.table): _table_report(table) for table in result.tables}
    return {"repair": result.repair.type, **interval_times(result.repair), "tables": tables}


def describe_findings(table: TableResult) -> str:
    """Return a table's line in the log of a repair."""
    found = table.repair
    if found is None:
        return f"table={table.table} {table.status} error: {table.error}"
    counts = " ".join(f"{name}={getattr(found, name)}" for name in COUNTS)
    since = "none" if found.comparable_since_ms is None else iso(found.comparable_since_ms)
    return f"table={table.table} {table.status} {counts} comparable_since={since}"


def remarks(table: TableResult, repair: Repair | None) -> Iterator[str]:
    """Yield why a table was not compared, or not all of it. This is no reason to act."""
    found, name = table.repair, table.table
    if found is None:
        return
    if found.note:
        yield f"{name}: {found.note}"
    if isinstance(repair, Backfill) and (found.keys or not found.note):
        yield from (f"{name}: {remark}" for remark in _limits(found, repair))


def warnings(table: TableResult) -> Iterator[str]:
    """Yield what a repair found and does not mend."""
    found, name = table.repair, table.table
    if found is None:
        return
    if found.events_only_in_log:
        yield (
            f"{name}: {found.events_only_in_log} events are only in the change log. Its change table does not have "
            "them, and is not pruned there. They stay in the log. Verify the table, and heal it if it differs"
        )
    if found.events_doubled:
        yield f"{name}: {found.events_doubled} events are in the change log twice. They stay there, and count once"
    if found.is_foreign:
        yield f"{name}: another writer has changed its tables"


def iso(at_ms: int) -> str:
    """Return a time in UTC milliseconds as ISO text."""
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)).isoformat()


def _limits(found: Findings, repair: Backfill) -> Iterator[str]:
    """Yield how far the interval could be compared."""
    since = found.comparable_since_ms
    if since is None and not found.keys:
        yield (
            "the target has nothing of the interval. The table began later, nothing was committed, or the changes are "
            "still to be applied"
        )
    elif since is None:
        yield "its change rows are pruned, so only its state was compared with the change log"
    elif since > repair.begin_ms:
        yield f"its change rows could be compared from {iso(since)} on. Before that only its state was compared"


def _table_report(table: TableResult) -> dict[str, Any]:
    found = table.repair
    if found is None:
        return {"status": table.status, "error": table.error}
    since = None if found.comparable_since_ms is None else iso(found.comparable_since_ms)
    counts = {name: getattr(found, name) for name in COUNTS}
    return {"status": table.status, **counts, "comparable_since": since, "note": found.note}
