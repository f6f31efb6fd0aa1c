"""The summary of snapshots in the offset store, by which a plan sees without Spark whether there is work.

The target has the original. This copy is for the plan, for `db2cdc status` and for readers of the Variable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.capture.source_clock import SourceClock
from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import OPEN, snapshots_in_turn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

KEPT_OUTCOMES = 100
"""Outcomes kept per channel, not counting those whose snapshot is under way."""

LOST = "the target does not have its snapshot any more: send the signal again, under another id"


@dataclass(frozen=True)
class TableFailure:
    """A table that failed in the last tick, and why.

    `is_rejected`: the plan had left it out. `waits_for_operator`: an operator has to correct its offset.
    """

    table: TableId
    error: str
    is_rejected: bool = False
    waits_for_operator: bool = False


@dataclass(frozen=True)
class PipelineSummary:
    """Snapshots that are open or ended last, outcomes of the newest signals, and known ids of the signal table.

    `reported_seq` is the journal position up to which the summary reports. `notified_seq` is the position up to which
    the notification channels have been notified, None where the two are equal. `tables` are those of the last tick, and
    `failures` those of them that failed, or that a later plan without work rejected.

    `planned_at_ms` is the plan time of the last tick that changed the summary. `signals_in_flight_at_ms` is the plan
    time of a tick that has signals to act on, and whose result is still missing. It is 0 if there is none.

    `newest_batch` is the greatest batch of all results. `plan_revision` is the newest record of plans that it has taken
    in.

    `source_clock` is the last plan's. A pipeline without a time zone would not notice otherwise that the clock was set.
    """

    snapshots: tuple[SnapshotProgress, ...] = ()
    outcomes: tuple[SignalOutcome, ...] = ()
    handled_signal_ids: tuple[str, ...] = ()
    reported_seq: int = 0
    notified_seq: int | None = None
    tables: tuple[TableId, ...] = ()
    planned_at_ms: int = 0
    newest_batch: int = 0
    signals_in_flight_at_ms: int = 0
    failures: tuple[TableFailure, ...] = ()
    source_clock: SourceClock | None = None
    plan_revision: str = ""

    def failure(self, table: TableId) -> TableFailure | None:
        """Return a table's failure in the last tick, None where it did not fail."""
        return next((failure for failure in self.failures if failure.table == table), None)

    def had_offset(self, table: TableId) -> bool:
        """Return whether the last tick left an offset of a table."""
        return table in self.tables and self.failure(table) is None

    def has_snapshot_work(self, tables: Collection[TableId]) -> bool:
        """Return whether a tick of these tables has snapshot work even without changes.

        An initial snapshot waits for tables that were taken out of the pipeline. Other snapshots give such tables up. A
        snapshot that waits for a paused one has no work.
        """
        paused = {snapshot.id for snapshot in self.snapshots if snapshot.status == "paused"}
        waiting = {table for table, id_ in snapshots_in_turn(self.snapshots).items() if id_ in paused}
        return any(_has_work(snapshot, tables, waiting) for snapshot in self.snapshots if snapshot.status == "running")

    @property
    def initially_loading(self) -> frozenset[TableId]:
        """The tables whose initial snapshot is under way."""
        return frozenset(
            table for snapshot in self.snapshots if snapshot.kind == "initial" for table in snapshot.open_table_ids
        )

    @property
    def notified_upto(self) -> int:
        """The journal position up to which the notification channels have been notified."""
        return self.reported_seq if self.notified_seq is None else self.notified_seq

    def unhandled(self, signals: list[Signal]) -> list[Signal]:
        """Return the rows of the signal table that no tick has acted on."""
        known = {*self.handled_signal_ids}
        return [signal for signal in signals if signal.id_again not in known]

    def new_failures(self, result: JobResult) -> list[SignalOutcome]:
        """Return the signals that a tick refused or that failed in it, without repeated rows of the signal table."""
        known = {(outcome.channel, outcome.id): outcome for outcome in self.outcomes}
        return [
            outcome
            for outcome in result.signals
            if outcome.status in ("refused", "failed")
            and known.get(name := (outcome.channel, outcome.id)) != outcome
            and not (
                outcome.channel == SOURCE_CHANNEL
                and name not in known
                and handled_id(outcome) in self.handled_signal_ids
            )
        ]

    def with_rejected(self, errors: Mapping[TableId, str]) -> PipelineSummary:
        """Return the summary after a plan without work, which rejected these tables. There is no tick to report them.

        Tables that the last tick failed to apply are still failed.
        """
        rejected = tuple(TableFailure(table, error, is_rejected=True) for table, error in errors.items())
        applied = tuple(failure for failure in self.failures if not failure.is_rejected and failure.table not in errors)
        return replace(self, failures=(*applied, *rejected))

    def updated(self, result: JobResult) -> PipelineSummary:
        """Return the summary after a tick, with an unchanged `reported_seq`.

        The result of an older plan that is committed again changes only `newest_batch`. So does that of a repair, which
        knows no snapshot and no signal. Any other result names every open snapshot. So an open snapshot that it does
        not name is not in the target: it was moved away, or removed.
        """
        newest = max([self.newest_batch, *(line.batch or 0 for line in result.tables)])
        if result.repair is not None or result.planned_at_ms < self.planned_at_ms:
            return replace(self, newest_batch=newest)
        handled = tuple(handled_id(outcome) for outcome in result.signals if outcome.channel == SOURCE_CHANNEL)
        after = replace(
            self,
            snapshots=result.snapshots or tuple(snapshot for snapshot in self.snapshots if snapshot.status not in OPEN),
            outcomes=_newest(self._outcomes(result)),
            # A tick that did not read the signal table only reports rows that were not reported so far.
            handled_signal_ids=self.handled_signal_ids if {*handled} <= {*self.handled_signal_ids} else handled,
            tables=tuple(sorted(line.table for line in result.tables if line.is_replicated)),
            failures=tuple(
                TableFailure(line.table, line.error, line.is_rejected, line.waits_for_operator)
                for line in result.failed
                if line.is_replicated
            ),
            source_clock=result.source_clock or self.source_clock,
            signals_in_flight_at_ms=self.signals_in_flight_at_ms
            if result.planned_at_ms < self.signals_in_flight_at_ms
            else 0,
        )
        return replace(after, planned_at_ms=result.planned_at_ms, newest_batch=newest)

    def _outcomes(self, result: JobResult) -> list[SignalOutcome]:
        """Return the outcomes known after a tick, the newest last. A signal whose snapshot is lost has failed."""
        named = {(outcome.channel, outcome.id): outcome for outcome in self.outcomes}
        for outcome in result.signals:
            name = (outcome.channel, outcome.id)
            is_row = outcome.channel == SOURCE_CHANNEL
            is_known = named.get(name) == outcome or (
                name not in named and handled_id(outcome) in self.handled_signal_ids
            )
            # A signal table brings all of its rows each time. By another channel a repeated signal is a new request.
            if not (is_row and is_known):
                named.pop(name, None)
                named[name] = outcome
        snapshot_ids = {snapshot.id for snapshot in result.snapshots}
        return [
            replace(outcome, status="failed", reason=LOST)
            if outcome.status == "accepted" and outcome.id not in snapshot_ids
            else outcome
            for outcome in named.values()
        ]

    def to_json(self) -> str:
        """Return the document that a store keeps."""
        return json.dumps(to_data(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, where: str) -> PipelineSummary:
        """Read the document kept under `where`.

        :raises OffsetError: when it is not a summary of this version.
        """
        try:
            return from_data(cls, json.loads(text))
        except (ValueError, ConfigurationError) as error:
            raise OffsetError(
                f"the summary kept in {where} cannot be read ({type(error).__name__}: {error})",
                "Delete it: the target has the truth, and the next tick that starts Spark writes it again.",
            ) from error


def handled_id(outcome: SignalOutcome) -> str:
    """Return the name of a row of the signal table: its id, and a digest of its request."""
    suffix = f" #{outcome.asked}"
    return outcome.id if outcome.id.endswith(suffix) else f"{outcome.id}{suffix}"


def _has_work(snapshot: SnapshotProgress, tables: Collection[TableId], waiting: Collection[TableId]) -> bool:
    if snapshot.kind == "initial":
        return any(table in tables for table in snapshot.open_table_ids)
    free = [table not in waiting for table in snapshot.open_table_ids]
    return all(free) if snapshot.kind == "blocking" else any(free)


def _newest(outcomes: list[SignalOutcome]) -> tuple[SignalOutcome, ...]:
    """Return each channel's newest outcomes. A signal table brings all of its rows at every tick.

    An accepted signal is kept, however old it is: its sender may still wait for the end.
    """
    kept: list[SignalOutcome] = []
    counts: Counter[str] = Counter()
    for outcome in reversed(outcomes):
        counts[outcome.channel] += outcome.status != "accepted"
        if outcome.status == "accepted" or counts[outcome.channel] <= KEPT_OUTCOMES:
            kept.append(outcome)
    return tuple(reversed(kept))
