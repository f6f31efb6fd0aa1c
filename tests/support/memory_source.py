"""A source in memory, with the same port as Db2: tables, change tables, a capture agent and its watermark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.gap import CapturePoint, find_gap, gap_error
from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration, check_state
from airflow_provider_db2cdc.cdc.event.change_event import RowChange
from airflow_provider_db2cdc.cdc.job import TableTask
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.offset.batch_history import PlannedBatch, is_uncounted
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import ChunkRange, TableSnapshot
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema
from airflow_provider_db2cdc.errors import RegistrationError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.ports import Fail, Watermark

IMAGES = 4
Row = tuple[int | None, ...]


def lsn(number: int) -> Lsn:
    """Return the LSN of a commit's number."""
    return Lsn(number.to_bytes(16, "big"))


def number(position: Lsn) -> int:
    """Return the number of an LSN's commit."""
    return int.from_bytes(position.raw, "big")


def schema_of(table: TableId) -> TableSchema:
    """Return the columns that each table has: a key and a value."""
    return TableSchema(table, (Column("ID", "INTEGER", 4, 0, False), Column("A", "INTEGER", 4)), ("ID",))


@dataclass
class MemorySource:
    """Tables of a key and a value, with a number of `commits`. The first `captured` of them are in the change tables.

    While a watermark is awaited, capture advances, as with an agent that is only slow, unless it `is_stalled`. A table
    of `keyless` has only the value, which takes few values: so it has equal rows. The column that a table gains is null
    in older rows, and has the value again in newer ones. Changes up to the commit of `pruned` are no longer in the
    change tables.

    Registrations of `inactive` tables are stopped. `created` has the creation time of each change table that was
    created again. Tables of `locked` cannot be counted. `signals` are the rows of the signal table.
    """

    tables: Sequence[TableId]
    keyless: Collection[TableId] = ()
    rows: dict[TableId, dict[int, int]] = field(default_factory=dict)
    changes: dict[TableId, list[RowChange]] = field(default_factory=dict)
    history: dict[int, dict[TableId, dict[int, int]]] = field(default_factory=dict)
    gained: dict[TableId, set[int]] = field(default_factory=dict)
    pruned: dict[TableId, int] = field(default_factory=dict)
    commits: int = 1
    captured: int = 1
    chunk_rows: int = 3
    cold_start: str = "0"
    key_type: str = "INTEGER"
    is_stalled: bool = False
    inactive: set[TableId] = field(default_factory=set)
    locked: set[TableId] = field(default_factory=set)
    created: dict[TableId, str] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        for table in self.tables:
            self.rows.setdefault(table, {})
            self.changes.setdefault(table, [])
        self.history[self.commits] = {table: {} for table in self.tables}

    def schema(self, table: TableId) -> TableSchema:
        """Return the columns that a table has now."""
        schema = schema_of(table)
        schema = replace(schema, columns=(replace(schema.columns[0], type=self.key_type), *schema.columns[1:]))
        if table in self.gained:
            schema = replace(schema, columns=(*schema.columns, Column("B", "INTEGER", 4)))
        return replace(schema, columns=schema.columns[1:], key=()) if table in self.keyless else schema

    def registration(self, table: TableId) -> CaptureRegistration:
        """Return a table's registration as it is now. Updates are written as D and I."""
        state, floor = "S" if table in self.inactive else "A", self.pruned.get(table)
        identity = CaptureIdentity(
            f"ASN.{table.name}", self.created.get(table, "2026-01-01"), "2025-01-01", self.cold_start
        )
        return CaptureRegistration(
            table, "ASN", table.name, state, "", "DI", None, None if floor is None else lsn(floor), None,
            self.schema(table).columns, identity,
        )  # fmt: skip

    def images(self, table: TableId, commit: int | None = None) -> Counter[Row]:
        """Return how often a table has each row, now or as of a commit."""
        rows = self.rows[table] if commit is None else self.history[commit][table]
        return Counter(self._image(table, key, value) for key, value in rows.items())

    def gain(self, table: TableId) -> None:
        """Add a column to a table and to its change table."""
        with self.lock:
            self.gained[table] = set()
            changes = self.changes[table]
            self.changes[table] = [replace(change, image=(*change.image, None)) for change in changes]  # type: ignore[misc]

    def prune(self, upto: int | None = None) -> None:
        """Delete the change rows of every commit up to this one, by default of all captured ones."""
        with self.lock:
            upto = self.captured if upto is None else upto
            for table in self.tables:
                self.pruned[table] = max(upto, self.pruned.get(table, 0))
                self.changes[table] = [row for row in self.changes[table] if number(row.commit) > upto]

    def commit(self, values: Mapping[tuple[TableId, int], int | None]) -> None:
        """Set the values of keys in one commit. None deletes a key's row."""
        with self.lock:
            self.commits += 1
            for intent, ((table, key), value) in enumerate(values.items()):
                self._change(table, key, value, intent)
            self._remember()

    def load(self, table: TableId, key: int, value: int | None) -> None:
        """Set the value of a key in a commit that is never captured, as LOAD does. None deletes the key's row."""
        with self.lock:
            self.commits += 1
            self.rows[table].pop(key, None)
            if value is not None:
                self.rows[table][key] = value
            self._remember()

    def _remember(self) -> None:
        self.history[self.commits] = {table: dict(rows) for table, rows in self.rows.items()}

    def _change(self, table: TableId, key: int, value: int | None, intent: int) -> None:
        rows = self.rows[table]
        if key in rows:
            self._log(table, 2 * intent, "D", self._image(table, key, rows.pop(key)))
        if value is not None:
            if table in self.gained:
                self.gained[table].add(key)
            self._log(table, 2 * intent + 1, "I", self._image(table, key, value))
            rows[key] = value

    def _log(self, table: TableId, intent: int, op: Literal["D", "I"], image: Row) -> None:
        key = image if table in self.keyless else image[:1]
        self.changes[table].append(RowChange(lsn(self.commits), intent, op, key, image))

    def _image(self, table: TableId, key: int, value: int) -> Row:
        row: Row = (value % IMAGES,) if table in self.keyless else (key, value)
        return (*row, value if key in self.gained[table] else None) if table in self.gained else row

    def capture(self) -> None:
        """Capture every commit."""
        with self.lock:
            self.captured = self.commits

    def captured_changes(self, table: TableId, span: LsnRange) -> list[RowChange]:
        """Return the rows of a table's change table in a range."""
        with self.lock:
            upto = min(number(span.upto), self.captured)
            return [row for row in self.changes[table] if number(span.after) < number(row.commit) <= upto]

    def read(self, table: TableId, low: Sequence[str], high: Sequence[str]) -> list[Row]:
        """Return the rows whose key is after the bound `low` and up to the bound `high`."""
        with self.lock:
            return [
                self._image(table, key, value)
                for key, value in sorted(self.rows[table].items())
                if (not low or key > int(low[0])) and (not high or key <= int(high[0]))
            ]

    @contextmanager
    def connect(self) -> Iterator[MemoryReader]:
        """Open a reader."""
        yield MemoryReader(self)


