"""JobSpec and JobResult: all that Airflow and Spark tell each other, as versioned JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.registration import CapturePosition, CaptureRegistration
from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.event.change_event import KeyChangeDetection
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.signal.signal import Signal, SignalOutcome, SignalTable
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConfigurationError

VERSION = 1
RESULT_MARK = "DB2CDC_RESULT "
PROGRESS_MARK = "DB2CDC "
USER_ENV = "DB2CDC_USER"
PASSWORD_ENV = "DB2CDC_PASSWORD"
ERROR_LOG_ENV = "DB2CDC_ERROR_LOG"
PARENT_PIPE = "parent.pipe"

Isolation = Literal["read_committed", "repeatable_read", "exclusive"]
Watermarking = Literal["read_only", "insert_insert", "insert_delete"]


@dataclass(frozen=True)
class SourceSpec:
    """How Spark reaches the source; user and password travel in the environment, never here.

    `server_name` is Debezium's topic.prefix and stands in every event's source.name.
    """

    jdbc_url: str
    database: str
    server_name: str
    asn_schema: str
    driver: str = "com.ibm.db2.jcc.DB2Driver"


@dataclass(frozen=True)
class ApplySettings:
    """What a pipeline's configuration says about applying.

    `rows_per_read` is how many change rows one JDBC reader takes before another is opened beside it (at most
    `parallel_reads` a table); `high_mark_timeout_s` bounds each wait of a snapshot for capture. A snapshot is
    cut into chunks of `snapshot_chunk_rows`, or of about `snapshot_chunk_bytes` where these are given, of which a
    group is read and published together; none is begun when `snapshot_budget_s` of the tick's time for snapshots is
    over, the next tick goes on. Fetch sizes are the driver's (0: its own choice). `snapshot_on_gap` mends
    a gap by a snapshot, `recover_offsets` a lost offset by what Delta proves. `accept_update_rows` takes the word of
    an update row without a before image for it that the row's key is as it was. Without `streaming` nothing but a
    snapshot pulls a table's changes.
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
    recover_offsets: bool = False
    accept_update_rows: bool = False
    streaming: bool = True


@dataclass(frozen=True)
class TableTask:
    """One table's part of a tick.

    `stored_lsn` is the offset store's LSN, None when it has none, and `batch` the offset's: what the ledger has of the
    table from before is nothing to this tick. Changes go up to `upto`, of which `rows` were counted. A table that
    neither the store nor Delta knows is new: its initial snapshot begins at `upto` at the earliest; with
    `initial_snapshot` False (snapshot.mode no_data), it begins there without one. `restart` treats a known table as
    new. `resnapshot` has a known table snapshotted once its changes are pulled. `select` is what a snapshot reads
    instead of the whole table. `capture_interrupted` says that its registration was found inactive since the offset,
    `source_restored` that the source has another history than was applied: changes are missing. `revision` is the
    offset's.
    """

    schema: TableSchema
    capture: CaptureRegistration
    stored_lsn: Lsn | None
    upto: Lsn
    rows: int
    initial_snapshot: bool = True
    restart: bool = False
    select: str = ""
    batch: int = 0
    resnapshot: bool = False
    capture_interrupted: bool = False
    revision: str = ""
    source_restored: bool = False

    @property
    def misses_changes(self) -> bool:
        """Whether the plan knows that changes since the offset are missing."""
        return self.capture_interrupted or self.source_restored

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.schema.table


@dataclass(frozen=True)
class RejectedTable:
    """A table that the plan had to leave out, and why; it is reported as failed, the others go on.

    It is `is_replicated` where its changes are wanted; the table of signals need not be.
    """

    table: TableId
    error: str
    is_replicated: bool = True


@dataclass(frozen=True)
class JobSpec:
    """The plan of one tick, fixed before it runs: a retry does this very plan.

    `run_id` names the DAG run (or command) that planned it; the same run may come again, another one may not share a
    batch. `plan_id` is this plan's alone, greater than those made before it: by it a retry knows what its first try has
    applied. `planned_at_ms` becomes the events' processing time, so a redo writes the same rows. `reported_seq` is how
    far into the target's journal a commit has told of signals and snapshots, `notified_seq` how far notifications were
    sent. `planned_clock` is the source's clock (YYYY-MM-DD HH:MM:SS.ffffff) once all else of the plan was known; empty
    where it stands before what capture has passed.
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
    planned_clock: str = ""
    version: int = VERSION

    @property
    def source_ahead_ms(self) -> int:
        """By how much the source's local clock, taken for UTC as commit times are, was ahead of the plan's time."""
        source_time = datetime.fromisoformat(self.capture_position.source_time).replace(tzinfo=UTC)
        return int(source_time.timestamp() * 1000) - self.planned_at_ms

    def to_json(self) -> str:
        """Return the spec as one line of JSON; it holds no secrets and no row values."""
        return json.dumps(to_data(self))

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Read a spec.

        :raises ConfigurationError: it was written by another version of this provider, or is damaged.
        """
        return from_data(cls, _versioned(text, "JobSpec"))


Status = Literal["applied", "unchanged", "failed"]


@dataclass(frozen=True)
class TableResult:
    """What Delta holds of one table after the tick.

    `lsn` and `batch` are None when nothing of the table was ever applied, and of one whose offset is missing or ahead
    until a person has acted. Counts are events of this tick by op; `rewound` says that the tick has begun anew with the
    table, before its offset: its source was restored. `commit_lsn` is the newest applied commit, `commit_ts_ms` its
    time; `capture` the digest of the capture identity it stands under; `error` says why a failed table failed and what
    to do; `restart` that the plan knew of a person's wish to begin anew, `reinitialized` that it has done so, for
    whatever reason; `revision` is the offset's, as the plan found it; `is_replicated` is False of a refused table of
    signals; `capture_interrupted` says that the tick itself, behind its plan, has found its registration not active, or
    gone: nobody captured what changed meanwhile; `offset_recovered` that its offset was missing and is what the target
    proves; `is_rejected` that the plan had left it out; `waits_for_operator` that its offset is missing or ahead, until
    a person has acted.
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
    capture_interrupted: bool = False
    offset_recovered: bool = False
    is_rejected: bool = False
    waits_for_operator: bool = False
    duration_s: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class JobResult:
    """The outcome of one tick: a line a table, what became of signals, how far snapshots are, what there is to tell.

    `snapshots` are those that are open, and those that ended since a commit last told of them: what a tick that died
    told nobody is told by the next one. `reported_seq` is how far into the journal this goes, `source_ahead_ms` the
    plan's: so much is to be added to a time of here before commit times are held against it.
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
    version: int = VERSION

    @property
    def failed(self) -> tuple[TableResult, ...]:
        """The tables that failed; all others are committed."""
        return tuple(result for result in self.tables if result.status == "failed")

    def to_json(self) -> str:
        """Return the result as one line of JSON."""
        return json.dumps(to_data(self))

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """Read a result.

        :raises ConfigurationError: it was written by another version of this provider, or is damaged.
        """
        return from_data(cls, _versioned(text, "JobResult"))


def _versioned(text: str, what: str) -> object:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"the {what} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        found = data.get("version") if isinstance(data, dict) else None
        raise ConfigurationError(
            f"the {what} has version {found}, this side speaks {VERSION}",
            "Install the same version of airflow-provider-db2cdc where the DAG and where the job run.",
        )
    return data
