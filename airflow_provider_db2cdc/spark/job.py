"""The job of one tick: what was left over, then the changes, then the snapshots."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.offset.batch_history import BatchHistory
from airflow_provider_db2cdc.cdc.offset.offset import CLOCKS_DIFFER_MS
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.spark.delta.ownership import Place
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.ledger.journal import Journal
from airflow_provider_db2cdc.spark.session import open_session
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.outcome import job_result
from airflow_provider_db2cdc.tick.snapshot.coordinator import SnapshotCoordinator
from airflow_provider_db2cdc.tick.tick import Tick


def run(spec: JobSpec) -> JobResult:
    """Do one tick and say what Delta holds after it; a table that fails leaves the others committed.

    A retry of the same spec finds what the first try wrote and goes on behind it.

    :raises Db2CdcError: nothing could be done for any table (no target, no session, another tick's batch).
    """
    spark = open_session(f"db2cdc {spec.pipeline}")
    log_progress(f"session: pipeline={spec.pipeline} tables={len(spec.tables)}")
    layout = Layout(spec.target)
    ledger = BatchLog(spark, layout, spec.pipeline)
    owner = ledger.prepare()
    history = _history(ledger, spec)
    _check_newest(spec, history)
    tick = Tick(spark, spec, Place(layout, owner), ledger, JdbcSource(spec.source), history)
    # Behind the ledger: of a chunk that is published there the journal knew before.
    journal = Journal(spark, layout, owner, spec.run_id)
    queue = journal.read(spec.reported_seq, spec.notified_seq)
    tick.recover_pending()
    tick.pull()
    snapshots = SnapshotCoordinator(tick, journal, queue)
    snapshots.run()
    tick.write_manifest(unfinished=snapshots.unfinished)
    ledger.optimize(tick.history.newest_batch, tick.batch)
    return snapshots.with_snapshots(job_result(tick))


@failpoint("check_newest_plan")
def _check_newest(spec: JobSpec, history: BatchHistory) -> None:
    """Refuse a plan that a later one has overtaken: it knows neither tables nor restarts of since then.

    What is said to have been planned in times to come, by a clock that was wrong, is no later plan.

    :raises TickLostError: that is so.
    """
    # Of two plans of the same time the later one has the greater name.
    batches = [*(parts[-1][0] for parts in history.applied.values()), *history.pending]
    newest_ms, newest = max(((one.planned_at_ms, one.plan_id) for one in batches), default=(0, ""))
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


def _history(ledger: BatchLog, spec: JobSpec) -> BatchHistory:
    """Return what the ledger says since the offsets; where it knows less than an offset believes, what it does know."""
    since = {task.table: task.batch for task in spec.tables}
    history = ledger.history(since)
    unproven = {
        task.table: 0 for task in spec.tables if task.stored_lsn and task.batch and task.table not in history.last
    }
    return ledger.history({**since, **unproven}) if unproven else history
