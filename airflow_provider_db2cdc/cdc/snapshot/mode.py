"""Snapshot modes: for which tables, and when, a pipeline begins with a snapshot.

Debezium's modes, said for a pipeline of ticks: where Debezium speaks of a connector's start, a tick is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_db2cdc.errors import ConfigurationError

CUSTOM = "snapshot.mode.custom.name"


class Snapshotter(Protocol):
    """What a mode decides. A custom one is a class of one's own with these methods, made without arguments.

        class Mornings:
            def snapshot_data(self, known, in_progress):
                return not known
            def stream(self):
                return True
            def snapshot_on_gap(self):
                return datetime.now().hour < 6
            def recover_offset(self):
                return False

    `snapshot.mode=custom` with `snapshot.mode.custom.name=my_module:Mornings` chooses it. It is asked while a tick is
    planned, of each table at least once: its answers may depend on the clock, but are not to be counted.
    """

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        """Whether a table is snapshotted: `known` has an offset, `in_progress` is being snapshotted already."""

    def stream(self) -> bool:
        """Whether changes are pulled, once the snapshot is there."""

    def snapshot_on_gap(self) -> bool:
        """Whether a table whose changes were lost is snapshotted anew; else it stops with an error."""

    def recover_offset(self) -> bool:
        """Whether a lost offset is taken from what the target proves; else it is an error."""


@dataclass(frozen=True)
class Mode:
    """A mode as four answers; `anew` snapshots known tables too, at each tick."""

    data: bool = True
    anew: bool = False
    streaming: bool = True
    on_gap: bool = False
    recovers: bool = False

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        """Whether a table is snapshotted."""
        return self.data and not in_progress and (not known or self.anew)

    def stream(self) -> bool:
        """Whether changes are pulled."""
        return self.streaming

    def snapshot_on_gap(self) -> bool:
        """Whether a gap is mended by a snapshot."""
        return self.on_gap

    def recover_offset(self) -> bool:
        """Whether a lost offset is taken from the target."""
        return self.recovers


class CustomMode:
    """A snapshotter of the user's own; what it raises is told by its name."""

    def __init__(self, name: str, own: Snapshotter) -> None:
        self.name = name
        self._own = own

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        """Whether a table is snapshotted."""
        return self._asked("snapshot_data", known, in_progress)

    def stream(self) -> bool:
        """Whether changes are pulled."""
        return self._asked("stream")

    def snapshot_on_gap(self) -> bool:
        """Whether a gap is mended by a snapshot."""
        return self._asked("snapshot_on_gap")

    def recover_offset(self) -> bool:
        """Whether a lost offset is taken from the target."""
        return self._asked("recover_offset")

    def _asked(self, question: str, *about: bool) -> bool:
        try:
            return bool(getattr(self._own, question)(*about))
        except Exception as error:
            raise ConfigurationError(
                f"{CUSTOM}: {self.name} failed in {question} ({type(error).__name__}: {error})", "Correct the class."
            ) from error


MODES: Mapping[str, Mode] = {
    "initial": Mode(),
    "always": Mode(anew=True, on_gap=True),
    "initial_only": Mode(streaming=False),
    "no_data": Mode(data=False),
    "recovery": Mode(data=False, recovers=True),
    "when_needed": Mode(on_gap=True),
}
OLD_NAMES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


def configured(data: bool = False, stream: bool = False, on_data_error: bool = False) -> Mode:
    """Return the mode `configuration_based`: Debezium's switches, each false unless it is set.

    `snapshot.schema` and `snapshot.on.schema.error` have nothing to do here: columns are read from the catalog by every
    tick, and there is no schema history that could be lost.
    """
    return Mode(data=data, streaming=stream, on_gap=on_data_error)
