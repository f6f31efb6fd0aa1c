"""The Spark job of maintenance: each table's steps, then those of the pipeline's own tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.listing import shortened
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceResult, MaintenanceSpec, StepReport, TableReport
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.spark.delta.table_io import table_exists
from airflow_provider_db2cdc.spark.lease.target import LEASES, target_lease
from airflow_provider_db2cdc.spark.maintenance.facts import LedgerFacts, read_facts
from airflow_provider_db2cdc.spark.maintenance.files import WEEK_S, retained_s
from airflow_provider_db2cdc.spark.maintenance.manifest import Manifest, kept_manifest
from airflow_provider_db2cdc.spark.maintenance.pipeline_tables import PipelineTablesMaintenance
from airflow_provider_db2cdc.spark.maintenance.source_table import SourceTableMaintenance
from airflow_provider_db2cdc.spark.session import TableSessions, open_session
from airflow_provider_db2cdc.spark.target_location import require_reach
from airflow_provider_db2cdc.tick.log import describe, log_progress, log_stack

OWN_TABLES = TableId("", "")


def run(spec: MaintenanceSpec) -> MaintenanceResult:
    """Maintain the tables of a target. A table that fails does not stop the others.

    :raises Db2CdcError: nothing could be done: there is no target, or it has no such table.
    """
    spark = open_session(f"db2cdc maintain {spec.pipeline}")
    layout = Layout(spec.target)
    require_reach(spark, layout, spec.shared_mount)
    with ExitStack() as leases:
        for lease in () if spec.dry_run else LEASES:
            leases.enter_context(target_lease(spark, layout, f"maintenance {spec.run_id}", lease))
        return maintain(spark, spec)


def maintain(spark: SparkSession, spec: MaintenanceSpec) -> MaintenanceResult:
    """Maintain the tables of a target on a session. See `run`."""
    layout = Layout(spec.target)
    facts = read_facts(spark, layout, spec)
    tables = _chosen(spec, facts)
    log_progress(f"maintenance: pipeline={spec.pipeline} tables={len(tables)}{' dry run' if spec.dry_run else ''}")
    # Ticks accept changes of rows by their pipeline's mark only.
    session = TableSessions(spark, facts.owner.mark).session(OWN_TABLES, sys.maxsize)
    states = [name for table in facts.tables if table_exists(session, name := layout.state(table))]
    longest_s = max((retained_s(session, name) for name in states), default=WEEK_S)
    run = _Run(session, layout, spec, facts, kept_manifest(session, layout, spec.at_ms, longest_s))
    reports = [run.table(table, number, len(tables)) for number, table in enumerate(tables, 1)]
    own = [] if spec.tables else [run.own_tables()]
    return MaintenanceResult(spec.pipeline, spec.run_id, (*reports, *own), spec.dry_run)


@dataclass
class _Run:
    spark: SparkSession
    layout: Layout
    spec: MaintenanceSpec
    facts: LedgerFacts
    manifest: Manifest

    def table(self, table: TableId, number: int, count: int) -> TableReport:
        """Maintain one source table."""
        log_progress(f"table={table} maintenance: {number} of {count}")
        maintenance = SourceTableMaintenance(self.spark, self.layout, self.spec, self.facts, self.manifest, table)
        return _report(table, maintenance.run, maintenance.reports)

    def own_tables(self) -> TableReport:
        """Maintain the pipeline's own tables."""
        maintenance = PipelineTablesMaintenance(self.spark, self.layout, self.spec, self.facts, self.manifest)
        return _report(None, maintenance.run, maintenance.reports)


def _report(table: TableId | None, act: Callable[[], None], steps: Sequence[StepReport]) -> TableReport:
    try:
        act()
    except Exception as error:
        reason = describe(error)
        log_progress(f"{f'table={table}' if table else 'pipeline'} maintenance failed: {reason}")
        log_stack(error)
        return TableReport(table, tuple(steps), reason)
    return TableReport(table, tuple(steps))


def _chosen(spec: MaintenanceSpec, facts: LedgerFacts) -> list[TableId]:
    """Return the tables to maintain.

    :raises ConfigurationError: when a named table is not in the batch log.
    """
    unknown = [table for table in spec.tables if table not in facts.tables]
    if unknown:
        known = sorted(facts.tables)
        raise ConfigurationError(
            f"{shortened(unknown)}: pipeline {spec.pipeline!r} has written no such table",
            f"Its tables are {shortened(known)}. Nothing was changed.",
        )
    return sorted({*spec.tables} or facts.tables)
