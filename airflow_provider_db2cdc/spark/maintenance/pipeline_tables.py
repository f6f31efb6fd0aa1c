"""Maintenance of the pipeline's own tables: batch log, commit log, journal, manifest and verification report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from airflow_provider_db2cdc.cdc.layout import Layout
from airflow_provider_db2cdc.cdc.maintenance.file_layout import vacuum_hours
from airflow_provider_db2cdc.cdc.maintenance.job import MaintenanceSpec, StepReport
from airflow_provider_db2cdc.cdc.maintenance.ledger_trim import JournalTrim, LedgerTrim, ledger_trim
from airflow_provider_db2cdc.spark.delta.conflict import skip_on_conflict
from airflow_provider_db2cdc.spark.delta.log_horizon import log_horizon
from airflow_provider_db2cdc.spark.delta.row_deletion import delete_logged_rows, delete_rows, ensure_append_only
from airflow_provider_db2cdc.spark.delta.table_io import load, table_exists
from airflow_provider_db2cdc.spark.maintenance.facts import LedgerFacts
from airflow_provider_db2cdc.spark.maintenance.files import retained_s
from airflow_provider_db2cdc.spark.maintenance.manifest import Manifest
from airflow_provider_db2cdc.spark.maintenance.steps import TableSteps
from airflow_provider_db2cdc.spark.quoting import text_literal

APPENDED = ("batches", "commits", "journal", "verifications")
MOST_ROWS = 20_000
"""Rows of the journal that one run deletes at most: a statement lists their numbers. The next run continues."""

REPORT_TIMES = ("ended_at_ms", "started_at_ms")
"""Columns of the verification report with the time of a row. A row that begins a table has no end."""


@dataclass
class PipelineTablesMaintenance:
    """The maintenance of the pipeline's own tables."""

    spark: SparkSession
    layout: Layout
    spec: MaintenanceSpec
    facts: LedgerFacts
    manifest: Manifest
    reports: list[StepReport] = field(default_factory=list)

    def run(self) -> None:
        """Do all steps. Change logs must be trimmed before: the batch log keeps the batches from their horizons on."""
        batches = " OR ".join(map(_condition_of, self._ledger_trims()))
        conditions = {
            "batches": batches,
            "commits": batches,
            "journal": self._journal_condition(),
            "manifest": f"batch < {self.manifest.oldest_batch}" if self.manifest.is_trimmed else "",
            "verifications": self._report_condition(),
        }
        for what, condition in conditions.items():
            if table_exists(self.spark, self.layout.internal(what)):
                self._maintain(what, condition)

    def _maintain(self, what: str, condition: str) -> None:
        name = self.layout.internal(what)
        steps = TableSteps(self.spark, name, what, "pipeline", self.spec.dry_run, self.reports)
        if what in APPENDED and not self.spec.dry_run:
            ensure_append_only(self.spark, name)
        rows = 0 if not condition else load(self.spark, name).where(condition).count()
        delete = delete_logged_rows if what in APPENDED else delete_rows
        act = partial(skip_on_conflict, partial(delete, self.spark, name, condition), name.name)
        steps.do("trim", rows > 0, act, f"{rows} rows")
        steps.compact()
        steps.vacuum(vacuum_hours(retained_s(self.spark, name), None))

    def _ledger_trims(self) -> Iterable[LedgerTrim]:
        if self.spec.retention_s is None:
            return
        for table, facts in self.facts.tables.items():
            horizon = log_horizon(self.spark, self.layout, table)
            trim = ledger_trim(table, horizon.batch, facts.age.last, facts.kept)
            if trim is not None:
                yield trim

    def _journal_condition(self) -> str:
        """Return the condition on rows of the journal to delete: those of the rule `JournalTrim`."""
        name = self.layout.internal("journal")
        if self.spec.cutoff_ms is None or not table_exists(self.spark, name):
            return ""
        open_ids = frozenset(snapshot.id for snapshot in self.facts.snapshots)
        trim = JournalTrim(self.spec.cutoff_ms, self.spec.reported_seq, open_ids, self.facts.journal_seq)
        rows = journal_rows_to_delete(load(self.spark, name), trim).orderBy("seq").limit(MOST_ROWS).collect()
        return f"seq IN ({', '.join(str(row['seq']) for row in rows)})" if rows else ""

    def _report_condition(self) -> str:
        name = self.layout.internal("verifications")
        if self.spec.cutoff_ms is None or not table_exists(self.spark, name):
            return ""
        return f"coalesce({', '.join(REPORT_TIMES)}) < {self.spec.cutoff_ms}"


def journal_rows_to_delete(journal: DataFrame, trim: JournalTrim) -> DataFrame:
    """Return the rows (`seq`) of a journal that the rule `JournalTrim.deletes` names."""
    kind, seq = F.col("kind"), F.col("seq")
    newest = F.max("seq").over(Window.partitionBy("kind", "id"))
    # The id of bounds is a JSON array. Its first element is the id of the snapshot.
    is_closed = ~F.get_json_object("id", "$[0]").isin(*trim.open_ids) if trim.open_ids else F.lit(True)
    is_old = (F.col("at_ms") < trim.at_ms) & (seq <= trim.reported_seq) & (seq != trim.last_seq)
    is_unneeded = (kind == "notification") | (seq < newest) | ((kind == "bounds") & is_closed)
    return journal.withColumn("__unneeded", is_unneeded).where(is_old & F.col("__unneeded")).select("seq")


def _condition_of(trim: LedgerTrim) -> str:
    kept = f" AND batch NOT IN ({', '.join(map(str, sorted(trim.kept)))})" if trim.kept else ""
    schema, name = map(text_literal, (trim.table.schema, trim.table.name))
    return f"(schema = {schema} AND table = {name} AND batch < {trim.before}{kept})"
