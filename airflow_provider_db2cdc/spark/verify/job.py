"""The Spark job of a verification: a session, and the ports on it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.verify.document import VerifyResult, VerifySpec
from airflow_provider_db2cdc.spark.jdbc.connection import JdbcSource
from airflow_provider_db2cdc.spark.lease.target import target_lease
from airflow_provider_db2cdc.spark.session import TableSessions, open_session
from airflow_provider_db2cdc.spark.target_location import require_reach
from airflow_provider_db2cdc.spark.verify.count_comparer import CountComparer
from airflow_provider_db2cdc.spark.verify.report_table import ReportTable
from airflow_provider_db2cdc.spark.verify.row_comparer import RowComparer
from airflow_provider_db2cdc.spark.verify.source_reader import VerifyReaders
from airflow_provider_db2cdc.spark.verify.state import States, owner_of_target
from airflow_provider_db2cdc.tick.log import log_progress
from airflow_provider_db2cdc.verify.ports import Comparer, Ports
from airflow_provider_db2cdc.verify.run import run_verification


def run(spec: VerifySpec) -> VerifyResult:
    """Verify a pipeline's tables on Spark, and return a verdict on each.

    :raises TargetError: when the target has not been written yet, or belongs to another pipeline.
    """
    spark = open_session(f"db2cdc verify {spec.pipeline}")
    log_progress(f"session: pipeline={spec.pipeline} verification={spec.verification} tables={len(spec.tables)}")
    layout = Layout(spec.target)
    require_reach(spark, layout, spec.settings.shared_mount)
    with target_lease(spark, layout, f"verification {spec.verification}", "report"):
        return _verify(spark, layout, spec)


def _verify(spark: SparkSession, layout: Layout, spec: VerifySpec) -> VerifyResult:
    owner = owner_of_target(spark, layout, spec.pipeline)
    states = States(layout, owner, spec.settings, JdbcSource(spec.source), TableSessions(spark, owner.mark))
    comparer: Comparer = CountComparer(states) if spec.quick else RowComparer(states)
    report = ReportTable(spark, layout, owner, "counts" if spec.quick else "rows")
    return run_verification(spec, Ports(VerifyReaders(spark, spec), comparer, report))
