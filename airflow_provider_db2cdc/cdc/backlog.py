"""What the offset store keeps of snapshots between ticks, so that a plan knows without Spark whether there is work.

The truth is in the target; this is a copy for the plan, for `db2cdc status` and for whoever looks at the Variable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.codec import from_data, to_data
from airflow_provider_db2cdc.cdc.job import JobResult
from airflow_provider_db2cdc.cdc.progress import SnapshotProgress
from airflow_provider_db2cdc.cdc.signal import SOURCE_CHANNEL, Signal, SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot import OPEN, OPEN_PARTS
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError

KEPT_OUTCOMES = 100
"""Of each channel."""


@dataclass(frozen=True)
class Backlog:
    """Snapshots that are open or ended last, the newest signals' outcomes, the known ids of the signal table.

    `told` is how far into the target's journal all this goes, `tables` are those of the last tick.
    """

    snapshots: tuple[SnapshotProgress, ...] = ()
    outcomes: tuple[SignalOutcome, ...] = ()
    heard: tuple[str, ...] = ()
    told: int = 0
    tables: tuple[TableId, ...] = ()

    def running(self, tables: Collection[TableId]) -> bool:
        """Whether a tick of these tables has something to do even without changes.

        An initial snapshot waits for the tables that were taken out of the pipeline; the others let go of them.
        """
        running = [one for one in self.snapshots if one.status == "running"]
        return any(one.kind != "initial" or any(table in tables for table in _open_tables(one)) for one in running)

    @property
    def filling(self) -> frozenset[TableId]:
        """The tables whose initial snapshot is under way."""
        initial = [one for one in self.snapshots if one.kind == "initial" and one.status in OPEN]
        return frozenset(table for one in initial for table in _open_tables(one))

    def unheard(self, signals: list[Signal]) -> list[Signal]:
        """Return those of the signal table's rows that no tick has acted on."""
        known = {*self.heard}
        return [signal for signal in signals if signal.id not in known]

    def after(self, result: JobResult) -> Backlog:
        """Return the backlog after a tick: what it did not speak of is as it was, `told` included."""
        told = {snapshot.id for snapshot in result.snapshots}
        still = [snapshot for snapshot in self.snapshots if snapshot.id not in told and snapshot.status in OPEN]
        heard = [outcome.id for outcome in result.signals if outcome.channel == SOURCE_CHANNEL]
        named = {(outcome.channel, outcome.id): outcome for outcome in self.outcomes}
        for outcome in result.signals:
            name = (outcome.channel, outcome.id)
            if named.get(name) != outcome:
                named.pop(name, None)
                named[name] = outcome
        return Backlog(
            snapshots=(*still, *result.snapshots) if result.snapshots or still else self.snapshots,
            outcomes=_newest(list(named.values())),
            heard=tuple(heard) if heard else self.heard,
            told=self.told,
            tables=tuple(sorted(line.table for line in result.tables)),
        )

    def to_json(self) -> str:
        """Return the document that a store keeps."""
        return json.dumps(to_data(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, where: str) -> Backlog:
        """Read the document kept under `where`.

        :raises OffsetError: it is not one of ours.
        """
        try:
            return from_data(cls, json.loads(text))
        except (ValueError, ConfigurationError) as error:
            raise OffsetError(
                f"the backlog kept in {where} cannot be read ({type(error).__name__}: {error})",
                "Delete it: the target has the truth, and the next tick that starts Spark writes it anew.",
            ) from error


def _open_tables(snapshot: SnapshotProgress) -> list[TableId]:
    return [part.table for part in snapshot.parts if part.status in OPEN_PARTS]


def _newest(outcomes: list[SignalOutcome]) -> tuple[SignalOutcome, ...]:
    """Return each channel's newest outcomes; a signal table brings all of its rows at every tick."""
    kept: list[SignalOutcome] = []
    counts: Counter[str] = Counter()
    for outcome in reversed(outcomes):
        counts[outcome.channel] += 1
        if counts[outcome.channel] <= KEPT_OUTCOMES:
            kept.append(outcome)
    return tuple(reversed(kept))