@dataclass(frozen=True)
class MemoryReader:
    """A reader of a source in memory."""

    source: MemorySource

    @property
    def watermark(self) -> Watermark:
        """The commits that are done."""
        return MemoryWatermark(self.source)

    def capture_lsn(self) -> Lsn | None:
        """Return the newest captured commit."""
        return lsn(self.source.captured)

    def with_row_counts(self, batches: Sequence[PlannedBatch], fail: Fail) -> list[PlannedBatch]:
        """Count the change rows in the batches' ranges, then check that none can have been lost before the count."""
        counted = []
        for planned in batches:
            if not is_uncounted(planned, planned.upto):
                counted.append(planned)
                continue
            rows = len(self.source.captured_changes(planned.table, planned.span))
            if (error := self._count_error(planned)) is None:
                counted.append(replace(planned, rows=rows))
            else:
                fail(planned.table, error)
        return counted

    def _count_error(self, planned: PlannedBatch) -> Exception | None:
        table, now = planned.table, self.source.registration(planned.table)
        if table in self.source.locked:
            return OSError("deadlock or timeout")
        end = CapturePoint(planned.upto, now.identity, now.pruned_upto)
        if gap := find_gap(CapturePoint(planned.after, planned.capture), end):
            return gap_error(table, gap)
        try:
            check_state(now, "ASN")
        except RegistrationError as error:
            return error
        return None

    @failpoint("find_chunk_bounds")
    def find_bounds(self, task: TableTask, table_snapshot: TableSnapshot) -> Sequence[Sequence[str]]:
        """Return the last key of each chunk, except the last one."""
        keys = [] if task.table in self.source.keyless else sorted(self.source.rows[task.table])
        rows = self.source.chunk_rows
        return [(str(key),) for key in keys[rows - 1 : -1 : rows]]

    @failpoint("check_counts")
    def check_counts(
        self, task: TableTask, table_snapshot: TableSnapshot, chunk_range: ChunkRange, window: LsnRange
    ) -> None:
        """Accept every count, because rows are read in one moment."""

    def check_request(self, task: TableTask, table_snapshot: TableSnapshot) -> None:
        """Accept every request."""

    def column_errors(self, tasks: Sequence[TableTask]) -> Mapping[TableId, Exception]:
        """Return nothing, because columns never change."""
        return {}

    def signals(self) -> list[Signal]:
        """Return the rows of the signal table."""
        return [*self.source.signals]


@dataclass(frozen=True)
class MemoryWatermark:
    """Marks are numbers of commits."""

    source: MemorySource

    def low_mark(self, planned: str) -> str:
        """Return the planned commit, or the newest one."""
        return planned or str(self.source.commits)

    def open(self) -> str:
        """Mark nothing."""
        return ""

    def close(self, opened: str) -> str:
        """Return the newest commit."""
        return str(self.source.commits)

    def reached(self, mark: str) -> Lsn | None:
        """Return the capture position after the agent has had its turn, None if it has not passed the mark."""
        with self.source.lock:
            if not self.source.is_stalled:
                self.source.captured = max(self.source.captured, int(mark))
            return lsn(self.source.captured) if self.source.captured >= int(mark) else None
