"""Snapshot modes: for which tables, and when, a pipeline begins with a snapshot.

They are Debezium's modes, applied to a pipeline of ticks. A connector's start in Debezium corresponds to a tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from airflow_provider_db2cdc.errors import ConfigurationError

GapRepair = Literal["snapshot", "heal"]
"""How lost changes are repaired: by publishing every row again, or only the rows that differ."""

CUSTOM = "snapshot.mode.custom.name"


class Snapshotter(Protocol):
    """The decisions of a mode. A custom mode is a user's class with these methods, constructed without arguments.

        class Mornings:
            def snapshot_data(self, known, in_progress):
                return not known
            def stream(self):
                return True
            def snapshot_on_gap(self):
                return datetime.now().hour < 6
            def recover_offset(self):
                return False

    `snapshot.mode=custom` with `snapshot.mode.custom.name=my_module:Mornings` chooses it. The planning of a tick calls
    it at least once for each table. Its answers may depend on the clock. Do not count the calls.
    """

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        """Return whether a table is snapshotted: `known` has an offset, `in_progress` is being snapshotted already."""

    def stream(self) -> bool:
        """Return whether changes are pulled, once the snapshot is there."""

    def snapshot_on_gap(self) -> bool:
        """Return whether a table whose changes were lost is snapshotted again. Otherwise it stops with an error."""

    def recover_offset(self) -> bool:
        """Return whether a lost offset is replaced by the committed one of the target. Otherwise it is an error."""


@dataclass(frozen=True)
class Mode:
    """A mode as fixed answers. `resnapshot` snapshots known tables too, at each tick."""

    data: bool = True
    resnapshot: bool = False
    streaming: bool = True
    on_gap: bool = False
    recovers: bool = False

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        """Return whether a table is snapshotted."""
        return self.data and not in_progress and (not known or self.resnapshot)

    def stream(self) -> bool:
        """Return whether changes are pulled."""
        return self.streaming

    def snapshot_on_gap(self) -> bool:
        """Return whether a gap is repaired by a snapshot."""
        return self.on_gap

    def recover_offset(self) -> bool:
        """Return whether a lost offset is taken from the target."""
        return self.recovers


class CustomMode:
    """A user's snapshotter. Its errors are reported under its name."""

    def __init__(self, name: str, snapshotter: Snapshotter) -> None:
        self.name = name
        self._snapshotter = snapshotter

    def snapshot_data(self, known: bool, in_progress: bool) -> bool:
        """Return whether a table is snapshotted."""
        return self._call("snapshot_data", known, in_progress)

    def stream(self) -> bool:
        """Return whether changes are pulled."""
        return self._call("stream")

    def snapshot_on_gap(self) -> bool:
        """Return whether a gap is repaired by a snapshot."""
        return self._call("snapshot_on_gap")

    def recover_offset(self) -> bool:
        """Return whether a lost offset is taken from the target."""
        return self._call("recover_offset")

    def _call(self, question: str, *arguments: bool) -> bool:
        try:
            return bool(getattr(self._snapshotter, question)(*arguments))
        except Exception as error:
            raise ConfigurationError(
                f"{CUSTOM}: {self.name} failed in {question} ({type(error).__name__}: {error})", "Correct the class."
            ) from error


MODES: Mapping[str, Mode] = {
    "initial": Mode(),
    "always": Mode(resnapshot=True, on_gap=True),
    "initial_only": Mode(streaming=False),
    "no_data": Mode(data=False),
    "recovery": Mode(data=False, recovers=True),
    "when_needed": Mode(on_gap=True),
}
OLD_NAMES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


def configured(data: bool = False, stream: bool = False, on_data_error: bool = False) -> Mode:
    """Return the mode `configuration_based`: Debezium's switches, each false unless it is set.

    `snapshot.schema` and `snapshot.on.schema.error` have no effect here. Every tick reads the columns from the catalog,
    so there is no schema history that could be lost.
    """
    return Mode(data=data, streaming=stream, on_gap=on_data_error)
