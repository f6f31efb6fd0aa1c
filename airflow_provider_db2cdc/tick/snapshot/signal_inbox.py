"""Signals as a tick reads them: the tick acts on each signal once, and records its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from airflow_provider_db2cdc.cdc.signal.request import LogMessage, parse
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.heal import healed_tables
from airflow_provider_db2cdc.cdc.snapshot.queue import handle_signal, refuse_signal
from airflow_provider_db2cdc.cdc.snapshot.table_snapshot import TableSnapshot
from airflow_provider_db2cdc.errors import SignalError
from airflow_provider_db2cdc.failpoint import failpoint
from airflow_provider_db2cdc.tick.log import describe, log_progress, now_ms
from airflow_provider_db2cdc.tick.ports import SourceReader
from airflow_provider_db2cdc.tick.snapshot.journal_writer import JournalWriter
from airflow_provider_db2cdc.tick.snapshot.shared_queue import LockedSnapshotQueue
from airflow_provider_db2cdc.tick.tick import Tick

BEFORE_THE_FIRST = SignalError(
    "it was given before the pipeline's first tick", "Give it again, under another id, if it is meant."
)


class SignalInbox:
    """Act on the signals of one tick."""

    def __init__(self, tick: Tick, queue: LockedSnapshotQueue, writer: JournalWriter) -> None:
        self.tick = tick
        self.queue = queue
        self.writer = writer

    @failpoint("read_signals")
    def handle(self, signals: Sequence[Signal], reader: SourceReader, begun: bool = False) -> None:
        """Act on signals that are not known yet, and record the outcome of each signal.

        `begun` says that this tick has worked on a group before. So a new row of the signal table is younger than the
        pipeline, even in its first tick.
        """
        for signal in signals:
            known = self.queue.queue.known_outcome(signal)
            answer = known or self._act(signal, reader, begun)
            # The signal table returns all of its rows each time. Repeated signals would fill the log.
            if known is None or signal.channel != SOURCE_CHANNEL:
                name = f"channel={signal.channel} id={answer.id} type={signal.type}"
                log_progress(f"signal: {name} {'came again: ' if known else ''}{answer.status} {answer.reason}")
                self.writer.collect_notifications()
            current = self.queue.queue.outcomes[signal.channel, signal.id]
            self.writer.record_outcomes((current, answer))
        # A request that was planned may have been refused, and a heal may have been stopped.
        self.tick.healed = healed_tables(self.queue.queue)

    def _act(self, signal: Signal, reader: SourceReader, begun: bool) -> SignalOutcome:
        if self._predates_pipeline(signal, begun):
            return self.queue.update(lambda queue: refuse_signal(queue, signal, BEFORE_THE_FIRST))
        refused = {rejected.table: rejected.error for rejected in self.tick.spec.rejected if rejected.is_replicated}
        tables, check = {**refused, **dict.fromkeys(self.tick.tasks, "")}, partial(self._check, reader)
        outcome = self.queue.update(lambda queue: handle_signal(queue, signal, tables, check, now_ms()))
        if outcome.status == "done":
            self._log(signal)
        return outcome

    def _predates_pipeline(self, signal: Signal, begun: bool) -> bool:
        """Return whether a signal was given before the pipeline's first plan.

        Rows of the signal table have no time. They count as older if the first tick finds them before its first group.
        """
        is_old = signal.at_ms is not None and signal.at_ms < self._first_planned_at_ms
        return self.writer.is_first_tick and not begun if signal.channel == SOURCE_CHANNEL else is_old

    @cached_property
    def _first_planned_at_ms(self) -> int:
        return self.tick.context.batch_log.first_planned_at_ms() or self.tick.spec.planned_at_ms

    def _log(self, signal: Signal) -> None:
        request = parse(signal)
        if isinstance(request, LogMessage):
            offsets = ", ".join(f"{table} {last.upto}" for table, last in sorted(self.tick.positions.last.items()))
            log_progress(f"signal {signal.id}: {request.message.replace('{}', offsets)}")

    def _check(self, reader: SourceReader, table_snapshot: TableSnapshot) -> None:
        try:
            reader.check_request(self.tick.tasks[table_snapshot.table], table_snapshot)
        except SignalError:
            raise
        except Exception as error:
            raise SignalError(
                f"{table_snapshot.table} could not be checked at the source: {describe(error)}",
                "Give the signal again, under another id.",
            ) from error
