"""One run of a tick on its ports: what is pending, then the changes, then the snapshots."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.offset.batch_history import BatchHistory
from airflow_provider_db2cdc.cdc.offset.offset import CLOCKS_DIFFER_MS
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.outcome import job_result
from airflow_provider_db2cdc.tick.ports import BatchLog, Journal, Source, Tables
from airflow_provider_db2cdc.tick.snapshot.coordinator import SnapshotCoordinator
from airflow_provider_db2cdc.tick.tick import Tick


def run_tick(spec: JobSpec, batch_log: BatchLog, source: Source, target: Tables, journal: Journal) -> JobResult:
    """Do what a plan says, and return what the target holds after it.

    A table that fails leaves the others committed. A retry of the same plan finds what the first try wrote, and
    continues after it.

    :raises ConcurrentRunError: another run has done, or does, this work.
    """
    history = _history(batch_log, spec)
    _check_newest(spec, history)
    tick = Tick(spec, batch_log, source, target, history)
    # After the batch log: the journal is written before a chunk that stands there was published.
    queue = journal.read(spec.reported_seq, spec.notified_seq)
    tick.recover_pending()
    tick.pull()
    snapshots = SnapshotCoordinator(tick, journal, queue)
    snapshots.run()
    tick.write_manifest(unfinished=snapshots.unfinished)
    batch_log.optimize(history.newest_batch, tick.batch)
    return snapshots.with_snapshots(job_result(tick))


@failpoint("check_newest_plan")
def _check_newest(spec: JobSpec, history: BatchHistory) -> None:
    """Refuse a plan if the target holds a batch of a later plan: it does not know the restarts since then.

    A batch that was planned more than `CLOCKS_DIFFER_MS` in the future comes from a wrong clock, and does not count.
    """
    # Of two plans of the same time the later one has the greater id.
    batches = [*(parts[-1][0] for parts in history.applied.values()), *history.pending]
    newest_ms, newest = max(((planned.planned_at_ms, planned.plan_id) for planned in batches), default=(0, ""))
    is_older = (spec.planned_at_ms, spec.plan_id) < (newest_ms, newest)
    if is_older and newest_ms < time.time() * 1000 + CLOCKS_DIFFER_MS:
        raise ConcurrentRunError(
            f"this plan is of {_clock(spec.planned_at_ms)}, and the target holds what was planned at "
            f"{_clock(newest_ms)}",
            "Nothing was written. A later run has gone on from here: leave this one, or clear all of its tasks, the "
            "plan too.",
        )


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _history(batch_log: BatchLog, spec: JobSpec) -> BatchHistory:
    """Return the batches since the offsets; all that is known of a table whose stored offset has no batch there."""
    since = {task.table: task.batch for task in spec.tables}
    history = batch_log.history(since)
    unproven = {
        task.table: 0 for task in spec.tables if task.stored_lsn and task.batch and task.table not in history.last
    }
    return batch_log.history({**since, **unproven}) if unproven else history
