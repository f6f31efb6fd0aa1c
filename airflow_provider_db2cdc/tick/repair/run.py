"""One run of a repair on its ports: pending batches first, then a comparison, then a batch of what differs."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec, TableTask
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch
from airflow_provider_db2cdc.cdc.repair.repair import Findings, PlannedRepair, Repair
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.tick.context import RunContext, read_history
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.ports import BatchLog, Journal, Source, TableBatch, Tables
from airflow_provider_db2cdc.tick.recovery import recover_pending
from airflow_provider_db2cdc.tick.repair.outcome import repair_result
from airflow_provider_db2cdc.tick.tick import Tick

NEVER_BEGUN = "the target holds nothing of it yet"
LOADING = "its snapshot is under way and reads every row again"

Found = Mapping[TableId, Findings]


def run_repair(spec: JobSpec, batch_log: BatchLog, source: Source, target: Tables, journal: Journal) -> JobResult:
    """Compare the tables of a repair, and correct what differs. Return what was found. No offset moves.

    It begins no table, so a later plan does not matter to it. Nor does it matter to the plan of a tick.

    :raises ConcurrentRunError: another run wrote meanwhile. Nothing was written.
    """
    assert spec.repair is not None
    tick = Tick(RunContext(spec, batch_log, source, target, read_history(batch_log, spec)))
    loading = journal.read(spec.reported_seq, spec.notified_seq).initially_loading
    _exclude_pending(tick)
    recover_pending(tick)
    notes = {task.table: note for task in tick.open_tasks() if (note := _exclusion(tick, task, loading))}
    tasks = [task for task in tick.open_tasks() if task.table not in notes]
    found = tick.each(tasks, lambda task: _compare(tick, task))
    if spec.repair.is_dry_run:
        _check_quiet(tick, found)
    else:
        _correct(tick, found)
        batch_log.optimize(tick.context.history.newest_batch, tick.batch)
    return repair_result(tick, {**found, **{table: Findings(note=note) for table, note in notes.items()}})


def _exclude_pending(tick: Tick) -> None:
    """Fail the tables whose pending batch this run must not finish. A repair planned after it would hide it.

    A batch of a later plan may have columns that this plan does not know. A dry run finishes none.
    """
    spec, is_dry_run = tick.spec, tick.spec.repair is not None and tick.spec.repair.is_dry_run
    for planned in tick.context.history.pending:
        is_later = planned.repair is None and (planned.planned_at_ms, planned.plan_id) > (
            spec.planned_at_ms,
            spec.plan_id,
        )
        if planned.table in tick.tasks and (is_later or is_dry_run):
            problem = f"{planned.table}: batch {planned.batch} of another run is not finished"
            tick.failures.add(planned.table, ConcurrentRunError(problem, "Let a tick run, then repair it again."))


def _exclusion(tick: Tick, task: TableTask, loading: set[TableId]) -> str:
    """Return why a table is not compared, or an empty text."""
    if task.table not in tick.positions.last:
        return NEVER_BEGUN
    return LOADING if task.table in loading or tick.positions.is_new(task) else ""


def _compare(tick: Tick, task: TableTask) -> Findings:
    last = tick.positions.last[task.table]
    found = tick.context.target.compare(TableBatch(task, _planned(tick, task, Findings()), last))
    log_progress(
        f"table={task.table} compared: {found.commits} commits, {found.events} events, {found.keys} keys; "
        f"{found.events_added} events and {found.rows_corrected} rows to correct"
    )
    return found


def _correct(tick: Tick, found: Found) -> None:
    """Plan and apply one batch for the tables in which something differs."""
    batches = [_planned(tick, tick.tasks[table], findings) for table, findings in found.items()]
    tick.plan_and_apply([planned for planned in batches if planned.repair is not None and planned.repair.is_needed])


def _planned(tick: Tick, task: TableTask, found: Findings) -> PlannedBatch:
    """Return a table's part of the repair's batch. Its range is empty, at the table's position."""
    spec, last = tick.spec, tick.positions.last[task.table]
    return PlannedBatch(
        batch=tick.batch + 1,
        run_id=spec.run_id,
        plan_id=spec.plan_id,
        table=task.table,
        after=last.upto,
        upto=last.upto,
        planned_at_ms=spec.planned_at_ms,
        # The plan's would hide from the next tick that the registration was replaced.
        capture=last.capture,
        has_offset=task.stored_lsn is not None,
        repair=PlannedRepair(_repair(spec), found),
    )


def _repair(spec: JobSpec) -> Repair:
    assert spec.repair is not None
    return spec.repair.repair


def _check_quiet(tick: Tick, found: Found) -> None:
    """Check that no run has planned a batch since the comparison began, if something differs.

    :raises ConcurrentRunError: one has. What differs may be its unfinished work.
    """
    if all(findings.is_equal for findings in found.values()):
        return
    newest = read_history(tick.context.batch_log, tick.spec).newest_batch
    if newest != tick.batch:
        raise ConcurrentRunError(
            f"another run has planned batch {newest} while the tables were compared",
            "What was found may be its unfinished work. Compare again when no other run writes.",
        )
