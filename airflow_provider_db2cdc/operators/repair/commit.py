"""The report of a repair by the commit task. No offset moves."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.offset.store import KnownOffsets
from airflow_provider_db2cdc.cdc.repair.report import describe_findings, interval_times, remarks, warnings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.operators.asset import newest_announcement

log = logging.getLogger(__name__)


def log_repair(result: JobResult, task_log: Any) -> None:
    """Log what a repair found of each table, in the log of a task."""
    for table in result.tables:
        task_log.info("%s", describe_findings(table))
        for remark in remarks(table, result.repair):
            task_log.info("%s", remark)
        for warning in warnings(table):
            task_log.warning("%s", warning)


def repair_extras(result: JobResult, offsets: KnownOffsets) -> Mapping[TableId, dict[str, Any]]:
    """Return the extra of an asset event for each table that a repair has changed."""
    changed = [table for table in result.tables if table.repair is not None and not table.repair.is_equal]
    return {table.table: repair_extra(result, table, _announced(result, table, offsets)) for table in changed}


def repair_extra(result: JobResult, table: TableResult, last: Announcement | None) -> dict[str, Any]:
    """Return the extra of an asset event: the interval, how many events came late, and how many rows were corrected.

    Late events have old batch numbers, so no range has them. The event's own range is empty, and stands where the
    `last` one that Airflow has ends. So the ranges of the table's events still follow one another.
    """
    assert result.repair is not None
    assert table.repair is not None
    empty = {} if last is None else replace(last, from_batch=last.to_batch, from_lsn=last.to_lsn, rows=0).extra
    counts = {"events_added": table.repair.events_added, "rows_corrected": table.repair.rows_corrected}
    return {"repair": result.repair.type, **interval_times(result.repair), **counts, "rows": 0, **empty}


def _announced(result: JobResult, table: TableResult, offsets: KnownOffsets) -> Announcement | None:
    """Return the newest range that Airflow has of a table's current change log.

    A range that only the offset has is not in any event yet. It must stay the next one.
    """
    try:
        offset = offsets.get(table.table)
    except OffsetError as error:
        log.warning("the asset event of %s has no range: %s", table.table, error)
        return None
    known = None if offset is None else offset.announced
    return None if known is None else newest_announcement(result.pipeline, table.table, known.log_id)
