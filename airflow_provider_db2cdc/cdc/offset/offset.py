"""Offsets: the LSN up to which changes are durably in the target, as the store keeps it and Delta has committed it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from uuid import uuid4

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.announcement import Announcement
from airflow_provider_db2cdc.cdc.selection.table_names import name_of
from airflow_provider_db2cdc.cdc.signal.action import ACTIONS
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError

CLOCKS_DIFFER_MS = 3_600_000
"""A time that lies further ahead comes from a wrong clock."""

MARK_CHARS = 12

WITH_AIRFLOW = "with --airflow where Airflow runs the pipeline"

WAYS = {
    "restart": f"{WITH_AIRFLOW}, or the form's action '{ACTIONS['restart-table']}'",
    "restore": f"{WITH_AIRFLOW}, or the form's action '{ACTIONS['restore-offset']}'",
}
"""How an action on an offset is requested in a pipeline that Airflow runs."""

PLAIN = re.compile(r"\w+\.\w+", re.ASCII)
"""Matches a table's name that a shell takes unquoted."""


@dataclass(frozen=True)
class Offset:
    """The LSN up to which every change of one table is in the target, the last of them by `batch`.

    `commit_lsn` and `commit_ts_ms` are the newest applied commit and its time at the source, None before the first one.
    `committed_lsn` is the `lsn` that the last result left: an operator who sets the offset does not change it.
    `capture` is the digest of the capture identity under which `lsn` was reached. It is empty where an operator wrote
    the offset.

    `restart` is the operator's request to snapshot the table again and replace its state. `restore` is the request to
    take the position that the target has committed. `restart` goes first. `planned_at_ms` is when the tick was planned
    that reached the offset, or when an operator set it by `db2cdc offset`. It is 0 where an operator wrote the
    document.

    `capture_interrupted`: a later plan or tick found the registration inactive. Changes of that time were not captured.
    `source_restored`: a plan found another history at the source than the applied one.

    `revision` identifies the last such findings and requests. A tick that was planned without one of them does not
    change the offset, whatever the clocks say.

    `announced` is the range of the table's newest asset event. Only Airflow's commits have it.
    """

    table: TableId
    lsn: Lsn
    batch: int
    commit_ts_ms: int | None = None
    capture: str = ""
    restart: bool = False
    planned_at_ms: int = 0
    capture_interrupted: bool = False
    revision: str = ""
    source_restored: bool = False
    committed_lsn: Lsn | None = None
    commit_lsn: Lsn | None = None
    announced: Announcement | None = None
    restore: bool = False

    @property
    def has_position(self) -> bool:
        """Whether it has a position. A table without one may have an offset of zeros that only carries flags."""
        return any(self.lsn.raw)

    @property
    def is_ahead(self) -> bool:
        """Whether an operator has set it beyond the last result. Changes between the two would not be read."""
        return (
            self.committed_lsn is not None
            and len(self.committed_lsn.raw) == len(self.lsn.raw)
            and self.committed_lsn < self.lsn
        )

    @property
    def applied(self) -> tuple[Lsn, int] | None:
        """The newest applied commit and its time, None where one of them is not known."""
        return None if self.commit_lsn is None or self.commit_ts_ms is None else (self.commit_lsn, self.commit_ts_ms)


def new_revision() -> str:
    """Return a revision that no offset has."""
    return uuid4().hex[:MARK_CHARS]


def restart_hint(table: TableId) -> str:
    """Return, for a remedy, the command that has a table snapshotted again."""
    return command_hint("restart", table)


def heal_hint(table: TableId) -> str:
    """Return, for a remedy, the ways to have a table healed."""
    return f"`db2cdc heal {shown_name(table)}`, or a signal execute-snapshot of the type heal"


def command_hint(action: str, table: TableId, *values: str) -> str:
    """Return, for a remedy, the command for an action on a table's offset."""
    command = " ".join(("db2cdc offset", action, shown_name(table), *values))
    return f"`{command}` ({WAYS.get(action, WITH_AIRFLOW)})"


def shown_name(table: TableId) -> str:
    """Return a table's name as a shell takes it."""
    return str(table) if PLAIN.fullmatch(str(table)) else shlex.quote(name_of(table))


def check_forward(old: Offset | None, new: Offset) -> None:
    """Refuse to move an offset backwards.

    :raises OffsetError: when `new` lies before `old`, and `old` has no request for a restart or a restore.
    """
    if old is not None and old.has_position and not (old.restart or old.restore) and new.lsn < old.lsn:
        raise OffsetError(
            f"{new.table}: the offset would move back from {old.lsn} to {new.lsn}",
            "Another run moved it meanwhile. Let that run continue.",
        )


def nothing_to_restore(table: TableId) -> OffsetError:
    """Return the error of a request to restore an offset, although the target holds nothing of its table."""
    return OffsetError(
        f"{table}: its offset cannot be restored, because the target holds nothing of this table",
        f"Check whether the pipeline points to another target. If not, have it snapshotted by {restart_hint(table)}.",
    )


def reconcile(table: TableId, stored_lsn: Lsn | None, committed_lsn: Lsn | None, has_offset: bool) -> Lsn | None:
    """Return the committed position of the table, after a comparison with the stored one.

    A store that lags behind Delta is moved forward: a crash came between the commit and the store. So is a store
    without an offset, unless it once had one (`has_offset`). None means that the table is new: neither the store nor
    Delta knows it.

    :raises OffsetError: when the store lost an offset that Delta has committed, or is ahead of Delta.
    """
    if stored_lsn == committed_lsn or (
        stored_lsn is not None and committed_lsn is not None and stored_lsn < committed_lsn
    ):
        return committed_lsn
    if stored_lsn is None and not has_offset:
        return committed_lsn
    if stored_lsn is None:
        raise OffsetError(
            f"{table}: its offset is missing, but the target holds its changes up to {committed_lsn}",
            f"If no restart was requested and its registration was active all the time, restore it by "
            f"{command_hint('restore', table)}. Otherwise have it snapshotted again by {restart_hint(table)}.",
        )
    raise ahead_error(table, stored_lsn, committed_lsn)


def ahead_error(table: TableId, stored: Lsn, committed: Lsn | None) -> OffsetError:
    """Return the error of an offset that lies beyond what the target holds, with the remedy."""
    holds = f"only holds changes up to {committed}" if committed else "holds nothing of this table"
    back = (
        f"Restore it by {command_hint('restore', table)}"
        if committed
        else f"Have it snapshotted again by {restart_hint(table)}"
    )
    return OffsetError(
        f"{table}: its offset {stored} is ahead of the target, which {holds}",
        f"Check whether it was edited, or the pipeline points to another target. {back}.",
    )
