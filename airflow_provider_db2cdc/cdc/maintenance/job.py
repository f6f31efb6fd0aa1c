"""The documents of a maintenance run: what Airflow or the command line asks Spark for, and what Spark reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol

from airflow_provider_db2cdc.cdc.document import VERSION, Document
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import TickFailedError

Step = Literal["trim", "cluster", "compact", "purge", "vacuum"]
StepStatus = Literal["done", "nothing", "planned", "skipped"]


@dataclass(frozen=True)
class FileCount:
    """Files and their bytes: of the newest version, for `vacuum` of the whole folder."""

    files: int = 0
    size: int = 0


@dataclass(frozen=True)
class StepReport:
    """What one step did to one Delta table. `delta_table` says which one, such as `change log` or `batches`.

    A step is `planned` in a dry run, and `skipped` if other writers were in its way. `detail` says more.
    """

    delta_table: str
    step: Step
    status: StepStatus
    before: FileCount
    after: FileCount
    detail: str = ""


@dataclass(frozen=True)
class TableReport:
    """What maintenance did to the Delta tables of one source table, or to the pipeline's own ones (`table` is None).

    `error` says why maintenance of the table ended early, and what to do.
    """

    table: TableId | None
    steps: tuple[StepReport, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class MaintenanceSpec(Document):
    """A maintenance run. Without `tables` it is of all tables that the batch log knows, and of the pipeline's own ones.

    `retention_s` is the age from which logs are trimmed, None to keep everything. `at_ms` is the time from which ages
    count. `reported_seq` is the journal position up to which signals, snapshots and notifications were reported.
    `shared_mount`: a local path of the target is the same place on all machines of a cluster.
    """

    pipeline: str
    run_id: str
    target: str
    at_ms: int
    tables: tuple[TableId, ...] = ()
    retention_s: float | None = None
    reported_seq: int = 0
    dry_run: bool = False
    shared_mount: bool = False
    version: int = VERSION

    @property
    def script(self) -> str:
        """The name of the entry script that does it."""
        return "maintain"

    @property
    def is_short(self) -> bool:
        """Whether good compilation does not pay. It may rewrite whole tables."""
        return False

    @property
    def cutoff_ms(self) -> int | None:
        """The time before which rows of logs are old enough to be trimmed, None if nothing is."""
        return None if self.retention_s is None else self.at_ms - int(self.retention_s * 1000)

    def read_result(self, text: str) -> MaintenanceResult:
        """Return the result of this job from its JSON."""
        return MaintenanceResult.from_json(text)


class MaintainedPipeline(Protocol):
    """What maintenance takes from a pipeline's configuration."""

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""

    @property
    def target(self) -> str:
        """The target."""

    @property
    def change_log_retention(self) -> timedelta | None:
        """The age from which logs are trimmed, None to keep everything."""

    @property
    def shared_mount(self) -> bool:
        """Whether a local path of the target is the same place on all machines of a cluster."""


def maintenance_spec(config: MaintainedPipeline, summary: PipelineSummary, run_id: str, at_ms: int) -> MaintenanceSpec:
    """Return the maintenance run of all tables of a pipeline, whose summary says what was reported."""
    retention = config.change_log_retention
    return MaintenanceSpec(
        config.pipeline,
        run_id,
        config.target,
        at_ms,
        retention_s=None if retention is None else retention.total_seconds(),
        reported_seq=min(summary.reported_seq, summary.notified_upto),
        shared_mount=config.shared_mount,
    )


@dataclass(frozen=True)
class MaintenanceResult(Document):
    """The outcome of a maintenance run: a report per source table, and one of the pipeline's own tables."""

    pipeline: str
    run_id: str
    tables: tuple[TableReport, ...]
    dry_run: bool = False
    version: int = VERSION

    @property
    def failed(self) -> tuple[TableReport, ...]:
        """The reports with an error."""
        return tuple(report for report in self.tables if report.error)

    @property
    def is_failed(self) -> bool:
        """Whether maintenance of a table failed."""
        return bool(self.failed)


def raise_for_failed_tables(result: MaintenanceResult) -> None:
    """Raise an error that names the tables whose maintenance failed.

    :raises TickFailedError: when there is one. The other tables are maintained.
    """
    if not result.failed:
        return
    lines = [report.error if report.table else f"the pipeline's own tables: {report.error}" for report in result.failed]
    first, *others = lines
    more = "".join(f"\n  - {line}" for line in others)
    raise TickFailedError(f"{first}{f'{chr(10)}Also:{more}' if others else ''}")
