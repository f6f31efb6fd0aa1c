"""Recovery: the pending batches of earlier ticks are finished as they were planned, or abandoned."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.tick import Tick


def recover_pending(tick: Tick) -> None:
    """Finish the pending batches of earlier ticks. Abandon those that are not to be redone."""
    pending = [planned for planned in tick.context.history.pending if _is_to_redo(tick, planned)]
    for planned in tick.context.history.pending:
        if planned not in pending:
            tick.abandon(planned)
    for number in sorted({planned.batch for planned in pending}):
        log_progress(f"batch={number} redo: it was planned but not finished")
        _redo(tick, {planned.table: planned for planned in pending if planned.batch == number})


def _is_to_redo(tick: Tick, planned: PlannedBatch) -> bool:
    """Return whether a pending batch is to be finished.

    It is not if the tick has no task for its table. Nor is it if the table is restarted and another plan planned the
    batch.
    """
    task = tick.tasks.get(planned.table)
    return task is not None and (task.action != "restart" or planned.plan_id == tick.spec.plan_id)


def _redo(tick: Tick, batches: Mapping[TableId, PlannedBatch]) -> None:
    def check(task: TableTask) -> bool:
        planned = batches[task.table]
        try:
            tick.context.target.check_readable(task, planned, tick.positions.capture_lsn(planned.after))
        except GapError as error:
            tick.positions.schedule_resnapshot(task, error)
            tick.abandon(planned)
            return False
        return True

    readable = tick.each([task for task in tick.open_tasks() if task.table in batches], check)
    tick.apply([batches[table] for table, is_readable in readable.items() if is_readable])
