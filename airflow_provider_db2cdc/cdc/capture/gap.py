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


def find_gap(
    table: TableId,
    after: Lsn,
    old: CaptureIdentity | None,
    new: CaptureIdentity,
    floor: Lsn | None,
    position: Lsn,
    suspended: bool = False,
    restored: bool = False,
) -> str | None:
    """Return why changes of a table after `after` may be missing from the change table, or None.

    `old` is the capture's identity at `after`, `new` the one now. Change rows below `floor` (CD_OLD_SYNCHPOINT) may be
    pruned. `suspended`: the registration was inactive in between. `restored`: a plan found another history.

    :raises OffsetError: when `position`, the capture position, and `after` differ in width.
    """
    if suspended:
        return (
            "its registration was not active for a while, so changes of that time were not captured (if there were "
            f"none, keep its offset by {command_hint('set', table, str(after))})"
        )
    if restored:
        return (
            "the source was restored or capture reset: an applied commit is not in its log any more (if no "
            f"change was lost, keep its offset by {command_hint('set', table, str(after))})"
        )
    if old is not None and old.change_table != new.change_table:
        return f"the table was registered anew: its changes were in {old.change_table}, now in {new.change_table}"
    if old is not None and old.created != new.created:
        return f"the change table {new.change_table} was created anew at {new.created} (it was of {old.created})"
    if old is not None and old.source_created != new.source_created:
        return f"the source table was created anew at {new.source_created} (it was of {old.source_created})"
    if old is not None and old.cold_start != new.cold_start:
        return f"the capture agent was started cold at {new.cold_start}, which empties the change tables"
    if is_pruned(after, floor):
        return f"changes up to {floor} are pruned, and only those up to {after} were read"
    if position < after:
        return f"capture stands at {position}, before the offset {after}: the source was restored or capture reset"
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
