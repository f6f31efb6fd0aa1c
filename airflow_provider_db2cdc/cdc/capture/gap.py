"""Gaps: whether every change after an offset can still be read.

A registration does not show afterwards that it was inactive for a while. So the offset records it.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, reinit_call
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import command_hint, restart_hint
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError, RegistrationError


@dataclass(frozen=True)
class CommitTrace:
    """The traces that the source still holds of an applied commit, and of older commits.

    `changes` and `units` count the commit's rows in its change table and in the unit-of-work table. `same_time` counts
    the rows of the unit-of-work table that have the time of the applied commit. `older`: one of the two tables holds an
    older commit.
    """

    changes: int
    units: int
    same_time: int
    older: bool

    def is_foreign(self, commit: Lsn, floor: Lsn | None) -> bool:
        """Return whether the source has another history than the one that the commit was applied from.

        The commit's position may now belong to another commit, or to none. Older rows are pruned first. So the commit
        was not pruned if an older one is left. Read `floor` after the other values. Without any trace the history is
        unknown, and the answer is False.
        """
        if self.units:
            return not self.same_time
        is_pruned = floor is not None and (len(floor.raw) != len(commit.raw) or commit <= floor)
        return not self.changes and self.older and not is_pruned


@dataclass(frozen=True)
class CapturePoint:
    """A position in a table's captured changes, and the identity of the capture that it belongs to, if known.

    Change rows below `pruned_upto` (CD_OLD_SYNCHPOINT) may be pruned.
    """

    lsn: Lsn
    identity: CaptureIdentity | None
    pruned_upto: Lsn | None = None


def find_recorded_gap(table: TableId, after: Lsn, interrupted: bool, restored: bool) -> str | None:
    """Return why changes of a table after `after` are missing, as far as its offset records it, or None.

    `interrupted`: its registration was inactive since then. `restored`: a plan found another history at the source.
    """
    if interrupted:
        return (
            "its registration was not active for a while, so changes of that time were not captured (if there were "
            f"none, keep its offset by {command_hint('set', table, str(after))})"
        )
    if restored:
        return (
            "the source was restored or capture reset: an applied commit is not in its log any more (if no "
            f"change was lost, keep its offset by {command_hint('set', table, str(after))})"
        )
    return None


def find_gap(read: CapturePoint, now: CapturePoint) -> str | None:
    """Return why changes after those that were `read` may be missing from the change table, or None.

    `now` is the capture position, the capture's current identity, and how far the change table is pruned.

    :raises OffsetError: when the two positions differ in width.
    """
    if read.identity is not None and now.identity is not None and (gap := _replaced(read.identity, now.identity)):
        return gap
    if is_pruned(read.lsn, now.pruned_upto):
        return f"changes up to {now.pruned_upto} are pruned, and only those up to {read.lsn} were read"
    if now.lsn < read.lsn:
        return f"capture stands at {now.lsn}, before the offset {read.lsn}: the source was restored or capture reset"
    return None


def _replaced(old: CaptureIdentity, new: CaptureIdentity) -> str | None:
    """Return how a capture was replaced by another one, None where it is the same."""
    if old.change_table != new.change_table:
        return f"the table was registered again: its changes were in {old.change_table}, now in {new.change_table}"
    if old.created != new.created:
        return f"the change table {new.change_table} was created again at {new.created} (before: {old.created})"
    if old.source_created != new.source_created:
        return f"the source table was created again at {new.source_created} (before: {old.source_created})"
    if old.cold_start != new.cold_start:
        return f"the capture agent was started cold at {new.cold_start}, which empties the change tables"
    return None


def is_pruned(after: Lsn, floor: Lsn | None) -> bool:
    """Return whether changes after a position may be pruned.

    A floor of another width dates from before the agent's compatibility level changed. In that case the width of the
    offset shows the change.
    """
    return floor is not None and len(floor.raw) == len(after.raw) and after < floor


def gap_error(table: TableId, gap: str) -> GapError:
    """Return the error of a gap, with the remedy."""
    return GapError(
        f"{table}: {gap}",
        f"Changes were lost before they were read: have the table snapshotted again by {restart_hint(table)}.",
    )


def not_registered_error(table: TableId, asn_schema: str) -> RegistrationError:
    """Return the error of a table that was captured and is not registered any more."""
    return RegistrationError(
        f"{table} is not registered in schema {asn_schema} any more, so its changes are not captured",
        f"Register it again ({asn_schema}.ADDTABLE, then {reinit_call(asn_schema)}) and have it snapshotted again by "
        f"{restart_hint(table)}; or exclude it with table.exclude.list (take it out of table.include.list).",
    )
