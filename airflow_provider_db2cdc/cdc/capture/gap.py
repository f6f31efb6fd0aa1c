"""Gaps: whether every change after an offset can still be read."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, reinit_call
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import command_hint, restart_hint
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import GapError, RegistrationError


@dataclass(frozen=True)
class CommitTrace:
    """What the source still holds of a commit that was applied, and of commits before it.

    `changes` and `units` count its rows in its change table and in the unit-of-work table; `same_time` those of the
    latter that have the time of the commit that was applied. `older` says that one of the two holds an older commit.
    """

    changes: int
    units: int
    same_time: int
    older: bool

    def is_foreign(self, commit: Lsn, floor: Lsn | None) -> bool:
        """Return whether the source has another history than the one that the commit was applied from.

        Its position may belong to another commit by now, or to none. What is older is pruned first, so the commit was
        not pruned where something older is left. `floor` is to be read after the rest. Without a sign nobody knows.
        """
        if self.units:
            return not self.same_time
        is_pruned = floor is not None and (len(floor.raw) != len(commit.raw) or commit <= floor)
        return not self.changes and self.older and not is_pruned


def find_gap(
    table: TableId,
    after: Lsn,
    then: CaptureIdentity | None,
    now: CaptureIdentity,
    floor: Lsn | None,
    fence: Lsn,
    suspended: bool = False,
    restored: bool = False,
) -> str | None:
    """Return why changes of a table after `after` may be missing from the change table, or None.

    `then` is the capture's identity when `after` was reached, `now` the one at this reading; `floor` is
    CD_OLD_SYNCHPOINT, below which change rows may be pruned. `suspended` says that the registration was not active
    meanwhile, which nothing of it tells afterwards; `restored` that a plan found another history at the source.
    """
    if suspended:
        return (
            "its registration was not active for a while, and nobody captured what changed meanwhile (if nothing did, "
            f"keep its offset by {command_hint('set', table, str(after))})"
        )
    if restored:
        return (
            "the source was restored or capture reset: a commit that was applied is not in its log any more (if no "
            f"change was lost, keep its offset by {command_hint('set', table, str(after))})"
        )
    if then is not None and then.change_table != now.change_table:
        return f"the table was registered anew: its changes were in {then.change_table}, now in {now.change_table}"
    if then is not None and then.created != now.created:
        return f"the change table {now.change_table} was created anew at {now.created} (it was of {then.created})"
    if then is not None and then.source_created != now.source_created:
        return f"the source table was created anew at {now.source_created} (it was of {then.source_created})"
    if then is not None and then.cold_start != now.cold_start:
        return f"the capture agent was started cold at {now.cold_start}, which empties the change tables"
    if is_pruned(after, floor):
        return f"changes up to {floor} are pruned, and only those up to {after} were read"
    if fence < after:
        return f"capture stands at {fence}, before the offset {after}: the source was restored or capture reset"
    return None


def is_pruned(after: Lsn, floor: Lsn | None) -> bool:
    """Return whether changes behind a position may be pruned.

    A floor of another width is of before the agent's level changed; of that the offset itself tells, by its own.
    """
    return floor is not None and len(floor.raw) == len(after.raw) and after < floor


def gap_error(table: TableId, gap: str) -> GapError:
    """Return the error of a gap, with the way out."""
    return GapError(
        f"{table}: {gap}",
        f"Changes were lost before they were read: have the table snapshotted anew by {restart_hint(table)}.",
    )


def not_registered_error(table: TableId, asn_schema: str) -> RegistrationError:
    """Return the error of a table that was captured, and is not any more."""
    return RegistrationError(
        f"{table} is not registered in schema {asn_schema} any more: nobody captures what changes in it",
        f"Register it again ({asn_schema}.ADDTABLE, then {reinit_call(asn_schema)}) and have it snapshotted anew by "
        f"{restart_hint(table)}; or exclude it with table.exclude.list (take it out of table.include.list).",
    )
