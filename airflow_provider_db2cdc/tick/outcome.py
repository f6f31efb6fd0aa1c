"""The outcome of a tick: one result per table."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableResult
from airflow_provider_db2cdc.cdc.offset.batch_history import BatchHistory
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.tick import Tick


def job_result(tick: Tick) -> JobResult:
    """Return the result of a tick, with the tables that the plan rejected.

    A rejected signal table that is also replicated has two results.
    """
    rejected = [table.table for table in tick.spec.rejected if table.is_replicated]
    results = [table_result(tick, table) for table in (*tick.tasks, *rejected)]
    results += [
        TableResult(table.table, "failed", is_replicated=False, is_rejected=True, error=table.error)
        for table in tick.spec.rejected
        if not table.is_replicated
    ]
    return JobResult(
        tick.spec.pipeline,
        tick.spec.run_id,
        tuple(results),
        planned_at_ms=tick.spec.planned_at_ms,
        source_ahead_ms=tick.spec.source_ahead_ms,
        source_clock=tick.spec.source_clock,
        interval=tick.spec.interval,
    )


def is_carried(spec: JobSpec, history: BatchHistory) -> bool:
    """Return whether later runs have carried all that a plan pulls for its data interval, and it has no other work."""
    last = history.last
    is_pull = all(task.action == "pull" and not task.misses_changes for task in spec.tables)
    is_applied = all(task.table in last and task.upto <= last[task.table].upto for task in spec.tables)
    return spec.interval is not None and not (spec.signals or spec.rejected) and is_pull and is_applied


def carried_result(tick: Tick) -> JobResult:
    """Return the result of a tick that has nothing to do, because a later run has carried its interval.

    It names no position and no events: the later run reports those.
    """
    unchanged = (TableResult(table, "unchanged", revision=task.revision) for table, task in tick.tasks.items())
    return replace(job_result(tick), tables=tuple(unchanged))


def table_result(tick: Tick, table: TableId) -> TableResult:
    """Return what the target holds of a table after the tick.

    A result without a position moves no offset. It has none for a table that still has to begin, that waits for an
    operator, or that has no applied batch.
    """
    task, positions = tick.tasks.get(table), tick.positions
    result, last = _counted_result(tick, table), positions.last.get(table)
    if last is None or table in positions.waiting_for_operator or (task is not None and positions.is_new(task)):
        return result
    return replace(
        result,
        rewound=task is not None and positions.is_rewound(task),
        reinitialized=task is not None and positions.is_reinitialized(task),
        lsn=last.upto,
        batch=last.batch,
        rows=last.rows,
        commit_lsn=last.commit_lsn,
        commit_ts_ms=last.commit_ts_ms,
        state_version=last.state_version,
        capture=last.capture.digest,
        log_id=last.changes_id,
    )


def _counted_result(tick: Tick, table: TableId) -> TableResult:
    """Return a table's result without its position."""
    task, positions, error = tick.tasks.get(table), tick.positions, tick.failures.errors.get(table, "")
    unreported = positions.unreported(task) if task is not None else []
    applied = [*(batch for _, batch in unreported), *positions.applied.get(table, [])]
    return TableResult(
        table=table,
        status="failed" if error else ("applied" if applied else "unchanged"),
        after=unreported[0][0].after if unreported else positions.applied_after.get(table),
        creates=sum(batch.creates for batch in applied),
        updates=sum(batch.updates for batch in applied),
        deletes=sum(batch.deletes for batch in applied),
        reads=sum(batch.reads for batch in applied),
        duration_s=round(tick.seconds.get(table, 0.0), 3),
        restart=task is not None and task.action == "restart",
        revision=task.revision if task is not None else "",
        has_unreported=bool(unreported),
        capture_interrupted=table in tick.failures.capture_interrupted,
        offset_recovered=table in positions.offset_recovered,
        is_rejected=task is None,
        waits_for_operator=table in positions.waiting_for_operator,
        error=error,
    )
