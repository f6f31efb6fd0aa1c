"""One run of a tick on its ports: pending batches first, then changes, then snapshots."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import BatchHistory, PlannedBatch
from airflow_provider_db2cdc.cdc.offset.offset import CLOCKS_DIFFER_MS
from airflow_provider_db2cdc.cdc.snapshot.heal import tables_to_heal
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.context import RunContext, read_history
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.outcome import carried_result, is_carried, job_result
from airflow_provider_db2cdc.tick.ports import BatchLog, Journal, Source, Tables
from airflow_provider_db2cdc.tick.recovery import recover_pending
from airflow_provider_db2cdc.tick.repair.run import run_repair
from airflow_provider_db2cdc.tick.snapshot.coordinator import SnapshotCoordinator
from airflow_provider_db2cdc.tick.tick import Tick


def run_tick(spec: JobSpec, batch_log: BatchLog, source: Source, target: Tables, journal: Journal) -> JobResult:
    """Carry out a plan, and return what the target holds afterwards. A plan of a repair does only that.

    A table that fails does not undo the other tables' applied batches. A retry of the same plan finds what the first
    try wrote, and continues after it.

    :raises ConcurrentRunError: another run has done this work, or is doing it.
    """
    if spec.repair is not None:
        return run_repair(spec, batch_log, source, target, journal)
    history = read_history(batch_log, spec)
    tick = Tick(RunContext(spec, batch_log, source, target, history))
    later = _later_plan(spec, history)
    if later is not None and not is_carried(spec, history):
        raise _overtaken_error(spec, later)
    # The journal is read after the batch log. A snapshot is journalled before its chunks are published. So the journal
    # knows every snapshot whose chunks are in the batch log.
    queue = journal.read(spec.reported_seq, spec.notified_seq)
    if later is not None:
        log_progress(
            f"nothing to do: the interval's commits are applied. Run {later.run_id} was planned after this one"
        )
        return SnapshotCoordinator(tick, journal, queue).with_snapshots(carried_result(tick))
    tick.healed = tables_to_heal(queue, spec.signals, tick.tasks)
    recover_pending(tick)
    tick.pull()
    snapshots = SnapshotCoordinator(tick, journal, queue)
    snapshots.run()
    tick.write_manifest(unfinished=snapshots.unfinished)
    batch_log.optimize(history.newest_batch, tick.batch)
    return snapshots.with_snapshots(job_result(tick))


@failpoint("check_newest_plan")
def _later_plan(spec: JobSpec, history: BatchHistory) -> PlannedBatch | None:
    """Return a batch of the newest plan, None if this plan is the newest.

    A batch that was planned more than `CLOCKS_DIFFER_MS` in the future comes from a wrong clock, and does not count.
    Nor does a repair: it begins no table and moves no offset.
    """
    newest_applied = (planned for table in history.applied if (planned := history.newest(table)) is not None)
    batches = [*newest_applied, *(planned for planned in history.pending if planned.repair is None)]
    # If two plans have the same time, the later one has the greater id.
    newest = max(batches, key=lambda planned: (planned.planned_at_ms, planned.plan_id), default=None)
    if newest is None or (spec.planned_at_ms, spec.plan_id) >= (newest.planned_at_ms, newest.plan_id):
        return None
    return newest if newest.planned_at_ms < time.time() * 1000 + CLOCKS_DIFFER_MS else None


def _overtaken_error(spec: JobSpec, later: PlannedBatch) -> ConcurrentRunError:
    """Return the error of a plan that is older than the target. It does not know the restarts since then."""
    return ConcurrentRunError(
        f"this plan is of {_clock(spec.planned_at_ms)}, and the target holds what was planned at "
        f"{_clock(later.planned_at_ms)}",
        "Nothing was written. A later run has continued from here. Leave this one as it is, or clear all of "
        "its tasks, the plan too.",
    )


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
