"""The outcome of a repair: one result per table, without a position, so that no offset moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_db2cdc.cdc.job import JobResult, TableResult
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.tick import Tick


def repair_result(tick: Tick, found: Mapping[TableId, Findings]) -> JobResult:
    """Return the result of a repair. A table that a first try of this plan corrected has what that try found."""
    spec = tick.spec
    assert spec.repair is not None
    first = {planned.table: planned.repair.found for planned in _earlier(tick) if planned.repair is not None}
    rejected = [each.table for each in spec.rejected if each.is_replicated]
    return JobResult(
        spec.pipeline,
        spec.run_id,
        tuple(_table_result(tick, table, first.get(table, found.get(table))) for table in (*tick.tasks, *rejected)),
        planned_at_ms=spec.planned_at_ms,
        source_ahead_ms=spec.source_ahead_ms,
        source_clock=spec.source_clock,
        repair=spec.repair.repair,
    )


def _earlier(tick: Tick) -> Iterator[PlannedBatch]:
    """Yield the batches of this plan that an earlier try planned."""
    history, plan = tick.context.history, tick.spec.plan_id
    applied = (planned for pairs in history.applied.values() for planned, _ in pairs)
    yield from (planned for planned in (*applied, *history.pending) if planned.plan_id == plan)


def _table_result(tick: Tick, table: TableId, found: Findings | None) -> TableResult:
    error = tick.failures.errors.get(table, "")
    return TableResult(
        table=table,
        status="failed" if error else "unchanged" if found is None or found.is_equal else "applied",
        duration_s=round(tick.seconds.get(table, 0.0), 3),
        is_rejected=table not in tick.tasks,
        error=error,
        repair=None if error else found,
    )
