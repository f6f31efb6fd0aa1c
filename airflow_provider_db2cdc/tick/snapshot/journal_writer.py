"""What a tick writes into the journal, when it writes, and what it reports."""

from __future__ import annotations

import time
from collections.abc import Iterable

from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.notification import notifications
from airflow_provider_db2cdc.cdc.snapshot.queue import close_finished
from airflow_provider_db2cdc.cdc.snapshot.snapshot import without_progress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.tick.log import now_ms
from airflow_provider_db2cdc.tick.ports import Journal
from airflow_provider_db2cdc.tick.snapshot.shared_queue import LockedSnapshotQueue

WRITE_EVERY_S = 30.0


class JournalWriter:
    """Write the queue's changes into the journal, and collect outcomes and notifications for the result.

    `known` is the queue as the journal has it. `noted` is the queue as of the last collection of notifications.
    `skipped` are the tables that the next write records as begun without a snapshot.
    """

    def __init__(self, journal: Journal, queue: LockedSnapshotQueue) -> None:
        self.journal = journal
        self.queue = queue
        self.is_first_tick = not journal.seq
        self.known = self.noted = queue.queue
        self.outcomes = {(outcome.channel, outcome.id): outcome for outcome in journal.unreported.outcomes}
        self.notifications = [*journal.unreported.notifications]
        self.skipped: list[TableId] = []
        self.written, self.written_at = len(self.notifications), time.monotonic()

    def record_outcomes(self, outcomes: Iterable[SignalOutcome]) -> None:
        """Record the outcomes of a signal, as the newest ones."""
        for outcome in outcomes:
            self.outcomes.pop((outcome.channel, outcome.id), None)
            self.outcomes[outcome.channel, outcome.id] = outcome

    def write_if_due(self) -> None:
        """Write the changes if a crash must not lose them, or if the last write was more than `WRITE_EVERY_S` ago.

        Only the progress of tables may be lost, because the batch log shows it too.
        """
        known = [*map(without_progress, self.known.snapshots)]
        is_progress = [*map(without_progress, self.queue.queue.snapshots)] == known
        has_known_outcomes = self.queue.queue.outcomes == self.known.outcomes
        if not (is_progress and has_known_outcomes) or time.monotonic() - self.written_at > WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the changes since the last write, and the notifications that were collected meanwhile."""
        for outcome in self.queue.update(close_finished):
            self.outcomes[outcome.channel, outcome.id] = outcome
        self.collect_notifications()
        now, known = self.noted, self.known
        before = {snapshot.id: snapshot for snapshot in known.snapshots}
        changed = [snapshot for snapshot in now.snapshots if before.get(snapshot.id) != snapshot]
        outcomes = [outcome for name, outcome in now.outcomes.items() if known.outcomes.get(name) != outcome]
        self.journal.write(changed, outcomes, self.notifications[self.written :], self.skipped, now_ms())
        self.known, self.written, self.written_at = now, len(self.notifications), time.monotonic()
        self.skipped = []

    def collect_notifications(self) -> None:
        """Collect notifications about the changes of snapshots since the last collection."""
        before = {snapshot.id: snapshot for snapshot in self.noted.snapshots}
        self.noted, at_ms = self.queue.queue, now_ms()
        for snapshot in self.noted.snapshots:
            if before.get(snapshot.id) != snapshot:
                self.notifications += notifications(before.get(snapshot.id), snapshot, at_ms)
