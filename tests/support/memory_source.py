"""A source in memory, with the same port as Db2: tables, change tables, a capture agent and its watermark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Literal

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration
from airflow_provider_db2cdc.cdc.event.change_event import RowChange
from airflow_provider_db2cdc.cdc.lsn import Lsn, LsnRange
from airflow_provider_db2cdc.cdc.signal.signal import Signal
from airflow_provider_db2cdc.cdc.table import Column, TableId, TableSchema

IMAGES = 4
Row = tuple[int | None, ...]


def lsn(number: int) -> Lsn:
    """Return the LSN of a commit's number."""
    return Lsn(number.to_bytes(16, "big"))


def number(position: Lsn) -> int:
    """Return the number of an LSN's commit."""
    return int.from_bytes(position.raw, "big")


def row_of(image: Hashable) -> Row:
    """Return an image as what it is here: a row."""
    assert isinstance(image, tuple)
    return image


def wide(row: Row, width: int) -> Row:
    """Return a row with nulls in the columns that its table has gained."""
    return (*row, *(None,) * (width - len(row)))


def in_columns(schema: TableSchema, rows: Iterable[Row]) -> list[Row]:
    """Return rows with the columns of a schema only, as a query returns them."""
    return [row[: len(schema.columns)] for row in rows]


def changes_in_columns(schema: TableSchema, changes: Iterable[RowChange]) -> list[RowChange]:
    """Return change rows with the columns of a schema only."""
    return [replace(change, image=row_of(change.image)[: len(schema.columns)]) for change in changes]


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
    history: dict[int, dict[TableId, tuple[dict[int, int], set[int]]]] = field(default_factory=dict)
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
        self._remember()

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
        rows, gained = (self.rows[table], self.gained.get(table)) if commit is None else self.history[commit][table]
        return Counter(self._image(table, key, value, gained) for key, value in rows.items())

    def widened(self, table: TableId, images: Counter[Row]) -> Counter[Row]:
        """Return rows with nulls in the columns that the table has gained since."""
        width = len(self.schema(table).columns)
        return Counter({wide(row, width): count for row, count in images.items()})

    def gain(self, table: TableId) -> None:
        """Add a column to a table and to its change table, once."""
        if table in self.gained:
            return
        with self.lock:
            self.gained[table] = set()
            changes = self.changes[table]
            self.changes[table] = [replace(change, image=(*row_of(change.image), None)) for change in changes]

    def prune(self, upto: int | None = None) -> None:
        """Delete the change rows of every commit up to this one, by default of all captured ones."""
        with self.lock:
            upto = self.captured if upto is None else upto
            for table in self.tables:
                self.pruned[table] = max(upto, self.pruned.get(table, 0))
                self.changes[table] = [row for row in self.changes[table] if number(row.commit) > upto]

    def restore(self, commit: int) -> None:
        """Go back to a commit, as a restore of an older backup does. The commits after it are given again."""
        with self.lock:
            self.commits, self.captured = commit, min(commit, self.captured)
            self.history = {at: rows for at, rows in self.history.items() if at <= commit}
            self.pruned = {table: min(commit, upto) for table, upto in self.pruned.items()}
            for table in self.tables:
                rows, gained = self.history[commit][table]
                self.rows[table] = {**rows}
                self.gained |= {table: {*gained}} if table in self.gained else {}
                self.changes[table] = [row for row in self.changes[table] if number(row.commit) <= commit]

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
        self.history[self.commits] = {
            table: ({**rows}, {*self.gained.get(table, ())}) for table, rows in self.rows.items()
        }

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

    def _image(self, table: TableId, key: int, value: int, gained: Collection[int] | None = None) -> Row:
        row: Row = (value % IMAGES,) if table in self.keyless else (key, value)
        gained = self.gained.get(table) if gained is None else gained
        return (*row, value if key in (gained or ()) else None) if table in self.gained else row

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
