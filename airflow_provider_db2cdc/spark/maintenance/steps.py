"""The steps of maintenance on one Delta table, each with its files before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from airflow_provider_db2cdc.cdc.layout import DeltaName
from airflow_provider_db2cdc.cdc.maintenance.file_layout import FileStatistics
from airflow_provider_db2cdc.cdc.maintenance.job import FileCount, Step, StepReport, StepStatus
from airflow_provider_db2cdc.spark.maintenance.files import TableFiles, compact, purge, vacuum
from airflow_provider_db2cdc.tick.log import log_progress

BUSY = "other writers commit to it meanwhile; the next run tries again"
UNPURGED = "{} files still have deleted rows: Delta leaves them in a clustered table until it has new files"


@dataclass
class TableSteps:
    """Steps on one Delta table. `what` names it in reports, `title` in progress lines."""

    spark: SparkSession
    name: DeltaName
    what: str
    title: str
    is_dry: bool
    reports: list[StepReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = TableFiles(self.spark, self.name)

    def do(self, step: Step, is_due: bool, act: Callable[[], object], detail: str = "") -> None:
        """Do a step if it is due. `act` returns False if other writers were in its way."""
        before = self._count()
        status: StepStatus = "nothing" if not is_due else "planned" if self.is_dry else "done"
        if status == "done" and act() is False:
            status, detail = "skipped", BUSY
        self._report(step, status, before, detail if is_due else "")

    def compact(self, is_unsorted: bool = False) -> None:
        """Compact if there are enough small files, or if the rows are not sorted by new clustering columns yet."""
        files = self.files.statistics()
        is_due = files.needs_compaction or (is_unsorted and files.files > 1)
        self.do("compact", is_due, lambda: compact(self.spark, self.name), f"{files.small} small files")

    def purge(self, is_clustered: bool) -> None:
        """Purge deleted rows from the files. In a clustered table only an OPTIMIZE can do that."""
        files = self.files.statistics()
        if is_clustered and files.needs_purge:
            self._report("purge", "nothing", _count_of(files), UNPURGED.format(files.with_deletes))
            return
        detail = f"{files.with_deletes} files with deleted rows"
        self.do("purge", files.needs_purge, lambda: purge(self.spark, self.name), detail)

    def vacuum(self, hours: int) -> None:
        """Remove the files that no version of the last `hours` needs."""
        before, is_due = self.files.stored(), self.files.needs_vacuum()
        if is_due and not self.is_dry:
            vacuum(self.spark, self.name, hours)
        after = self.files.stored() if is_due and not self.is_dry else before
        has_removed = after.files < before.files
        status: StepStatus = "planned" if is_due and self.is_dry else "done" if has_removed else "nothing"
        self._add(StepReport(self.what, "vacuum", status, before, after, f"keeps {hours} hours"))

    def _count(self) -> FileCount:
        return _count_of(self.files.statistics())

    def _report(self, step: Step, status: StepStatus, before: FileCount, detail: str) -> None:
        after = self._count() if status == "done" else before
        self._add(StepReport(self.what, step, status, before, after, detail))

    def _add(self, report: StepReport) -> None:
        self.reports.append(report)
        if report.status != "nothing":
            log_progress(f"{self.title}: {describe(report)}")


def describe(report: StepReport) -> str:
    """Return a step as one line."""
    before, after, detail = report.before, report.after, f" ({report.detail})" if report.detail else ""
    counts = f"{before.files} files, {before.size} bytes"
    if report.status == "done":
        counts += f" -> {after.files} files, {after.size} bytes"
    return f"{report.delta_table} {report.step} {report.status}: {counts}{detail}"


def _count_of(files: FileStatistics) -> FileCount:
    return FileCount(files.files, files.size)
