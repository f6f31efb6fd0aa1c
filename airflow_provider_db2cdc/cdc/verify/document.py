"""VerifySpec and VerifyResult: the documents of a verification job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from airflow_provider_db2cdc.cdc.document import VERSION, Document
from airflow_provider_db2cdc.cdc.job import ApplySettings, SourceSpec, TableTask
from airflow_provider_db2cdc.cdc.signal.signal import SignalTable
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId
from airflow_provider_db2cdc.cdc.verify.comparison import ChunkDifference, total
from airflow_provider_db2cdc.cdc.verify.report import TableReport

VerdictStatus = Literal["equal", "different", "unfinished", "failed", "excluded"]
MOST_RANGES = 50
"""The most key ranges that a verdict names. The report has all of them."""


@dataclass(frozen=True)
class VerifySpec(Document):
    """A verification to carry out: the tables, and how they are compared.

    Job runs with the same `verification` continue it. `quick` compares only counts. Key ranges of the result have keys
    with `show_keys`, else only numbers of chunks. No group of chunks begins later than `budget_s` seconds after the
    start. `rejected` tables cannot be verified now, and `excluded` ones never.
    """

    pipeline: str
    verification: str
    target: str
    source: SourceSpec
    tables: tuple[TableTask, ...]
    settings: ApplySettings = field(default_factory=ApplySettings)
    quick: bool = False
    show_keys: bool = False
    budget_s: float | None = None
    rejected: tuple[RejectedTable, ...] = ()
    excluded: tuple[RejectedTable, ...] = ()
    signal_table: SignalTable | None = None
    version: int = VERSION

    @property
    def script(self) -> str:
        """The name of the entry script that does it."""
        return "verify"

    @property
    def is_short(self) -> bool:
        """Whether good compilation does not pay. The sizes of the tables are not known."""
        return False

    def read_result(self, text: str) -> VerifyResult:
        """Return the result of this job from its JSON."""
        return VerifyResult.from_json(text)


@dataclass(frozen=True)
class TableVerdict:
    """What a verification says of one table.

    `keys_changed` keys were not compared. `ranges` are places that differ, at most `MOST_RANGES` of them. `error` says
    why a table could not be verified, or why it is excluded.
    """

    table: TableId
    status: VerdictStatus
    source_rows: int = 0
    state_rows: int = 0
    missing: int = 0
    surplus: int = 0
    different: int = 0
    keys_changed: int = 0
    chunks: int = 0
    chunks_compared: int = 0
    ranges: tuple[ChunkDifference, ...] = ()
    duration_s: float = 0.0
    error: str = ""

    @property
    def rows_differing(self) -> int:
        """The number of rows that differ."""
        return self.missing + self.surplus + self.different


@dataclass(frozen=True)
class VerifyResult(Document):
    """The outcome of a verification: a verdict on each table."""

    pipeline: str
    verification: str
    tables: tuple[TableVerdict, ...]
    quick: bool = False
    version: int = VERSION

    @property
    def is_failed(self) -> bool:
        """Whether a table differs or could not be verified."""
        return any(verdict.status in ("different", "failed") for verdict in self.tables)

    def with_status(self, status: VerdictStatus) -> list[TableVerdict]:
        """Return the verdicts of that status."""
        return [verdict for verdict in self.tables if verdict.status == status]


def verdict_of(report: TableReport, show_keys: bool, duration_s: float = 0.0, error: str = "") -> TableVerdict:
    """Return the verdict on a table whose report is as far as it is. With an `error` it could not be continued.

    Differences count, whatever else there is.
    """
    totals = report.totals
    found = total(totals.differences)
    open_status: VerdictStatus = "failed" if error else "equal" if report.is_complete else "unfinished"
    ranges = totals.differences[:MOST_RANGES]
    return TableVerdict(
        report.table,
        "different" if found.rows else open_status,
        totals.source_rows,
        totals.state_rows,
        found.missing,
        found.surplus,
        found.different,
        totals.keys_changed,
        report.chunk_count,
        report.next_chunk,
        ranges if show_keys else tuple(replace(place, low=(), high=()) for place in ranges),
        duration_s,
        error,
    )
