"""What the offset store keeps of snapshots between ticks, so that a plan knows without Spark whether there is work.

The truth is in the target; this is a copy for the plan, for `db2cdc status` and for whoever looks at the Variable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.signal.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.snapshot.snapshot import OPEN, snapshots_in_turn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

KEPT_OUTCOMES = 100
"""Of each channel, besides those whose snapshot is under way."""

LOST = "the target knows nothing of its snapshot any more: give the signal again, under another id"


@dataclass(frozen=True)
class TableFailure:
    """A table that failed in the last tick, and why.

    It was `is_rejected` where the plan had left it out; it `waits_for_operator` where a person is to put its offset
    right.
    """

    table: TableId
    error: str
    is_rejected: bool = False
    waits_for_operator: bool = False


@dataclass(frozen=True)
class PipelineSummary:
    """Snapshots that are open or ended last, the newest signals' outcomes, the known ids of the signal table.

    `reported_seq` is how far into the target's journal all this goes, and `notified_seq` how far the channels of
    notifications know of it, None where that is as far. `tables` are those of the last tick, `failures` which of them
    failed. `planned_at_ms` is when the last tick was planned that changed anything of this, `signals_in_flight_at_ms`
    when one was that had signals to act on, and whose result is still to come: 0 if none is.
    """

    snapshots: tuple[SnapshotProgress, ...] = ()
    outcomes: tuple[SignalOutcome, ...] = ()
    handled_signal_ids: tuple[str, ...] = ()
    reported_seq: int = 0
    notified_seq: int | None = None
    tables: tuple[TableId, ...] = ()
    planned_at_ms: int = 0
    signals_in_flight_at_ms: int = 0
    failures: tuple[TableFailure, ...] = ()

    def failure(self, table: TableId) -> TableFailure | None:
        """Return how a table failed in the last tick, None where it did not."""
        return next((one for one in self.failures if one.table == table), None)

    def had_offset(self, table: TableId) -> bool:
        """Whether the last tick has left an offset of a table."""
        return table in self.tables and self.failure(table) is None

    def has_snapshot_work(self, tables: Collection[TableId]) -> bool:
        """Whether a tick of these tables has something to do even without changes.

        An initial snapshot waits for the tables that were taken out of the pipeline; the others let go of them. What
        waits for a paused snapshot has nothing to do.
        """
        paused = {one.id for one in self.snapshots if one.status == "paused"}
        waiting = {table for table, id_ in snapshots_in_turn(self.snapshots).items() if id_ in paused}
        return any(_has_work(one, tables, waiting) for one in self.snapshots if one.status == "running")

    @property
    def initially_loading(self) -> frozenset[TableId]:
        """The tables whose initial snapshot is under way."""
        return frozenset(table for one in self.snapshots if one.kind == "initial" for table in one.open_table_ids)

    @property
    def notified_upto(self) -> int:
        """How far into the journal the channels of notifications know."""
        return self.reported_seq if self.notified_seq is None else self.notified_seq

    def unhandled(self, signals: list[Signal]) -> list[Signal]:
        """Return those of the signal table's rows that no tick has acted on."""
        known = {*self.handled_signal_ids}
        return [signal for signal in signals if signal.id_again not in known]

    def new_failures(self, result: JobResult) -> list[SignalOutcome]:
        """Return the signals that a tick refused or that failed in it; a signal table brings those of before again."""
        known = {(one.channel, one.id): one for one in self.outcomes}
        return [
            one
            for one in result.signals
            if one.status in ("refused", "failed")
            and known.get(name := (one.channel, one.id)) != one
            and not (one.channel == SOURCE_CHANNEL and name not in known and handled_id(one) in self.handled_signal_ids)
        ]

    def updated(self, result: JobResult) -> PipelineSummary:
        """Return the summary after a tick, with `reported_seq` as it was.

        The result of an older plan that is committed again changes nothing.
        A result names every snapshot that is open, so one that it does not name is none of the target's: it was moved
        away, or removed.
        """
        if result.planned_at_ms < self.planned_at_ms:
            return self
        heard = tuple(handled_id(one) for one in result.signals if one.channel == SOURCE_CHANNEL)
        after = replace(
            self,
            snapshots=result.snapshots or tuple(one for one in self.snapshots if one.status not in OPEN),
            outcomes=_newest(self._outcomes(result)),
            # A tick that did not look into the table tells of no row but those that nobody was told of so far.
            handled_signal_ids=self.handled_signal_ids if {*heard} <= {*self.handled_signal_ids} else heard,
            tables=tuple(sorted(line.table for line in result.tables if line.is_replicated)),
            failures=tuple(
                TableFailure(line.table, line.error, line.is_rejected, line.waits_for_operator)
                for line in result.failed
                if line.is_replicated
            ),
            signals_in_flight_at_ms=self.signals_in_flight_at_ms
            if result.planned_at_ms < self.signals_in_flight_at_ms
            else 0,
        )
        return self if after == self else replace(after, planned_at_ms=result.planned_at_ms)

    def _outcomes(self, result: JobResult) -> list[SignalOutcome]:
        """Return the outcomes known after a tick, the newest last; one whose snapshot is lost has failed."""
        named = {(outcome.channel, outcome.id): outcome for outcome in self.outcomes}
        for outcome in result.signals:
            name = (outcome.channel, outcome.id)
            is_row = outcome.channel == SOURCE_CHANNEL
            is_known = named.get(name) == outcome or (
                name not in named and handled_id(outcome) in self.handled_signal_ids
            )
            # A table brings all of its rows each time; what comes again by another channel was asked for again.
            if not (is_row and is_known):
                named.pop(name, None)
                named[name] = outcome
        there = {snapshot.id for snapshot in result.snapshots}
        return [
            replace(one, status="failed", reason=LOST) if one.status == "accepted" and one.id not in there else one
            for one in named.values()
        ]

    def to_json(self) -> str:
        """Return the document that a store keeps."""
        return json.dumps(to_data(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, where: str) -> PipelineSummary:
        """Read the document kept under `where`.

        :raises OffsetError: it is not one of ours.
        """
        try:
            return from_data(cls, json.loads(text))
        except (ValueError, ConfigurationError) as error:
            raise OffsetError(
                f"the summary kept in {where} cannot be read ({type(error).__name__}: {error})",
                "Delete it: the target has the truth, and the next tick that starts Spark writes it anew.",
            ) from error


def handled_id(outcome: SignalOutcome) -> str:
    """Return how a row of the signal table is known: its id, and a digest of what it asks for."""
    mark = f" #{outcome.asked}"
    return outcome.id if outcome.id.endswith(mark) else f"{outcome.id}{mark}"


def _has_work(snapshot: SnapshotProgress, tables: Collection[TableId], waiting: Collection[TableId]) -> bool:
    if snapshot.kind == "initial":
        return any(table in tables for table in snapshot.open_table_ids)
    free = [table not in waiting for table in snapshot.open_table_ids]
    return all(free) if snapshot.kind == "blocking" else any(free)


def _newest(outcomes: list[SignalOutcome]) -> tuple[SignalOutcome, ...]:
    """Return each channel's newest outcomes; a signal table brings all of its rows at every tick.

    One that has its end still to come is kept however old it is: somebody may wait for it.
    """
    kept: list[SignalOutcome] = []
    counts: Counter[str] = Counter()
    for outcome in reversed(outcomes):
        counts[outcome.channel] += outcome.status != "accepted"
        if outcome.status == "accepted" or counts[outcome.channel] <= KEPT_OUTCOMES:
            kept.append(outcome)
    return tuple(reversed(kept))
