"""A journal in memory. Its rows have a kind, an id and a value, and the newest row of each id counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import Notification
from airflow_provider_db2cdc.cdc.snapshot.queue import SnapshotQueue
from airflow_provider_db2cdc.cdc.snapshot.snapshot import Snapshot
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConcurrentRunError
from airflow_provider_db2cdc.failpoint import failpoint


@dataclass
class JournalRows:
    """What outlives a tick: kind, id and value of each row. A row's number is its place in the list."""

    rows: list[tuple[str, Any, Any]] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def copy(self) -> JournalRows:
        """Return a copy, as a backup makes one."""
        return JournalRows([*self.rows])


@dataclass(frozen=True)
class MemoryUnreported:
    """What no tick has reported."""

    outcomes: tuple[SignalOutcome, ...] = ()
    notifications: tuple[Notification, ...] = ()


@dataclass
class MemoryJournal:
    """One run's view of the journal."""

    kept: JournalRows
    seq: int = 0
    unreported: MemoryUnreported = field(default_factory=MemoryUnreported)
    skipped: set[TableId] = field(default_factory=set)

    @failpoint("read_journal")
    def read(self, reported_seq: int, notified_seq: int) -> SnapshotQueue:
        """Return the current queue, and set `unreported` and `skipped`."""
        rows = list(enumerate(self.kept.rows, 1))
        self.seq = len(rows)
        newest = {(kind, id_): (seq, value) for seq, (kind, id_, value) in rows}
        outcomes = {id_: value for (kind, id_), (_, value) in newest.items() if kind == "signal"}
        self.unreported = MemoryUnreported(
            tuple(value for (kind, _), (seq, value) in newest.items() if kind == "signal" and seq > reported_seq),
            tuple(value for seq, (kind, _, value) in rows if kind == "notification" and seq > notified_seq),
        )
        self.skipped = {value for kind, _, value in self.kept.rows if kind == "skipped"}
        known = [(seq, value) for (kind, _), (seq, value) in newest.items() if kind == "snapshot"]
        shown = [one for seq, one in known if one.is_open or seq > reported_seq]
        closed = frozenset(one.id for _, one in known if one not in shown)
        begun = frozenset(part.table for _, one in known if one.kind == "initial" for part in one.tables)
        ordered = sorted(shown, key=lambda one: (one.started_at_ms, one.id))
        return SnapshotQueue(tuple(ordered), outcomes, closed, begun)

    @failpoint("write_journal")
    def write(
        self,
        snapshots: Sequence[Snapshot],
        outcomes: Sequence[SignalOutcome],
        notifications: Sequence[Notification],
        skipped: Sequence[TableId],
        at_ms: int,
    ) -> None:
        """Append rows. Of several writers after the same row the first one wins."""
        rows: list[tuple[str, Any, Any]] = [("snapshot", one.id, one) for one in snapshots]
        rows += [("signal", (one.channel, one.id), one) for one in outcomes]
        rows += [("notification", one.id, one) for one in notifications]
        rows += [("skipped", table, table) for table in skipped]
        with self.kept.lock:
            if rows and self.seq != len(self.kept.rows):
                raise ConcurrentRunError("another run wrote to the journal at the same moment")
            self.kept.rows += rows
            self.seq = len(self.kept.rows)
        self.skipped |= {*skipped}
