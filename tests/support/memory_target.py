"""A target in memory, with the same ports as Delta: batch log, change logs and states."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from threading import RLock

from airflow_provider_db2cdc.cdc.event.change_event import Event
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.maintenance.retention import LogHorizon
from airflow_provider_db2cdc.cdc.offset.batch_history import AppliedBatch, BatchHistory, PlannedBatch, build_history
from airflow_provider_db2cdc.cdc.table import TableId, TableSchema
from airflow_provider_db2cdc.errors import ConcurrentRunError, TargetError
from airflow_provider_db2cdc.failpoint import failpoint
from support.memory_source import Row, row_of, wide

Logged = tuple[int, str, Event]
"""An event of the change log: its batch, the step that wrote it, and the event."""

State = dict[Hashable, tuple[Row, int]]
"""The rows of a current state by key, each with the batch that wrote it. Without a key, equal rows are numbered."""


def widened(event: Event, width: int) -> Event:
    """Return an event with nulls in the columns that its table has gained."""
    before, after = (None if row is None else wide(row_of(row), width) for row in (event.before, event.after))
    return replace(event, before=before, after=after)


@dataclass
class MemoryTarget:
    """What outlives a tick.

    `versions` are Delta's transaction ids: of each table and step the newest batch that was written. `commits` are the
    versions of a state: whether the pipeline wrote it.
    """

    log: dict[TableId, list[Logged]] = field(default_factory=dict)
    state: dict[TableId, State] = field(default_factory=dict)
    commits: dict[TableId, list[bool]] = field(default_factory=dict)
    schemas: dict[TableId, TableSchema] = field(default_factory=dict)
    versions: dict[tuple[TableId, str], int] = field(default_factory=dict)
    fences: dict[TableId, int] = field(default_factory=dict)
    excluded: dict[TableId, int] = field(default_factory=dict)
    horizons: dict[TableId, LogHorizon] = field(default_factory=dict)
    planned: list[PlannedBatch] = field(default_factory=list)
    applied: list[AppliedBatch] = field(default_factory=list)
    manifest: list[Lsn] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def copy(self) -> MemoryTarget:
        """Return a copy, as a backup makes one."""
        return MemoryTarget(**{name: deepcopy(value) for name, value in vars(self).items() if name != "lock"})

    def once(
        self, table: TableId, step: str, batch: int, write: Callable[[], None], is_abandoned: bool = False
    ) -> bool:
        """Write under a transaction id; return False where this version of it, or a later one, was written before.

        :raises TargetError: the batch was abandoned, and the caller does not know that.
        """
        with self.lock:
            if batch <= self.fences.get(table, 0) and not is_abandoned:
                raise TargetError(f"{table}: a later plan has given up batch {batch}")
            if batch <= self.versions.get((table, step), 0):
                return False
            write()
            self.versions[table, step] = batch
            return True

    def put_rows(self, table: TableId, rows: Mapping[Hashable, tuple[Row, int] | None], is_own: bool = True) -> None:
        """Set or delete rows of a state, as one new version of it. Columns that a row lacks are null."""
        if not rows:
            return
        with self.lock:
            width = len(self.schemas[table].columns)
            self.commits[table].append(is_own)
            for key, row in rows.items():
                self.state[table].pop(key, None)
                if row is not None:
                    self.state[table][key] = wide(row[0], width), row[1]

    def widen(self, schema: TableSchema) -> None:
        """Take over the columns of a table. Rows and events that are there have nulls in those that it gained."""
        table, width = schema.table, len(schema.columns)
        is_wider = table in self.schemas and width > len(self.schemas[table].columns)
        self.schemas[table] = schema
        if is_wider:
            self.put_rows(table, {**self.state[table]})
            log = self.log[table]
            log[:] = [(batch, step, widened(event, width)) for batch, step, event in log]

    def is_applied(self, table: TableId, batch: int) -> bool:
        """Return whether a run has recorded a batch as applied."""
        return any((applied.table, applied.batch) == (table, batch) for applied in self.applied)

    def check_foreign(self, table: TableId, since: int, accepts: bool = False) -> bool:
        """Return whether another writer wrote a state after one of its versions, if that is accepted.

        :raises TargetError: another writer has, and it is not accepted.
        """
        is_changed = not all(self.commits[table][since:])
        if is_changed and not accepts:
            raise TargetError(f"{table}: somebody else has changed its current state", "Heal the table. Or restart it.")
        return is_changed


@dataclass(frozen=True)
class MemoryBatchLog:
    """A batch log in memory."""

    target: MemoryTarget

    @failpoint("read_history")
    def history(self, since: Mapping[TableId, int]) -> BatchHistory:
        """Return all batches. More than requested does no harm."""
        with self.target.lock:
            return build_history(self.target.planned, self.target.applied)

    def optimize(self, before: int, batch: int) -> None:
        """Do nothing, because memory has no small files."""

    @failpoint("plan_batch")
    def plan(self, batches: Sequence[PlannedBatch]) -> None:
        """Write planned batches. The first writer of a number wins."""
        with self.target.lock:
            if any(planned.batch == batches[0].batch for planned in self.target.planned):
                raise ConcurrentRunError(f"batch {batches[0].batch} was planned by another run")
            self.target.planned += batches

    @failpoint("commit_batch")
    def commit(self, applied: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write applied batches."""
        with self.target.lock:
            self.target.applied += applied

    @failpoint("publish_manifest")
    def write_manifest(self, batch: int, frontier: Lsn, applied: Sequence[AppliedBatch], at_ms: int) -> None:
        """Write the frontier."""
        self.target.manifest.append(frontier)

    def first_planned_at_ms(self) -> int:
        """Return when the first batch was planned."""
        return min((planned.planned_at_ms for planned in self.target.planned), default=0)
