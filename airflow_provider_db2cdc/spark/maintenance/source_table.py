"""Maintenance of the Delta tables of one source table: change log and current state."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import DeltaName, Layout
from airflow_provider_db2cdc.cdc.maintenance.file_layout import vacuum_hours
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceSpec, StepReport
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon, find_horizon, log_needs
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.spark.delta.conflict import skip_on_conflict
from airflow_provider_db2cdc.spark.delta.log_horizon import has_rows_before, log_horizon, trim_log
from airflow_provider_db2cdc.spark.delta.row_deletion import ensure_append_only
from airflow_provider_db2cdc.spark.delta.table_io import table_exists
from airflow_provider_db2cdc.spark.maintenance.clustering import cluster, wanted_clustering
from airflow_provider_db2cdc.spark.maintenance.facts import LedgerFacts, positions_before
from airflow_provider_db2cdc.spark.maintenance.files import retained_s
from airflow_provider_db2cdc.spark.maintenance.manifest import Manifest
from airflow_provider_db2cdc.spark.maintenance.steps import TableSteps


@dataclass
class SourceTableMaintenance:
    """The maintenance of one source table's Delta tables."""

    spark: SparkSession
    layout: Layout
    spec: MaintenanceSpec
    facts: LedgerFacts
    manifest: Manifest
    table: TableId

    def __post_init__(self) -> None:
        self.reports: list[StepReport] = []

    def run(self) -> None:
        """Do all steps.

        :raises ConfigurationError: when the retention is shorter than an open snapshot needs. Nothing is changed then.
        """
        horizon = self._wanted_horizon()
        log, state = self.layout.changes(self.table), self.layout.state(self.table)
        if table_exists(self.spark, log):
            self._maintain_log(self._steps(log, "change log"), horizon)
        if table_exists(self.spark, state):
            self._maintain_state(self._steps(state, "current state"))

    def _wanted_horizon(self) -> int:
        """Return the first batch that the change log keeps, 0 if it keeps everything."""
        facts = self.facts.tables[self.table]
        if self.spec.retention_s is None or not facts.age.last:
            return 0
        snapshots, pending = self.facts.snapshots, self.facts.pending
        needs = log_needs(self.table, snapshots, facts.published, pending, self.manifest.oldest_batch)
        return find_horizon(self.table, facts.age, needs)

    def _maintain_log(self, steps: TableSteps, wanted: int) -> None:
        if not self.spec.dry_run:
            ensure_append_only(self.spark, steps.name)
        horizon = log_horizon(self.spark, self.layout, self.table)
        if wanted > horizon.batch:
            trimmed = positions_before(self.spark, self.layout, self.table, wanted)
            horizon = horizon.moved(wanted, trimmed)
        is_due = horizon.is_trimmed and has_rows_before(self.spark, self.layout, self.table, horizon)
        detail = f"events of batches before {horizon.batch}, with commits up to {horizon.after}"
        steps.do("trim", is_due, lambda: self._trim(horizon), detail)
        steps.compact()
        steps.vacuum(vacuum_hours(retained_s(self.spark, steps.name), None))

    def _trim(self, horizon: LogHorizon) -> bool:
        name = self.layout.changes(self.table).name
        return skip_on_conflict(lambda: trim_log(self.spark, self.layout, self.table, horizon), name)

    def _maintain_state(self, steps: TableSteps) -> None:
        columns, is_clustered = wanted_clustering(self.spark, self.layout, self.table)
        detail = ", ".join(columns)
        steps.do("cluster", bool(columns), lambda: cluster(self.spark, self.layout, self.table, columns), detail)
        steps.compact(is_unsorted=bool(columns))
        steps.purge(is_clustered)
        steps.vacuum(vacuum_hours(retained_s(self.spark, steps.name), self.manifest.oldest_age_s))

    def _steps(self, name: DeltaName, what: str) -> TableSteps:
        title = f"table={self.table}"
        steps = TableSteps(self.spark, name, what, title, self.spec.dry_run)
        # The list is shared, so that the steps before an error are reported too.
        steps.reports = self.reports
        return steps
