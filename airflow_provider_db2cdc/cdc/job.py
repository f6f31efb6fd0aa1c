"""JobSpec and JobResult: the versioned JSON documents that Airflow and Spark exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.interval import DataInterval, EndAt
from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.cdc.document import VERSION, Document
from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.repair.repair import Findings, Repair, RepairOrder
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, SignalTable
from airflow_provider_db2cdc.cdc.snapshot.mode import GapRepair
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.table import RejectedTable, TableId, TableSchema

SHORT_ROWS = 200_000

Isolation = Literal["read_committed", "repeatable_read", "exclusive"]
Watermarking = Literal["read_only", "insert_insert", "insert_delete"]
TableAction = Literal["pull", "initial_snapshot", "start_without_snapshot", "restart", "restore", "resnapshot"]
LOADING: frozenset[TableAction] = frozenset({"initial_snapshot", "restart"})
"""The actions that begin a table with a snapshot."""


@dataclass(frozen=True)
class SourceSpec:
    """How Spark reaches the source.

    User and password travel in the environment, never here. `server_name` is Debezium's topic.prefix. Every event has
    it as source.name.
    """

    jdbc_url: str
    database: str
    server_name: str
    asn_schema: str
    driver: str = "com.ibm.db2.jcc.DB2Driver"


@dataclass(frozen=True)
class ApplySettings:
    """The settings of a pipeline that concern the applying of changes.

    One JDBC reader takes `rows_per_read` change rows. For more rows further readers are opened, at most
    `parallel_reads` a table. `high_mark_timeout_s` bounds each wait of a snapshot for capture.

    A snapshot is cut into chunks of `snapshot_chunk_rows`, or of about `snapshot_chunk_bytes` where these are given.
    The chunks of a group are read and published together. A tick begins no group once it has used `snapshot_budget_s`
    on snapshots. The next tick continues.

    A fetch size of 0 leaves the choice to the driver. `snapshot_on_gap` repairs a gap by a snapshot, which is a heal
    under that `gap_repair`. `recover_offsets` replaces a lost offset by the one that Delta has committed.

    `accept_update_rows` trusts an update row without a before image: the row's key is then taken as unchanged. Without
    `streaming` only a snapshot pulls a table's changes. Changes `end_at` the capture position (`fence`) or at the end
    of the run's data interval (`interval`). `deletion_vectors` is None where existing tables stay as is.
    `shared_mount`: a local path of the target is the same place on all machines of a cluster.
    """

    tombstones: bool = True
    key_change_detection: KeyChangeDetection = "adjacent"
    parallel_tables: int = 4
    parallel_reads: int = 8
    rows_per_read: int = 50_000
    snapshot_chunk_rows: int = 200_000
    snapshot_chunk_bytes: int | None = None
    snapshot_group_chunks: int | None = None
    snapshot_budget_s: float = 900.0
    watermarking: Watermarking = "read_only"
    high_mark_timeout_s: float = 600.0
    snapshot_isolation: Isolation = "read_committed"
    snapshot_fetch_rows: int = 10_000
    query_fetch_rows: int = 10_000
    snapshot_on_gap: bool = False
    gap_repair: GapRepair = "snapshot"
    recover_offsets: bool = False
    accept_update_rows: bool = False
    streaming: bool = True
    end_at: EndAt = "fence"
    deletion_vectors: bool | None = None
    shared_mount: bool = False


@dataclass(frozen=True)
class TableTask:
    """The work of one tick on one table.

    `stored_lsn` is the LSN in the offset store, None when it has none. `batch` is the offset's: earlier batches in the
    batch log do not concern this tick. `revision` is the offset's too.

    Changes go up to `upto`. Of those, `rows` were counted. A table is new if neither the store nor Delta knows it.

    The `action` `pull` only pulls the changes. A new table begins at `upto`: with a snapshot (`initial_snapshot`), or
    under snapshot.mode no_data with `start_without_snapshot`. `restart` treats a known table as new. `restore`
    pulls the changes after the position that the target has committed, and has no `stored_lsn`. `resnapshot` has a
    known table snapshotted once its changes are pulled.

    `select` is what a snapshot reads instead of the whole table.

    `capture_interrupted`: the registration was found inactive since the offset. `source_restored`: the source has
    another history than the applied one. In both cases changes are missing.

    `source_rows` is about how many rows a snapshot will read, None if they are many or unknown.
    """

    schema: TableSchema
    capture: CaptureRegistration
    stored_lsn: Lsn | None
    upto: Lsn
    rows: int
    action: TableAction = "pull"
    select: str = ""
    batch: int = 0
    capture_interrupted: bool = False
    revision: str = ""
    source_restored: bool = False
    source_rows: int | None = None

    @property
    def misses_changes(self) -> bool:
        """Whether the plan knows that changes since the offset are missing."""
        return self.capture_interrupted or self.source_restored

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.schema.table


@dataclass(frozen=True)
class JobSpec(Document):
    """The plan of one tick, fixed before it runs: a retry executes the same plan.

    `run_id` names the DAG run or command that planned it. The same run may come again. Two runs may not share a batch.
    `plan_id` is unique to this plan and greater than those of earlier plans. By it a retry recognises what the first
    try has applied.

    `newest_batch` is the greatest batch of all committed results. New batches have greater numbers, also in an older
    copy of the target.

    `planned_at_ms` becomes the events' processing time, so a repeated plan writes the same rows. `reported_seq` is the
    journal position up to which commits have reported signals and snapshots. `notified_seq` is the position up to which
    notifications were sent.

    `planned_clock` is the source's clock (YYYY-MM-DD HH:MM:SS.ffffff) once all else of the plan was known. It is empty
    where the clock stands before the time that capture has passed. `source_clock` turns commit times into UTC.

    `interval` is the run's data interval, if the tick ends there. No table is pulled beyond `interval_end`, the last
    commit in it. If that is None, only snapshots pull changes. With a `repair` the job pulls nothing and reads no
    snapshot.
    """

    pipeline: str
    run_id: str
    plan_id: str
    planned_at_ms: int
    target: str
    source: SourceSpec
    capture_position: CapturePosition
    tables: tuple[TableTask, ...]
    settings: ApplySettings = field(default_factory=ApplySettings)
    rejected: tuple[RejectedTable, ...] = ()
    signals: tuple[Signal, ...] = ()
    signal_table: SignalTable | None = None
    reported_seq: int = 0
    notified_seq: int = 0
    newest_batch: int = 0
    planned_clock: str = ""
    source_clock: SourceClock = field(default_factory=SourceClock)
    interval: DataInterval | None = None
    interval_end: Lsn | None = None
    repair: RepairOrder | None = None
    version: int = VERSION

    @property
    def script(self) -> str:
        """The name of the entry script that does it."""
        return "apply"

    @property
    def is_short(self) -> bool:
        """Whether good compilation does not pay: there are few changes, and initial snapshots only of small tables."""
        is_loading = any(task.action in LOADING and task.source_rows is None for task in self.tables)
        return not is_loading and sum(task.rows for task in self.tables) <= SHORT_ROWS

    @property
    def source_ahead_ms(self) -> int:
        """Milliseconds by which the source's clock was ahead of the plan's, both in UTC."""
        source_time = self.capture_position.source_utc.replace(tzinfo=UTC)
        return int(source_time.timestamp() * 1000) - self.planned_at_ms

    def read_result(self, text: str) -> JobResult:
        """Return the result of this job from its JSON."""
        return JobResult.from_json(text)


Status = Literal["applied", "unchanged", "failed"]


@dataclass(frozen=True)
class TableResult:
    """What Delta holds of one table after the tick.

    `lsn` and `batch` are None when nothing of the table was ever applied. They are also None while an offset is missing
    or ahead and waits for an operator. Counts are events of this tick by op. `commit_lsn` is the newest applied commit,
    and `commit_ts_ms` its time.

    `capture` is the digest of the capture identity at the offset. `revision` is the offset's, as the plan found it.
    `log_id` is the Delta id of the change log. `error` says why a failed table failed and what to do.

    `rewound`: the tick started the table again before its offset, because its source was restored. `restart`: the plan
    found an operator's request to start again. `reinitialized`: the tick has started the table again, for whatever
    reason.

    `has_unreported`: the result also counts batches that an earlier tick applied, and that the offset does not know.
    `capture_interrupted`: after its plan, the tick found the registration inactive or gone. Changes of that time were
    not captured. `offset_recovered`: the offset was missing and is now the one that the target has committed.

    `is_replicated` is False for a refused signal table. `is_rejected`: the plan had excluded the table.
    `waits_for_operator`: the offset is missing or ahead until an operator has acted. `repair` is what a repair found.
    """

    table: TableId
    status: Status
    lsn: Lsn | None = None
    batch: int | None = None
    after: Lsn | None = None
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    reads: int = 0
    rows: int | None = None
    commit_lsn: Lsn | None = None
    commit_ts_ms: int | None = None
    state_version: int | None = None
    capture: str = ""
    rewound: bool = False
    restart: bool = False
    reinitialized: bool = False
    is_replicated: bool = True
    revision: str = ""
    has_unreported: bool = False
    capture_interrupted: bool = False
    offset_recovered: bool = False
    is_rejected: bool = False
    waits_for_operator: bool = False
    duration_s: float = 0.0
    log_id: str = ""
    error: str = ""
    repair: Findings | None = None


@dataclass(frozen=True)
class JobResult(Document):
    """The outcome of one tick: a result per table, outcomes of signals, progress of snapshots, notifications.

    `snapshots` are the open ones, and those that ended since the last commit that reported them. So the next tick
    reports what a tick that died has not reported. `reported_seq` is the journal position up to which this result
    reports.

    `source_ahead_ms`, `source_clock` and `interval` are the plan's. The first is to be added to a time of this machine
    before that is compared with commit times.

    The result of a `repair` moves no offset.
    """

    pipeline: str
    run_id: str
    tables: tuple[TableResult, ...]
    signals: tuple[SignalOutcome, ...] = ()
    snapshots: tuple[SnapshotProgress, ...] = ()
    notifications: tuple[Notification, ...] = ()
    reported_seq: int = 0
    planned_at_ms: int = 0
    source_ahead_ms: int = 0
    source_clock: SourceClock | None = None
    interval: DataInterval | None = None
    repair: Repair | None = None
    version: int = VERSION

    @property
    def failed(self) -> tuple[TableResult, ...]:
        """The tables that failed. All others are committed."""
        return tuple(result for result in self.tables if result.status == "failed")

    @property
    def is_failed(self) -> bool:
        """Whether a table failed."""
        return bool(self.failed)

    @property
    def is_to_report(self) -> bool:
        """Whether it has more to report than offsets: a failed table, the outcome of a signal, or a notification."""
        return bool(self.failed or self.signals or self.notifications)
