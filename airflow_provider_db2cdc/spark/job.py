"""The Spark job of one tick: a session, and the ports on it."""

from __future__ import annotations

from airflow_provider_db2cdc.cdc.job import JobResult, JobSpec
from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.spark.delta.ownership import Place
from airflow_provider_db2cdc.spark.jdbc.source_reader import JdbcReaders
from airflow_provider_db2cdc.spark.lease.target import target_lease
from airflow_provider_db2cdc.spark.ledger.batch_log import BatchLog
from airflow_provider_db2cdc.spark.ledger.journal import Journal
from airflow_provider_db2cdc.spark.session import open_session
from airflow_provider_db2cdc.spark.tables import SparkTables
from airflow_provider_db2cdc.spark.target_location import require_reach
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.tick.run import run_tick


def run(spec: JobSpec) -> JobResult:
    """Do one tick on Spark, and return what Delta holds after it.

    :raises Db2CdcError: nothing could be done for any table: no target, no session, or another run's batch.
    """
    spark = open_session(f"db2cdc {spec.pipeline}")
    log_progress(f"session: pipeline={spec.pipeline} tables={len(spec.tables)}")
    layout = Layout(spec.target)
    require_reach(spark, layout, spec.settings.shared_mount)
    with target_lease(spark, layout, f"run {spec.run_id}"):
        batch_log = BatchLog(spark, layout, spec.pipeline)
        owner = batch_log.prepare()
        tables = SparkTables(spark, spec, Place(layout, owner), batch_log)
        journal = Journal(spark, layout, owner, spec.run_id)
        return run_tick(spec, batch_log, JdbcReaders(spark, spec), tables, journal)
